//! Parses the start of an expression: literals, names, brackets.

use super::{ParseFault, Parser, Parsing};
use crate::ast::{Element, Entry, Expr, Field, Kind};
use crate::escape::RESERVED;
use crate::lexer::Tok;
use crate::value::Val;
use crate::{literal, macros};

impl Parser {
    pub(super) fn primary(&mut self) -> Parsing<Expr> {
        let at = self.at();
        let negative = matches!(self.peek_at(1), Tok::Int(_) | Tok::Float(_)) && self.eat("-");
        let token = self.peek().clone();
        let value = match token {
            Tok::Int(digits) => literal::int(&digits, negative),
            Tok::Float(digits) => literal::float(&digits, negative),
            Tok::Uint(digits) => literal::uint(&digits),
            Tok::Str(text) => literal::string(&text, self.minor),
            Tok::Bytes(text) => literal::bytes(&text),
            Tok::Punct("true") => Ok(Val::Bool(true)),
            Tok::Punct("false") => Ok(Val::Bool(false)),
            Tok::Punct("null") => Ok(Val::Null),
            _ => return self.compound(at),
        };
        self.next += 1;
        match value {
            Ok(value) => self.node(at, Kind::Literal(value)),
            Err(literal::BROKEN_TEXT) => Err(ParseFault::Beyond(literal::BROKEN_TEXT)),
            Err(message) => self.refuse(at, message.to_owned()),
        }
    }

    fn compound(&mut self, at: u32) -> Parsing<Expr> {
        if self.eat("(") {
            let inner = self.expr()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.eat("[") {
            return self.list(at);
        }
        if self.eat("{") {
            return self.map(at);
        }
        let dot = if self.eat(".") { "." } else { "" };
        let Tok::Ident(name) = self.peek().clone() else {
            return self.unexpected();
        };
        if self.message_ahead() {
            return self.message(dot);
        }
        let name_at = self.at();
        self.next += 1;
        if RESERVED.contains(&name.as_str()) {
            let before = self.issues.len();
            if self.eat("(") {
                self.arguments()?;
            }
            // cel-go does not check the arguments of such a call.
            self.issues.truncate(before);
            return self.refuse(at, format!("reserved identifier: {name}"));
        }
        let full = format!("{dot}{name}");
        let open = self.at();
        if self.eat("(") {
            let args = self.arguments()?;
            return macros::global(self, open, &full, args);
        }
        self.node(name_at, Kind::Ident(full))
    }

    fn list(&mut self, at: u32) -> Parsing<Expr> {
        let mut elements = Vec::new();
        while !self.eat("]") {
            if elements.is_empty() && self.eat(",") {
                self.expect("]")?;
                break;
            }
            let optional = self.eat("?");
            elements.push(Element {
                value: self.expr()?,
                optional,
            });
            if !self.eat(",") {
                self.expect("]")?;
                break;
            }
        }
        self.node(at, Kind::List(elements))
    }

    fn map(&mut self, at: u32) -> Parsing<Expr> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            if entries.is_empty() && self.eat(",") {
                self.expect("}")?;
                break;
            }
            let optional = self.eat("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry {
                key,
                value: self.expr()?,
                optional,
            });
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        self.node(at, Kind::Map(entries))
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
        while !self.eat("{") {
            match self.peek() {
                Tok::Ident(part) => name.push_str(part),
                _ => name.push('.'),
            }
            self.next += 1;
            at = self.at();
        }
        let mut fields = Vec::new();
        while !self.eat("}") {
            if fields.is_empty() && self.eat(",") {
                self.expect("}")?;
                break;
            }
            let optional = self.eat("?");
            let (Tok::Ident(name) | Tok::Escaped(name)) = self.peek().clone() else {
                return self.unexpected();
            };
            self.next += 1;
            let at = self.at();
            self.expect(":")?;
            fields.push(Field {
                at,
                name,
                value: self.expr()?,
                optional,
            });
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        self.node(at, Kind::Message { name, fields })
    }
}
