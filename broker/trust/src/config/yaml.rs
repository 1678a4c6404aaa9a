//! YAML events to a tree, with the line of every node. What readers disagree about is left undetermined.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, Tag};

use super::scalar::{Kind, resolve};
use super::{LoadFault, Refusal, Undetermined};
use crate::Code;
use crate::go::json::MAX_DEPTH;

/// A YAML node and the line it starts at, from 1.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) content: Content,
}

/// What a node holds.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Kind, String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// The first document, and whether another one follows.
pub(super) struct Documents {
    pub(super) first: Option<Node>,
    pub(super) more: bool,
}

/// More nodes than that, aliases expanded, are not read.
const MAX_NODES: usize = 100_000;

/// Reads the first document.
pub(super) fn read(text: &str) -> Result<Documents, LoadFault> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut first = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(Documents { first, more: false }),
            (Event::DocumentStart(_, Some(_)), _) => return Err(unusual("a %YAML directive")),
            (Event::DocumentStart(..), _) => {
                let (event, span) = reader.next()?;
                first = Some(reader.node(event, span, Place { depth: 0, flow: false })?);
                break;
            }
            _ => {}
        }
    }
    // The apiserver ends here, whatever follows.
    loop {
        match reader.parser.next_event() {
            Some(Ok((Event::DocumentStart(..), _))) | Some(Err(_)) => return Ok(Documents { first, more: true }),
            Some(Ok((Event::StreamEnd, _))) | None => return Ok(Documents { first, more: false }),
            Some(Ok(_)) => {}
        }
    }
}

fn unusual(what: &str) -> LoadFault {
    Undetermined::new(Code::UnusualYaml, format!("{what} is read in different ways by different readers of YAML")).into()
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    flow: bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), LoadFault> {
        loop {
            match self.parser.next_event() {
                // Comments come only where another crate of the build asks the parser for them.
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    let line = error.marker().line() as u64;
                    return Err(Refusal::near(Code::NotYaml, format!("yaml: line {line}: {}", error.info())).at(line).into());
                }
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, place: Place) -> Result<Node, LoadFault> {
        self.count(1)?;
        if place.depth > MAX_DEPTH {
            return Err(Undetermined::new(Code::TooDeep, format!("the file nests deeper than {MAX_DEPTH}")).into());
        }
        let line = span.start.line() as u64;
        let (anchor, content) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref(), place)?),
            Event::SequenceStart(style, anchor, tag) => {
                check_tag(tag.as_deref(), "seq")?;
                (anchor, Content::List(self.list(Place { depth: place.depth + 1, flow: style == StructureStyle::Flow })?))
            }
            Event::MappingStart(style, anchor, tag) => {
                check_tag(tag.as_deref(), "map")?;
                (anchor, Content::Map(self.map(Place { depth: place.depth + 1, flow: style == StructureStyle::Flow })?))
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or_else(|| unusual("an alias inside of its own anchor"))?;
                self.count(size(&node))?;
                return Ok(Node { line, content: node.content });
            }
            _ => return Err(unusual("an unexpected event")),
        };
        let node = Node { line, content };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize) -> Result<(), LoadFault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(Undetermined::new(Code::TooLarge, format!("the file has more than {MAX_NODES} nodes")).into());
        }
        Ok(())
    }

    fn list(&mut self, place: Place) -> Result<Vec<Node>, LoadFault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, place)?),
            }
        }
    }

    fn map(&mut self, place: Place) -> Result<Vec<(Node, Node)>, LoadFault> {
        let mut members = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(members),
                (event, span) => self.node(event, span, place)?,
            };
            let (event, span) = self.next()?;
            members.push((key, self.node(event, span, place)?));
        }
    }
}

fn size(node: &Node) -> usize {
    match &node.content {
        Content::Scalar(..) => 1,
        Content::List(items) => items.iter().map(size).sum::<usize>() + 1,
        Content::Map(members) => members.iter().map(|(key, value)| size(key) + size(value)).sum::<usize>() + 1,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, place: Place) -> Result<Content, LoadFault> {
    if let Some(tag) = tag {
        check_tag(Some(tag), "str")?;
        return Ok(Content::Scalar(Kind::Text, text.to_owned()));
    }
    if style != ScalarStyle::Plain {
        return Ok(Content::Scalar(Kind::Text, text.to_owned()));
    }
    if place.flow && text.contains(['?', '{', '}', '[', ']', ',']) {
        return Err(unusual("a plain scalar with '?' between braces or brackets"));
    }
    match resolve(text) {
        Kind::Merge => Err(unusual("a merge key")),
        kind => Ok(Content::Scalar(kind, text.to_owned())),
    }
}

fn check_tag(tag: Option<&Tag>, expected: &str) -> Result<(), LoadFault> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.core_suffix() == Some(expected) => Ok(()),
        Some(_) => Err(unusual("a tag")),
    }
}
