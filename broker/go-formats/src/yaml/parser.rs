//! Parses tokens into nodes, for the first document.

use std::collections::HashMap;

use super::scanner::{Kind, Scanner};
use super::source::Mark;
use super::{Fault, Limit};
use crate::json::MAX_DEPTH;

/// The most nodes that are read.
pub(super) const MAX_NODES: usize = 100_000;

/// The index of a node in its tree.
pub(super) type Id = usize;

/// A node, and where it starts.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) start: Mark,
    pub(super) content: Content,
}

/// The content of a node.
#[derive(Debug)]
pub(super) enum Content {
    Scalar(Scalar),
    Sequence(Vec<Id>),
    Mapping(Vec<(Id, Id)>),
    Alias { name: String, target: Id },
}

/// A scalar before its value is resolved.
#[derive(Debug, Default)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// The tag in its long form; empty without one.
    pub(super) tag: String,
    /// Whether the text determines the type: it is plain and has no tag, or has the tag `!`.
    pub(super) implicit: bool,
}

/// The nodes of a document. An alias may be part of its own target.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// `None` for a file without a document.
    pub(super) root: Option<Id>,
}

/// The position of a node, which determines its possible forms.
#[derive(Debug, Clone, Copy)]
struct NodePosition {
    depth: usize,
    /// Whether block collections are possible here.
    block: bool,
    /// Whether a sequence without indentation is possible here.
    indentless: bool,
}

/// Parses tokens into the nodes of a document.
pub(super) struct Parser<'a> {
    scanner: Scanner<'a>,
    tree: Tree,
    anchors: HashMap<String, Id>,
    handles: HashMap<String, String>,
}

/// Creates a refusal at a mark. Lines count from 0, as the library does here.
fn problem_at(problem: &str, mark: Mark) -> Fault {
    let place = if mark.line == 0 {
        String::new()
    } else {
        format!("line {}: ", mark.line)
    };
    Fault::Refused {
        message: format!("yaml: {place}{problem}"),
        exact: true,
        line: Some(mark.line as u64 + 1),
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            scanner: Scanner::new(bytes),
            tree: Tree::default(),
            anchors: HashMap::new(),
            handles: HashMap::new(),
        }
    }

    /// Parses the first document.
    pub(super) fn parse_document(&mut self) -> Result<Tree, Fault> {
        self.peek()?;
        self.scanner.skip();
        let root = NodePosition {
            depth: 0,
            block: true,
            indentless: false,
        };
        self.tree.root = match self.peek()?.0 {
            Kind::StreamEnd => return Ok(Tree::default()),
            Kind::Version { .. } | Kind::TagDirective { .. } | Kind::DocumentStart => {
                self.parse_directives()?;
                let (token, start) = self.peek()?;
                if token != Kind::DocumentStart {
                    return Err(problem_at("did not find expected <document start>", start));
                }
                self.scanner.skip();
                let (token, start) = self.peek()?;
                let empty = matches!(
                    token,
                    Kind::Version { .. }
                        | Kind::TagDirective { .. }
                        | Kind::DocumentStart
                        | Kind::DocumentEnd
                        | Kind::StreamEnd
                );
                Some(if empty {
                    self.add_empty(start)?
                } else {
                    self.parse_node(root)?
                })
            }
            _ => {
                self.parse_directives()?;
                Some(self.parse_node(root)?)
            }
        };
        // The library reads one more token, and then ends.
        if self.peek()?.0 == Kind::DocumentEnd {
            self.scanner.skip();
        }
        Ok(std::mem::take(&mut self.tree))
    }

    /// Whether anything follows the parsed document.
    pub(super) fn has_more(&mut self) -> bool {
        loop {
            match self.peek() {
                Ok((Kind::StreamEnd, _)) => return false,
                Ok((Kind::DocumentEnd, _)) => self.scanner.skip(),
                _ => return true,
            };
        }
    }

    /// Returns the kind and start of the next token. It does not copy the token's text; `take`
    /// returns that.
    fn peek(&mut self) -> Result<(Kind, Mark), Fault> {
        let token = self.scanner.peek()?;
        let kind = match &token.kind {
            Kind::Scalar { plain, .. } => Kind::Scalar {
                text: String::new(),
                plain: *plain,
            },
            Kind::Alias(_) => Kind::Alias(String::new()),
            Kind::Anchor(_) => Kind::Anchor(String::new()),
            Kind::Tag { .. } => Kind::Tag {
                handle: String::new(),
                suffix: String::new(),
            },
            Kind::TagDirective { .. } => Kind::TagDirective {
                handle: String::new(),
                prefix: String::new(),
            },
            other => other.clone(),
        };
        Ok((kind, token.start))
    }

    /// Takes the next token; returns its kind and its end.
    fn take(&mut self) -> Result<(Kind, Mark), Fault> {
        self.scanner.peek()?;
        let token = self
            .scanner
            .skip()
            .ok_or(Fault::Undetermined(Limit::Unusual("a text without tokens")))?;
        Ok((token.kind, token.end))
    }

    fn parse_directives(&mut self) -> Result<(), Fault> {
        let mut versioned = false;
        loop {
            let (kind, start) = self.peek()?;
            match kind {
                Kind::Version { .. } if versioned => {
                    return Err(problem_at("found duplicate %YAML directive", start));
                }
                Kind::Version { major: 1, minor: 1 } => {
                    versioned = true;
                    self.scanner.skip();
                }
                Kind::Version { .. } => {
                    return Err(problem_at("found incompatible YAML document", start));
                }
                Kind::TagDirective { .. } => {
                    if let (Kind::TagDirective { handle, prefix }, _) = self.take()? {
                        if self.handles.contains_key(&handle) {
                            return Err(problem_at("found duplicate %TAG directive", start));
                        }
                        self.handles.insert(handle, prefix);
                    }
                }
                _ => break,
            }
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            self.handles
                .entry(handle.to_owned())
                .or_insert_with(|| prefix.to_owned());
        }
        Ok(())
    }

    fn add_node(&mut self, start: Mark, content: Content) -> Result<Id, Fault> {
        if self.tree.nodes.len() >= MAX_NODES {
            return Err(Fault::Undetermined(Limit::Size));
        }
        self.tree.nodes.push(Node { start, content });
        Ok(self.tree.nodes.len() - 1)
    }

    /// Adds the node for an omitted value.
    fn add_empty(&mut self, mark: Mark) -> Result<Id, Fault> {
        self.add_node(
            mark,
            Content::Scalar(Scalar {
                implicit: true,
                ..Scalar::default()
            }),
        )
    }

    fn parse_node(&mut self, place: NodePosition) -> Result<Id, Fault> {
        if place.depth > MAX_DEPTH {
            return Err(Fault::Undetermined(Limit::Depth));
        }
        let (mut kind, start) = self.peek()?;
        if let Kind::Alias(_) = kind {
            return self.parse_alias(start);
        }
        let (mut anchor, mut tag) = (None, None);
        // A tag and an anchor, in either order, each at most once.
        loop {
            match kind {
                Kind::Anchor(_) if anchor.is_none() => {
                    if let (Kind::Anchor(name), _) = self.take()? {
                        anchor = Some(name);
                    }
                }
                Kind::Tag { .. } if tag.is_none() => {
                    let (_, mark) = self.peek()?;
                    if let (Kind::Tag { handle, suffix }, _) = self.take()? {
                        tag = Some((handle, suffix, mark));
                    }
                }
                _ => break,
            }
            kind = self.peek()?.0;
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, mark)) => match self.handles.get(&handle) {
                Some(prefix) => format!("{prefix}{suffix}"),
                None => return Err(problem_at("found undefined tag handle", mark)),
            },
        };
        self.parse_content(place, &kind, start, anchor, tag)
    }

    fn parse_alias(&mut self, start: Mark) -> Result<Id, Fault> {
        let (Kind::Alias(name), _) = self.take()? else {
            return self.add_empty(start);
        };
        match self.anchors.get(&name).copied() {
            Some(target) => self.add_node(start, Content::Alias { name, target }),
            None => Err(Fault::refused(format!(
                "unknown anchor '{name}' referenced"
            ))),
        }
    }

    /// Parses the node itself, after its tag and anchor.
    fn parse_content(
        &mut self,
        place: NodePosition,
        kind: &Kind,
        start: Mark,
        anchor: Option<String>,
        tag: String,
    ) -> Result<Id, Fault> {
        let bare = anchor.is_none() && tag.is_empty();
        let empty = match kind {
            Kind::FlowSequenceStart => Content::Sequence(Vec::new()),
            Kind::FlowMappingStart => Content::Mapping(Vec::new()),
            Kind::BlockEntry if place.indentless => Content::Sequence(Vec::new()),
            Kind::BlockSequenceStart if place.block => Content::Sequence(Vec::new()),
            Kind::BlockMappingStart if place.block => Content::Mapping(Vec::new()),
            Kind::Scalar { plain, .. } => {
                let implicit = tag == "!" || (tag.is_empty() && *plain);
                let (Kind::Scalar { text, .. }, _) = self.take()? else {
                    return self.add_empty(start);
                };
                Content::Scalar(Scalar {
                    text,
                    tag,
                    implicit,
                })
            }
            _ if bare => {
                return Err(problem_at(
                    "did not find expected node content",
                    self.peek()?.1,
                ));
            }
            _ => Content::Scalar(Scalar {
                text: String::new(),
                implicit: tag.is_empty(),
                tag,
            }),
        };
        let id = self.add_node(start, empty)?;
        // The anchor is set before the children are parsed, because they may be aliases of it.
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
        let inner = NodePosition {
            depth: place.depth + 1,
            block: true,
            indentless: false,
        };
        let in_flow = NodePosition {
            block: false,
            ..inner
        };
        let filled = match kind {
            Kind::BlockEntry if place.indentless => {
                Content::Sequence(self.indentless_sequence(inner)?)
            }
            Kind::BlockSequenceStart if place.block => {
                Content::Sequence(self.block_sequence(inner)?)
            }
            Kind::BlockMappingStart if place.block => Content::Mapping(self.block_mapping(inner)?),
            Kind::FlowSequenceStart => Content::Sequence(self.flow_sequence(in_flow)?),
            Kind::FlowMappingStart => Content::Mapping(self.flow_mapping(in_flow)?),
            _ => return Ok(id),
        };
        if let Some(node) = self.tree.nodes.get_mut(id) {
            node.content = filled;
        }
        Ok(id)
    }

    fn block_sequence(&mut self, inner: NodePosition) -> Result<Vec<Id>, Fault> {
        self.scanner.skip();
        let mut items = Vec::new();
        loop {
            match self.peek()? {
                (Kind::BlockEntry, _) => {
                    let (_, end) = self.take()?;
                    let nothing = matches!(self.peek()?.0, Kind::BlockEntry | Kind::BlockEnd);
                    items.push(if nothing {
                        self.add_empty(end)?
                    } else {
                        self.parse_node(inner)?
                    });
                }
                (Kind::BlockEnd, _) => {
                    self.scanner.skip();
                    return Ok(items);
                }
                (_, start) => return Err(problem_at("did not find expected '-' indicator", start)),
            }
        }
    }

    fn indentless_sequence(&mut self, inner: NodePosition) -> Result<Vec<Id>, Fault> {
        let mut items = Vec::new();
        while self.peek()?.0 == Kind::BlockEntry {
            let (_, end) = self.take()?;
            let nothing = matches!(
                self.peek()?.0,
                Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd
            );
            items.push(if nothing {
                self.add_empty(end)?
            } else {
                self.parse_node(inner)?
            });
        }
        Ok(items)
    }

    fn block_mapping(&mut self, inner: NodePosition) -> Result<Vec<(Id, Id)>, Fault> {
        self.scanner.skip();
        let inner = NodePosition {
            indentless: true,
            ..inner
        };
        let mut members = Vec::new();
        loop {
            match self.peek()? {
                (Kind::Key, _) => {
                    let key = self.block_member(inner)?;
                    let value = match self.peek()? {
                        (Kind::Value, _) => self.block_member(inner)?,
                        (_, start) => self.add_empty(start)?,
                    };
                    members.push((key, value));
                }
                (Kind::BlockEnd, _) => {
                    self.scanner.skip();
                    return Ok(members);
                }
                (_, start) => return Err(problem_at("did not find expected key", start)),
            }
        }
    }

    /// Parses the node after `?` or `:`.
    fn block_member(&mut self, inner: NodePosition) -> Result<Id, Fault> {
        let (_, end) = self.take()?;
        let nothing = matches!(self.peek()?.0, Kind::Key | Kind::Value | Kind::BlockEnd);
        if nothing {
            self.add_empty(end)
        } else {
            self.parse_node(inner)
        }
    }

    fn flow_sequence(&mut self, inner: NodePosition) -> Result<Vec<Id>, Fault> {
        self.scanner.skip();
        let mut items = Vec::new();
        let mut first = true;
        loop {
            if !self.flow_goes_on(
                &Kind::FlowSequenceEnd,
                first,
                "did not find expected ',' or ']'",
            )? {
                return Ok(items);
            }
            first = false;
            items.push(match self.peek()? {
                (Kind::Key, start) => self.flow_pair(inner, start)?,
                _ => self.parse_node(inner)?,
            });
        }
    }

    /// Reads a comma, or the end of a flow collection. Returns false at the end.
    fn flow_goes_on(&mut self, end: &Kind, first: bool, otherwise: &str) -> Result<bool, Fault> {
        let (mut kind, start) = self.peek()?;
        if kind != *end && !first {
            if kind != Kind::FlowEntry {
                return Err(problem_at(otherwise, start));
            }
            self.scanner.skip();
            kind = self.peek()?.0;
        }
        if kind == *end {
            self.scanner.skip();
            return Ok(false);
        }
        Ok(true)
    }

    /// Parses a mapping of one member, as an item of a flow sequence.
    fn flow_pair(&mut self, inner: NodePosition, start: Mark) -> Result<Id, Fault> {
        self.scanner.skip();
        let id = self.add_node(start, Content::Mapping(Vec::new()))?;
        let inner = NodePosition {
            depth: inner.depth + 1,
            ..inner
        };
        let key = match self.peek()?.0 {
            Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd => {
                // The library takes that token, whatever its kind.
                let (_, end) = self.take()?;
                self.add_empty(end)?
            }
            _ => self.parse_node(inner)?,
        };
        let value = self.flow_value(inner, &Kind::FlowSequenceEnd)?;
        self.peek()?;
        if let Some(node) = self.tree.nodes.get_mut(id) {
            node.content = Content::Mapping(vec![(key, value)]);
        }
        Ok(id)
    }

    /// Parses a `:` and its value; both may be missing.
    fn flow_value(&mut self, inner: NodePosition, end: &Kind) -> Result<Id, Fault> {
        let (mut kind, mut start) = self.peek()?;
        if kind == Kind::Value {
            self.scanner.skip();
            (kind, start) = self.peek()?;
            if kind != Kind::FlowEntry && kind != *end {
                return self.parse_node(inner);
            }
        }
        self.add_empty(start)
    }

    fn flow_mapping(&mut self, inner: NodePosition) -> Result<Vec<(Id, Id)>, Fault> {
        self.scanner.skip();
        let mut members = Vec::new();
        let mut first = true;
        loop {
            if !self.flow_goes_on(
                &Kind::FlowMappingEnd,
                first,
                "did not find expected ',' or '}'",
            )? {
                return Ok(members);
            }
            first = false;
            let member = if self.peek()?.0 == Kind::Key {
                self.scanner.skip();
                let (kind, start) = self.peek()?;
                let nothing = matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd);
                let key = if nothing {
                    self.add_empty(start)?
                } else {
                    self.parse_node(inner)?
                };
                (key, self.flow_value(inner, &Kind::FlowMappingEnd)?)
            } else {
                let key = self.parse_node(inner)?;
                let (_, start) = self.peek()?;
                (key, self.add_empty(start)?)
            };
            members.push(member);
        }
    }
}
