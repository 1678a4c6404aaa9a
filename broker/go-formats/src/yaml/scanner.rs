//! Splits a file into the tokens of YAML.
//!
//! Only the `:` after a token shows that it is a key, so tokens wait in a queue while one of them
//! may still be a key. The library finds such a token by its number, through an index that some
//! inputs make wrong. This index has the same errors, because the meaning of such inputs depends on
//! them.

use std::collections::{HashMap, VecDeque};

use super::source::{Mark, Source, is_blank, is_blank_or_end, is_break, is_break_or_end};
use super::{Fault, Limit};

/// The most flow collections, and the most block collections, that may be open.
const MAX_OPEN: usize = 10_000;
/// The longest key without a `?`, in characters.
const MAX_KEY: usize = 1024;

/// The kind of a token, with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    StreamStart,
    StreamEnd,
    Version { major: u8, minor: u8 },
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, plain: bool },
}

/// A token and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

/// A token that is a key if a `:` follows.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Whether nothing but a key is possible there.
    required: bool,
    number: usize,
    mark: Mark,
}

/// Splits characters into tokens.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) source: Source<'a>,
    tokens: VecDeque<Token>,
    /// The number of tokens taken from the queue.
    taken: usize,
    /// Whether the kind of the token at the head is final.
    ready: bool,
    started: bool,
    pub(super) flow_level: usize,
    /// The column of the innermost block collection; -1 outside of any.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) key_allowed: bool,
    /// The possible keys, one for each flow level.
    keys: Vec<SimpleKey>,
    /// The index in `keys` by the number of a token.
    keys_by_token: HashMap<usize, usize>,
}

fn column_of(mark: Mark) -> isize {
    isize::try_from(mark.column).unwrap_or(isize::MAX)
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            source: Source::new(bytes),
            tokens: VecDeque::new(),
            taken: 0,
            ready: false,
            started: false,
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            key_allowed: false,
            keys: Vec::new(),
            keys_by_token: HashMap::new(),
        }
    }

    /// Returns the next token without taking it.
    pub(super) fn peek(&mut self) -> Result<&Token, Fault> {
        if !self.ready {
            self.fetch_until_known()?;
        }
        self.tokens
            .front()
            .ok_or(Fault::Undetermined(Limit::Unusual("a text without tokens")))
    }

    /// Takes the token that [`Scanner::peek`] returned.
    pub(super) fn skip(&mut self) -> Option<Token> {
        self.ready = false;
        self.taken += 1;
        self.tokens.pop_front()
    }

    /// Creates a refusal at the current place.
    pub(super) fn problem_here(&self, problem: &str) -> Fault {
        let line = self.source.mark.line;
        let place = if line == 0 {
            String::new()
        } else {
            format!("line {}: ", line + 1)
        };
        Fault::Refused {
            message: format!("yaml: {place}{problem}"),
            exact: true,
            line: Some(line as u64 + 1),
        }
    }

    /// Skips the blanks, the comment and the line end after a directive or a block scalar's header.
    pub(super) fn skip_rest_of_line(&mut self) -> Result<(), Fault> {
        self.source.skip_blanks()?;
        self.source.skip_comment()?;
        if !is_break_or_end(self.source.current_char()) {
            return Err(self.problem_here("did not find expected comment or line break"));
        }
        if is_break(self.source.current_char()) {
            self.source.ensure(2)?;
            self.source.skip_line();
        }
        Ok(())
    }

    pub(super) fn push_token(&mut self, kind: Kind, start: Mark) {
        let end = self.source.mark;
        self.tokens.push_back(Token { kind, start, end });
    }

    /// Inserts a token before the one of that number, or at the end if that one was already taken.
    fn insert_token(&mut self, number: Option<usize>, kind: Kind, mark: Mark) {
        let token = Token {
            kind,
            start: mark,
            end: mark,
        };
        match number.and_then(|number| number.checked_sub(self.taken)) {
            Some(place) if place <= self.tokens.len() => self.tokens.insert(place, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn fetch_until_known(&mut self) -> Result<(), Fault> {
        loop {
            if !self.tokens.is_empty() {
                match self.keys_by_token.get(&self.taken).copied() {
                    Some(index) if self.is_possible(index)? => {}
                    _ => break,
                }
            }
            self.fetch_tokens()?;
        }
        self.ready = true;
        Ok(())
    }

    /// Adds the next token to the queue, and the tokens that it implies.
    fn fetch_tokens(&mut self) -> Result<(), Fault> {
        self.source.ensure(1)?;
        if !self.started {
            self.started = true;
            self.key_allowed = true;
            self.keys.push(SimpleKey::default());
            self.push_token(Kind::StreamStart, self.source.mark);
            return Ok(());
        }
        self.skip_to_token()?;
        self.close_blocks(column_of(self.source.mark));
        self.source.ensure(4)?;
        let (here, next) = (self.source.current_char(), self.source.peek(1));
        if here == '\0' {
            return self.fetch_stream_end();
        }
        if self.source.mark.column == 0 && here == '%' {
            return self.fetch_directive();
        }
        if let Some(sign) = self.source.document_indicator() {
            return self.fetch_document_indicator(if sign == '-' {
                Kind::DocumentStart
            } else {
                Kind::DocumentEnd
            });
        }
        let flow = self.flow_level > 0;
        match here {
            '[' => self.fetch_flow_start(Kind::FlowSequenceStart),
            '{' => self.fetch_flow_start(Kind::FlowMappingStart),
            ']' => self.fetch_flow_end(Kind::FlowSequenceEnd),
            '}' => self.fetch_flow_end(Kind::FlowMappingEnd),
            ',' => self.fetch_flow_entry(),
            '-' if is_blank_or_end(next) => self.fetch_block_entry(),
            '?' if flow || is_blank_or_end(next) => self.fetch_key(),
            ':' if flow || is_blank_or_end(next) => self.fetch_value(),
            '*' | '&' => self.fetch_anchor(here == '*'),
            '!' => self.fetch_tag(),
            '|' | '>' if !flow => self.fetch_block_scalar(here == '|'),
            '\'' | '"' => self.fetch_quoted_scalar(here == '\''),
            '-' if !is_blank(next) => self.fetch_plain_scalar(),
            '?' | ':' if !flow && !is_blank_or_end(next) => self.fetch_plain_scalar(),
            '-' | '?' | ':' | '#' | '|' | '>' | '%' | '@' | '`' => {
                Err(self.problem_here("found character that cannot start any token"))
            }
            blank if is_blank_or_end(blank) => {
                Err(self.problem_here("found character that cannot start any token"))
            }
            _ => self.fetch_plain_scalar(),
        }
    }

    /// Skips blanks, comments and line ends. A tab counts as a blank only where no key can start.
    fn skip_to_token(&mut self) -> Result<(), Fault> {
        loop {
            self.source.ensure(1)?;
            if self.source.mark.column == 0 && self.source.byte_order_mark() {
                self.source.skip();
            }
            self.source.ensure(1)?;
            let tabs = self.flow_level > 0 || !self.key_allowed;
            while self.source.current_char() == ' ' || (tabs && self.source.current_char() == '\t')
            {
                self.source.skip();
                self.source.ensure(1)?;
            }
            self.source.skip_comment()?;
            if !is_break(self.source.current_char()) {
                return Ok(());
            }
            self.source.ensure(2)?;
            self.source.skip_line();
            if self.flow_level == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// Whether the token at that index can still be a key: it is on one line, and short.
    fn is_possible(&mut self, index: usize) -> Result<bool, Fault> {
        let here = self.source.mark;
        let Some(key) = self.keys.get_mut(index) else {
            return Err(Fault::Undetermined(Limit::Unusual(
                "a text on which the apiserver's library crashes",
            )));
        };
        if !key.possible {
            return Ok(false);
        }
        if key.mark.line < here.line || key.mark.index + MAX_KEY < here.index {
            if key.required {
                return Err(self.problem_here("could not find expected ':'"));
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    /// Records that the next token may be a key.
    pub(super) fn save_key(&mut self) -> Result<(), Fault> {
        if !self.key_allowed {
            return Ok(());
        }
        let mark = self.source.mark;
        let required = self.flow_level == 0 && self.indent == column_of(mark);
        let key = SimpleKey {
            possible: true,
            required,
            number: self.taken + self.tokens.len(),
            mark,
        };
        self.drop_key()?;
        let index = self.keys.len().saturating_sub(1);
        if let Some(last) = self.keys.last_mut() {
            *last = key;
        }
        self.keys_by_token.insert(key.number, index);
        Ok(())
    }

    /// Drops the possible key of this level.
    pub(super) fn drop_key(&mut self) -> Result<(), Fault> {
        match self.keys.last_mut() {
            Some(key) if key.possible && key.required => {
                Err(self.problem_here("could not find expected ':'"))
            }
            Some(key) if key.possible => {
                key.possible = false;
                self.keys_by_token.remove(&key.number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Opens a block collection, if the column is to the right of the innermost one.
    fn open_block(
        &mut self,
        column: isize,
        number: Option<usize>,
        kind: Kind,
        mark: Mark,
    ) -> Result<(), Fault> {
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > MAX_OPEN {
            return Err(self.problem_here(&format!("exceeded max depth of {MAX_OPEN}")));
        }
        self.insert_token(number, kind, mark);
        Ok(())
    }

    /// Closes the block collections to the right of the column.
    fn close_blocks(&mut self, column: isize) {
        while self.flow_level == 0 && self.indent > column {
            self.push_token(Kind::BlockEnd, self.source.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch_stream_end(&mut self) -> Result<(), Fault> {
        if self.source.mark.column != 0 {
            self.source.mark.column = 0;
            self.source.mark.line += 1;
        }
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push_token(Kind::StreamEnd, self.source.mark);
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Fault> {
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        let start = self.source.mark;
        let kind = self.read_directive()?;
        self.push_token(kind, start);
        Ok(())
    }

    /// Adds a token of `count` characters.
    fn take_characters(&mut self, kind: Kind, count: usize) {
        let start = self.source.mark;
        self.source.skip_all(count);
        self.push_token(kind, start);
    }

    fn fetch_document_indicator(&mut self, kind: Kind) -> Result<(), Fault> {
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.take_characters(kind, 3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind) -> Result<(), Fault> {
        self.save_key()?;
        let number = self.taken + self.tokens.len();
        self.keys.push(SimpleKey {
            number,
            mark: self.source.mark,
            ..SimpleKey::default()
        });
        self.flow_level += 1;
        if self.flow_level > MAX_OPEN {
            return Err(self.problem_here(&format!("exceeded max depth of {MAX_OPEN}")));
        }
        self.key_allowed = true;
        self.take_characters(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: Kind) -> Result<(), Fault> {
        self.drop_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            // In `[]` no key replaced the one that `[` made, whose number is that of `[` itself.
            if let Some(key) = self.keys.pop() {
                self.keys_by_token.remove(&key.number);
            }
        }
        self.key_allowed = false;
        self.take_characters(kind, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Fault> {
        self.drop_key()?;
        self.key_allowed = true;
        self.take_characters(Kind::FlowEntry, 1);
        Ok(())
    }

    /// Checks and opens what `-`, `?` and a `:` without a key need in a block.
    fn start_block_entry(&mut self, kind: Kind, otherwise: &str) -> Result<(), Fault> {
        if self.flow_level > 0 {
            return Ok(());
        }
        if !self.key_allowed {
            return Err(self.problem_here(otherwise));
        }
        let mark = self.source.mark;
        self.open_block(column_of(mark), None, kind, mark)
    }

    fn fetch_block_entry(&mut self) -> Result<(), Fault> {
        self.start_block_entry(
            Kind::BlockSequenceStart,
            "block sequence entries are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = true;
        self.take_characters(Kind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Fault> {
        self.start_block_entry(
            Kind::BlockMappingStart,
            "mapping keys are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = self.flow_level == 0;
        self.take_characters(Kind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Fault> {
        let level = self.keys.len().saturating_sub(1);
        if self.is_possible(level)? {
            let key = self.keys.last().copied().unwrap_or_default();
            self.insert_token(Some(key.number), Kind::Key, key.mark);
            self.open_block(
                column_of(key.mark),
                Some(key.number),
                Kind::BlockMappingStart,
                key.mark,
            )?;
            if let Some(key) = self.keys.last_mut() {
                key.possible = false;
            }
            self.keys_by_token.remove(&key.number);
            self.key_allowed = false;
        } else {
            self.start_block_entry(
                Kind::BlockMappingStart,
                "mapping values are not allowed in this context",
            )?;
            self.key_allowed = self.flow_level == 0;
        }
        self.take_characters(Kind::Value, 1);
        Ok(())
    }
}
