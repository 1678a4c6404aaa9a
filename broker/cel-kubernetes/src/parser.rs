//! Parses a text into a syntax tree, with cel-go's grammar. cel-go's own depth limits are never
//! reached, because [`MAX_NESTING`] and [`MAX_HEIGHT`](super::ast::MAX_HEIGHT) are well below them.

mod primary;

use crate::Minor;
use crate::ast::{Expr, Kind, MAX_HEIGHT};
use crate::check::Issue;
use crate::lexer::{self, Tok, Token};
use crate::macros;
use crate::value::Val;

/// The deepest nesting of brackets and branches that is parsed.
const MAX_NESTING: u32 = 40;

/// The most nodes that are created; optMap copies its target, so a short text can need many.
const MAX_NODES: u32 = 20_000;

/// Why a text is not parsed.
#[derive(Debug)]
pub(crate) enum Unparsed {
    /// The text is refused, with every error.
    Refused(Vec<Issue>),
    /// The text is beyond what can be decided here.
    Beyond(&'static str),
}

/// Why a part of the text cannot be parsed.
#[derive(Debug)]
pub(crate) enum ParseFault {
    /// The part is refused; `at` is its offset in code points.
    Refused { at: u32, message: String },
    /// The text is beyond what can be decided here.
    Beyond(&'static str),
}

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
}

pub(crate) type Parsing<T> = Result<T, ParseFault>;

/// Parses a whole expression.
pub(crate) fn parse(text: &[char], minor: Minor) -> Result<Parsed, Unparsed> {
    let tokens = lexer::tokens(text, minor).map_err(|e| {
        Unparsed::Refused(vec![Issue {
            at: e.at,
            message: e.message,
        }])
    })?;
    let mut parser = Parser {
        tokens,
        next: 0,
        depth: 0,
        ids: 0,
        minor,
        issues: Vec::new(),
    };
    let root = parser.whole();
    let issues = parser.issues;
    match root {
        Ok(root) if issues.is_empty() => Ok(Parsed { root }),
        Ok(_) => Err(Unparsed::Refused(issues)),
        // Only this error is reported: cel-go does not examine all of a text that it cannot parse
        // as a whole.
        Err(ParseFault::Refused { at, message }) => {
            Err(Unparsed::Refused(vec![Issue { at, message }]))
        }
        Err(ParseFault::Beyond(reason)) => Err(Unparsed::Beyond(reason)),
    }
}

/// The state of one parse; macros create their nodes with it.
pub(crate) struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: u32,
    ids: u32,
    pub(crate) minor: Minor,
    /// Errors that the grammar does not find. cel-go continues after each, so one text may have
    /// several.
    issues: Vec<Issue>,
}

impl Parser {
    fn whole(&mut self) -> Parsing<Expr> {
        let root = self.expr()?;
        match self.peek() {
            Tok::End => Ok(root),
            _ => self.unexpected(),
        }
    }

    /// Records an issue. A node replaces the refused part; as in cel-go, no macro takes that node
    /// for a name or a selection.
    pub(crate) fn refuse(&mut self, at: u32, message: String) -> Parsing<Expr> {
        self.issues.push(Issue { at, message });
        self.node(at, Kind::Literal(Val::Null))
    }

    /// Creates a node; an error if the tree gets too large or too high.
    pub(crate) fn node(&mut self, at: u32, kind: Kind) -> Parsing<Expr> {
        self.ids += 1;
        if self.ids > MAX_NODES {
            return Err(ParseFault::Beyond("the expression is too large"));
        }
        let mut made = Expr {
            id: self.ids,
            at,
            height: 1,
            kind,
        };
        made.height = 1 + made.children().iter().map(|c| c.height).max().unwrap_or(0);
        if made.height > MAX_HEIGHT {
            return Err(ParseFault::Beyond("the expression nests too deeply"));
        }
        Ok(made)
    }

    pub(crate) fn call(&mut self, at: u32, function: &str, args: Vec<Expr>) -> Parsing<Expr> {
        self.node(
            at,
            Kind::Call {
                target: None,
                function: function.to_owned(),
                args,
            },
        )
    }

    fn peek(&self) -> &Tok {
        self.tokens.get(self.next).map_or(&Tok::End, |t| &t.kind)
    }

    fn peek_at(&self, ahead: usize) -> &Tok {
        self.tokens
            .get(self.next + ahead)
            .map_or(&Tok::End, |t| &t.kind)
    }

    fn at(&self) -> u32 {
        self.tokens
            .get(self.next)
            .or_else(|| self.tokens.last())
            .map_or(0, |t| t.at)
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), Tok::Punct(p) if *p == punct);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, punct: &str) -> Parsing<()> {
        if self.eat(punct) {
            Ok(())
        } else {
            self.unexpected()
        }
    }

    fn unexpected<T>(&self) -> Parsing<T> {
        let shown = match self.peek() {
            Tok::End => "<EOF>".to_owned(),
            Tok::Ident(t)
            | Tok::Int(t)
            | Tok::Uint(t)
            | Tok::Float(t)
            | Tok::Str(t)
            | Tok::Bytes(t)
            | Tok::Escaped(t) => t.clone(),
            Tok::Punct(p) => (*p).to_owned(),
        };
        Err(ParseFault::Refused {
            at: self.at(),
            message: format!("Syntax error: mismatched input '{shown}'"),
        })
    }

    fn expr(&mut self) -> Parsing<Expr> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(ParseFault::Beyond("the expression nests too deeply"));
        }
        let condition = self.logic("||")?;
        let at = self.at();
        let made = if self.eat("?") {
            let yes = self.logic("||")?;
            self.expect(":")?;
            let no = self.expr()?;
            self.call(at, "_?_:_", vec![condition, yes, no])?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(made)
    }

    /// Parses a chain of `||` or `&&`, which cel-go balances into a tree.
    fn logic(&mut self, operator: &'static str) -> Parsing<Expr> {
        let mut terms = Vec::new();
        let mut places = Vec::new();
        loop {
            terms.push(if operator == "||" {
                self.logic("&&")?
            } else {
                self.binary(0)?
            });
            places.push(self.at());
            if !self.eat(operator) {
                break;
            }
        }
        let function = if operator == "||" { "_||_" } else { "_&&_" };
        self.balance(function, terms, &places)
    }

    fn balance(&mut self, function: &str, mut terms: Vec<Expr>, places: &[u32]) -> Parsing<Expr> {
        if terms.len() <= 1 {
            return terms.pop().map_or_else(|| self.unexpected(), Ok);
        }
        let operators = terms.len() - 1;
        let middle = operators / 2;
        let right = terms.split_off(middle + 1);
        let at = places.get(middle).copied().unwrap_or_default();
        let left = self.balance(function, terms, places)?;
        let right = self.balance(
            function,
            right,
            places.get(middle + 1..).unwrap_or_default(),
        )?;
        self.call(at, function, vec![left, right])
    }

    fn binary(&mut self, floor: u8) -> Parsing<Expr> {
        let mut left = self.unary()?;
        loop {
            let Tok::Punct(operator) = self.peek() else {
                return Ok(left);
            };
            let (level, function) = match *operator {
                "<" => (1, "_<_"),
                "<=" => (1, "_<=_"),
                ">=" => (1, "_>=_"),
                ">" => (1, "_>_"),
                "==" => (1, "_==_"),
                "!=" => (1, "_!=_"),
                "in" => (1, "@in"),
                "+" => (2, "_+_"),
                "-" => (2, "_-_"),
                "*" => (3, "_*_"),
                "/" => (3, "_/_"),
                "%" => (3, "_%_"),
                _ => return Ok(left),
            };
            if level <= floor {
                return Ok(left);
            }
            let at = self.at();
            self.next += 1;
            let right = self.binary(level)?;
            left = self.call(at, function, vec![left, right])?;
        }
    }

    fn unary(&mut self) -> Parsing<Expr> {
        let at = self.at();
        let Tok::Punct(sign @ ("!" | "-")) = *self.peek() else {
            return self.member();
        };
        let number_next = matches!(self.peek_at(1), Tok::Int(_) | Tok::Float(_));
        if sign == "-" && number_next {
            return self.member();
        }
        let mut count = 0_u32;
        while self.eat(sign) {
            count += 1;
        }
        let target = self.member()?;
        if count.is_multiple_of(2) {
            return Ok(target);
        }
        self.call(at, if sign == "!" { "!_" } else { "-_" }, vec![target])
    }

    fn member(&mut self) -> Parsing<Expr> {
        let mut made = self.primary()?;
        loop {
            let at = self.at();
            if self.eat(".") {
                made = self.selection(at, made)?;
            } else if self.eat("[") {
                let function = if self.eat("?") { "_[?_]" } else { "_[_]" };
                let index = self.expr()?;
                self.expect("]")?;
                made = self.call(at, function, vec![made, index])?;
            } else {
                return Ok(made);
            }
        }
    }

    fn selection(&mut self, at: u32, operand: Expr) -> Parsing<Expr> {
        let optional = self.eat("?");
        let name_at = self.at();
        let (name, escaped) = match self.peek() {
            Tok::Ident(name) => (name.clone(), false),
            Tok::Escaped(name) => (name.clone(), true),
            _ => return self.unexpected(),
        };
        self.next += 1;
        if escaped && self.minor < Minor::V1_37 {
            self.issues.push(Issue {
                at: name_at,
                message: "unsupported syntax: '`'".to_owned(),
            });
        }
        if optional {
            let field = self.node(name_at, Kind::Literal(Val::from(name)))?;
            return self.call(at, "_?._", vec![operand, field]);
        }
        let open = self.at();
        if !escaped && self.eat("(") {
            let args = self.arguments()?;
            return macros::receiver(self, open, &name, operand, args);
        }
        self.node(
            at,
            Kind::Select {
                operand: Box::new(operand),
                field: name,
                test: false,
            },
        )
    }

    fn arguments(&mut self) -> Parsing<Vec<Expr>> {
        let mut args = Vec::new();
        if self.eat(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(args)
    }
}
