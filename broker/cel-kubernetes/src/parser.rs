//! Parses a text into a syntax tree, with cel-go's grammar and its limits of depth.

mod primary;

use crate::Minor;
use crate::ast::{Expr, Kind, MAX_HEIGHT};
use crate::check::Issue;
use crate::lexer::{self, Tok, Token};
use crate::macros;
use crate::value::Val;

/// How deep each rule of the grammar may nest, and how deep the operators of the tree.
const MAX_NESTING: u16 = 250;

/// The most nodes that are created; optMap copies its target, so a short text can need many.
const MAX_NODES: u32 = 120_000;

/// A rule of cel-go's grammar. Every other rule nests at most as deep as one of these.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Expression,
    Relation,
    Sum,
}

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
    /// Whether it can use the accumulators of its loops.
    pub(crate) uses_accumulators: bool,
}

pub(crate) type Parsing<T> = Result<T, ParseFault>;

/// Parses a whole expression.
pub(crate) fn parse_expression(text: &[char], minor: Minor) -> Result<Parsed, Unparsed> {
    let tokens = lexer::read_tokens(text, minor).map_err(|e| {
        Unparsed::Refused(vec![Issue {
            at: e.at,
            message: e.message,
        }])
    })?;
    let named =
        |token: &Token| matches!(&token.kind, Tok::Ident(name) if name == macros::OLD_ACCUMULATOR);
    let uses_accumulators = minor < Minor::V1_33 && tokens.iter().any(named);
    let mut parser = Parser {
        tokens,
        next: 0,
        depths: [0; 3],
        ids: 0,
        minor,
        issues: Vec::new(),
    };
    let root = parser.parse_whole();
    let issues = parser.issues;
    match root {
        Ok(root) if issues.is_empty() => Ok(Parsed {
            root,
            uses_accumulators,
        }),
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
    /// How deep each [`Rule`] nests.
    depths: [u16; 3],
    ids: u32,
    pub(crate) minor: Minor,
    /// Errors that the grammar does not find. cel-go continues after each, so one text may have
    /// several.
    issues: Vec<Issue>,
}

impl Parser {
    fn parse_whole(&mut self) -> Parsing<Expr> {
        let root = self.parse_expr()?;
        match self.peek() {
            Tok::End => Ok(root),
            _ => self.unexpected_token(),
        }
    }

    /// Records an issue. A node replaces the refused part; as in cel-go, no macro takes that node
    /// for a name or a selection.
    pub(crate) fn add_issue(&mut self, at: u32, message: String) -> Parsing<Expr> {
        self.issues.push(Issue { at, message });
        self.make_node(at, Kind::Literal(Val::Null))
    }

    /// Counts nodes that are copied without new ids.
    pub(crate) fn count_copies(&mut self, copied: &Expr) -> Parsing<()> {
        let count = u32::try_from(copied.walk().len()).unwrap_or(MAX_NODES);
        self.ids = self.ids.saturating_add(count);
        if self.ids > MAX_NODES {
            return Err(ParseFault::Beyond("the expression is too large"));
        }
        Ok(())
    }

    /// Creates a node; an error if the tree gets too large or too high.
    pub(crate) fn make_node(&mut self, at: u32, kind: Kind) -> Parsing<Expr> {
        self.ids += 1;
        if self.ids > MAX_NODES {
            return Err(ParseFault::Beyond("the expression is too large"));
        }
        let mut made = Expr {
            id: self.ids,
            at,
            height: 1,
            nested: 0,
            kind,
        };
        let children = made.children();
        let height = children.iter().map(|c| c.height).max().unwrap_or(0);
        let nested = children.iter().map(|c| c.nested).max().unwrap_or(0);
        (made.height, made.nested) = (height + 1, nested);
        if made.height > MAX_HEIGHT {
            return Err(ParseFault::Beyond("the expression nests too deeply"));
        }
        Ok(made)
    }

    pub(crate) fn make_call(&mut self, at: u32, function: &str, args: Vec<Expr>) -> Parsing<Expr> {
        self.make_node(
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

    fn eat_punctuation(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), Tok::Punct(p) if *p == punct);
        self.next += usize::from(found);
        found
    }

    fn expect_punctuation(&mut self, punct: &str) -> Parsing<()> {
        if self.eat_punctuation(punct) {
            Ok(())
        } else {
            self.unexpected_token()
        }
    }

    fn unexpected_token<T>(&self) -> Parsing<T> {
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

    fn enter_rule(&mut self, rule: Rule) -> Parsing<()> {
        let depth = self.depths.get_mut(rule as usize);
        let nested = depth.map_or(0, |depth| {
            *depth += 1;
            *depth
        });
        if nested > MAX_NESTING {
            return Err(ParseFault::Refused {
                at: Issue::NO_PLACE,
                message: format!("expression recursion limit exceeded: {MAX_NESTING}"),
            });
        }
        Ok(())
    }

    fn leave_rule(&mut self, rule: Rule) {
        if let Some(depth) = self.depths.get_mut(rule as usize) {
            *depth -= 1;
        }
    }

    fn parse_expr(&mut self) -> Parsing<Expr> {
        self.enter_rule(Rule::Expression)?;
        let condition = self.parse_logic("||")?;
        let at = self.at();
        let made = if self.eat_punctuation("?") {
            let yes = self.parse_logic("||")?;
            self.expect_punctuation(":")?;
            let no = self.parse_expr()?;
            nest_level(self.make_call(at, "_?_:_", vec![condition, yes, no])?)?
        } else {
            condition
        };
        self.leave_rule(Rule::Expression);
        Ok(made)
    }

    /// Parses a chain of `||` or `&&`, which cel-go balances into a tree.
    fn parse_logic(&mut self, operator: &'static str) -> Parsing<Expr> {
        let mut terms = Vec::new();
        let mut places = Vec::new();
        loop {
            terms.push(if operator == "||" {
                self.parse_logic("&&")?
            } else {
                self.parse_relation(false)?
            });
            places.push(self.at());
            if !self.eat_punctuation(operator) {
                break;
            }
        }
        let function = if operator == "||" { "_||_" } else { "_&&_" };
        self.balance_terms(function, terms, &places)
    }

    fn balance_terms(
        &mut self,
        function: &str,
        mut terms: Vec<Expr>,
        places: &[u32],
    ) -> Parsing<Expr> {
        if terms.len() <= 1 {
            return terms.pop().map_or_else(|| self.unexpected_token(), Ok);
        }
        let operators = terms.len() - 1;
        let middle = operators / 2;
        let right = terms.split_off(middle + 1);
        let at = places.get(middle).copied().unwrap_or_default();
        let left = self.balance_terms(function, terms, places)?;
        let right = self.balance_terms(
            function,
            right,
            places.get(middle + 1..).unwrap_or_default(),
        )?;
        self.make_call(at, function, vec![left, right])
    }

    /// Parses comparisons; the `right` operand of one contains no further one.
    fn parse_relation(&mut self, right: bool) -> Parsing<Expr> {
        self.enter_rule(Rule::Relation)?;
        let mut left = self.parse_sum(0)?;
        while let Tok::Punct(operator) = self.peek()
            && !right
        {
            let function = match *operator {
                "<" => "_<_",
                "<=" => "_<=_",
                ">=" => "_>=_",
                ">" => "_>_",
                "==" => "_==_",
                "!=" => "_!=_",
                "in" => "@in",
                _ => break,
            };
            let at = self.at();
            self.next += 1;
            let operand = self.parse_relation(true)?;
            left = nest_level(self.make_call(at, function, vec![left, operand])?)?;
        }
        self.leave_rule(Rule::Relation);
        Ok(left)
    }

    /// Parses sums and products whose operators bind stronger than `floor`.
    fn parse_sum(&mut self, floor: u8) -> Parsing<Expr> {
        self.enter_rule(Rule::Sum)?;
        let mut left = self.parse_unary()?;
        while let Tok::Punct(operator) = self.peek() {
            let (level, function) = match *operator {
                "+" => (1, "_+_"),
                "-" => (1, "_-_"),
                "*" => (2, "_*_"),
                "/" => (2, "_/_"),
                "%" => (2, "_%_"),
                _ => break,
            };
            if level <= floor {
                break;
            }
            let at = self.at();
            self.next += 1;
            let right = self.parse_sum(level)?;
            left = nest_level(self.make_call(at, function, vec![left, right])?)?;
        }
        self.leave_rule(Rule::Sum);
        Ok(left)
    }

    fn parse_unary(&mut self) -> Parsing<Expr> {
        let at = self.at();
        let Tok::Punct(sign @ ("!" | "-")) = *self.peek() else {
            return self.parse_member();
        };
        let number_next = matches!(self.peek_at(1), Tok::Int(_) | Tok::Float(_));
        if sign == "-" && number_next {
            return self.parse_member();
        }
        let mut count = 0_u32;
        while self.eat_punctuation(sign) {
            count += 1;
        }
        let target = self.parse_member()?;
        if count.is_multiple_of(2) {
            return Ok(target);
        }
        self.make_call(at, if sign == "!" { "!_" } else { "-_" }, vec![target])
    }

    fn parse_member(&mut self) -> Parsing<Expr> {
        let mut made = self.primary()?;
        loop {
            let at = self.at();
            if self.eat_punctuation(".") {
                // A macro replaces its call by other nodes, which do not count.
                let (before, selected) = (made.nested, self.parse_selection(at, made)?);
                let nested = selected.nested.max(before + 1);
                made = nest_level(Expr {
                    nested: nested - 1,
                    ..selected
                })?;
            } else if self.eat_punctuation("[") {
                let function = if self.eat_punctuation("?") {
                    "_[?_]"
                } else {
                    "_[_]"
                };
                let index = self.parse_expr()?;
                self.expect_punctuation("]")?;
                made = nest_level(self.make_call(at, function, vec![made, index])?)?;
            } else {
                return Ok(made);
            }
        }
    }

    fn parse_selection(&mut self, at: u32, operand: Expr) -> Parsing<Expr> {
        let optional = self.eat_punctuation("?");
        let name_at = self.at();
        let (name, escaped) = match self.peek() {
            Tok::Ident(name) => (name.clone(), false),
            Tok::Escaped(name) => (name.clone(), true),
            _ => return self.unexpected_token(),
        };
        self.next += 1;
        if escaped && self.minor < Minor::V1_37 {
            self.issues.push(Issue {
                at: name_at,
                message: "unsupported syntax: '`'".to_owned(),
            });
        }
        if optional {
            let field = self.make_node(name_at, Kind::Literal(Val::from(name)))?;
            return self.make_call(at, "_?._", vec![operand, field]);
        }
        let open = self.at();
        if !escaped && self.eat_punctuation("(") {
            let args = self.parse_arguments()?;
            let nested = args.iter().map(|arg| arg.nested).max().unwrap_or(0);
            let mut made = macros::expand_receiver(self, open, &name, operand, args)?;
            made.nested = made.nested.max(nested + 1);
            return Ok(made);
        }
        self.make_node(
            at,
            Kind::Select {
                operand: Box::new(operand),
                field: name,
                test: false,
            },
        )
    }

    fn parse_arguments(&mut self) -> Parsing<Vec<Expr>> {
        let mut args = Vec::new();
        if self.eat_punctuation(")") {
            return Ok(args);
        }
        loop {
            args.push(self.parse_expr()?);
            if !self.eat_punctuation(",") {
                break;
            }
        }
        self.expect_punctuation(")")?;
        Ok(args)
    }
}

/// Counts one more level, or refuses it: cel-go does not go deeper.
fn nest_level(made: Expr) -> Parsing<Expr> {
    if made.nested >= MAX_NESTING {
        return Err(ParseFault::Refused {
            at: Issue::NO_PLACE,
            message: "max recursion depth exceeded".to_owned(),
        });
    }
    Ok(Expr {
        nested: made.nested + 1,
        ..made
    })
}
