//! Parses the start of an expression: literals, names, brackets.

use super::{ParseFault, Parser, Parsing};
use crate::ast::{Element, Entry, Expr, Field, Kind};
use crate::escape::RESERVED_NAMES;
use crate::lexer::Tok;
use crate::value::Val;
use crate::{literal, macros};

impl Parser {
    pub(super) fn primary(&mut self) -> Parsing<Expr> {
        let at = self.at();
        let negative =
            matches!(self.peek_at(1), Tok::Int(_) | Tok::Float(_)) && self.eat_punctuation("-");
        let token = self.peek().clone();
        let value = match token {
            Tok::Int(digits) => literal::int_value(&digits, negative),
            Tok::Float(digits) => literal::float_value(&digits, negative),
            Tok::Uint(digits) => literal::uint_value(&digits),
            Tok::Str(text) => literal::string_value(&text, self.minor),
            Tok::Bytes(text) => literal::bytes_value(&text),
            Tok::Punct("true") => Ok(Val::Bool(true)),
            Tok::Punct("false") => Ok(Val::Bool(false)),
            Tok::Punct("null") => Ok(Val::Null),
            _ => return self.compound(at),
        };
        self.next += 1;
        match value {
            Ok(value) => self.make_node(at, Kind::Literal(value)),
            Err(literal::BROKEN_TEXT) => Err(ParseFault::Beyond(literal::BROKEN_TEXT)),
            Err(message) => self.add_issue(at, message.to_owned()),
        }
    }

    fn compound(&mut self, at: u32) -> Parsing<Expr> {
        if self.eat_punctuation("(") {
            let inner = self.parse_expr()?;
            self.expect_punctuation(")")?;
            return Ok(inner);
        }
        if self.eat_punctuation("[") {
            return self.list(at);
        }
        if self.eat_punctuation("{") {
            return self.map(at);
        }
        let dot = if self.eat_punctuation(".") { "." } else { "" };
        let Tok::Ident(name) = self.peek().clone() else {
            return self.unexpected_token();
        };
        if self.message_ahead() {
            return self.message(dot);
        }
        let name_at = self.at();
        self.next += 1;
        if RESERVED_NAMES.contains(&name.as_str()) {
            let before = self.issues.len();
            if self.eat_punctuation("(") {
                self.parse_arguments()?;
            }
            // cel-go does not check the arguments of such a call.
            self.issues.truncate(before);
            return self.add_issue(at, format!("reserved identifier: {name}"));
        }
        let full = format!("{dot}{name}");
        let open = self.at();
        if self.eat_punctuation("(") {
            let args = self.parse_arguments()?;
            return macros::expand_global(self, open, &full, args);
        }
        self.make_node(name_at, Kind::Ident(full))
    }

    fn list(&mut self, at: u32) -> Parsing<Expr> {
        let mut elements = Vec::new();
        while !self.eat_punctuation("]") {
            if elements.is_empty() && self.eat_punctuation(",") {
                self.expect_punctuation("]")?;
                break;
            }
            let optional = self.eat_punctuation("?");
            elements.push(Element {
                value: self.parse_expr()?,
                optional,
            });
            if !self.eat_punctuation(",") {
                self.expect_punctuation("]")?;
                break;
            }
        }
        self.make_node(at, Kind::List(elements))
    }

    fn map(&mut self, at: u32) -> Parsing<Expr> {
        let mut entries = Vec::new();
        while !self.eat_punctuation("}") {
            if entries.is_empty() && self.eat_punctuation(",") {
                self.expect_punctuation("}")?;
                break;
            }
            let optional = self.eat_punctuation("?");
            let key = self.parse_expr()?;
            self.expect_punctuation(":")?;
            entries.push(Entry {
                key,
                value: self.parse_expr()?,
                optional,
            });
            if !self.eat_punctuation(",") {
                self.expect_punctuation("}")?;
                break;
            }
        }
        self.make_node(at, Kind::Map(entries))
    }

    /// Whether a message literal like `a.b{` follows.
    fn message_ahead(&self) -> bool {
        let mut ahead = 1;
        loop {
            match (self.peek_at(ahead), self.peek_at(ahead + 1)) {
                (Tok::Punct("{"), _) => return true,
                (Tok::Punct("."), Tok::Ident(_)) => ahead += 2,
                _ => return false,
            }
        }
    }

    fn message(&mut self, dot: &str) -> Parsing<Expr> {
        let mut name = dot.to_owned();
        let mut at = self.at();
        while !self.eat_punctuation("{") {
            match self.peek() {
                Tok::Ident(part) => name.push_str(part),
                _ => name.push('.'),
            }
            self.next += 1;
            at = self.at();
        }
        let mut fields = Vec::new();
        while !self.eat_punctuation("}") {
            if fields.is_empty() && self.eat_punctuation(",") {
                self.expect_punctuation("}")?;
                break;
            }
            let optional = self.eat_punctuation("?");
            let (Tok::Ident(name) | Tok::Escaped(name)) = self.peek().clone() else {
                return self.unexpected_token();
            };
            self.next += 1;
            let at = self.at();
            self.expect_punctuation(":")?;
            fields.push(Field {
                at,
                name,
                value: self.parse_expr()?,
                optional,
            });
            if !self.eat_punctuation(",") {
                self.expect_punctuation("}")?;
                break;
            }
        }
        self.make_node(at, Kind::Message { name, fields })
    }
}
