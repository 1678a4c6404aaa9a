//! Expands macros: calls that the parser replaces by folds and presence tests.

use crate::Minor;
use crate::ast::{Element, Expr, Field, Fold, Kind, Purpose};
use crate::parser::{ParseFault, Parser, Parsing};
use crate::value::Val;

/// The name of a fold's accumulator up to 1.32. An expression can use it.
pub(crate) const OLD_ACCUMULATOR: &str = "__result__";

/// The name of a fold's accumulator from 1.33 on, which no expression can use.
const HIDDEN_ACCUMULATOR: &str = "@result";

/// Returns the name of a fold's accumulator.
fn accumulator(minor: Minor) -> &'static str {
    if minor < Minor::V1_33 {
        OLD_ACCUMULATOR
    } else {
        HIDDEN_ACCUMULATOR
    }
}

/// Builds a call without a receiver, which may be a macro.
pub(crate) fn global(
    p: &mut Parser,
    at: u32,
    function: &str,
    mut args: Vec<Expr>,
) -> Parsing<Expr> {
    if function == "has" && args.len() == 1 {
        let Some(arg) = args.pop() else {
            return p.call(at, function, args);
        };
        return match arg.kind {
            Kind::Select { operand, field, .. } => p.node(
                at,
                Kind::Select {
                    operand,
                    field,
                    test: true,
                },
            ),
            _ => p.refuse(arg.at, "invalid argument to has() macro".to_owned()),
        };
    }
    p.call(at, function, args)
}

/// Builds a call on a receiver, which may be a macro. A macro reports only the first faulty
/// argument.
pub(crate) fn receiver(
    p: &mut Parser,
    at: u32,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Parsing<Expr> {
    match expanded(p, at, function, target, args) {
        Err(ParseFault::Refused { at, message }) => p.refuse(at, message),
        other => other,
    }
}

fn expanded(
    p: &mut Parser,
    at: u32,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Parsing<Expr> {
    if !is_macro(p.minor, function, args.len()) {
        return p.node(
            at,
            Kind::Call {
                target: Some(Box::new(target)),
                function: function.to_owned(),
                args,
            },
        );
    }
    let mut rest = args.into_iter();
    let mut m = Maker { p, at };
    match (
        function,
        rest.len(),
        rest.next(),
        rest.next(),
        rest.next(),
        rest.next(),
    ) {
        ("all" | "exists" | "exists_one", 2, Some(v), Some(test), ..) => {
            m.quantifier(function, target, (v, None), test)
        }
        ("map", 2, Some(v), Some(f), ..) => m.list(target, (v, None), None, f),
        ("map", 3, Some(v), Some(test), Some(f), _) => m.list(target, (v, None), Some(test), f),
        ("filter", 2, Some(v), Some(test), ..) => m.list(target, (v.clone(), None), Some(test), v),
        ("optMap", 2, Some(v), Some(f), ..) => m.optional(target, v, f, true),
        ("optFlatMap", 2, Some(v), Some(f), ..) => m.optional(target, v, f, false),
        ("all" | "exists" | "exists_one" | "existsOne", 3, Some(v), Some(w), Some(test), _) => {
            m.quantifier(function, target, (v, Some(w)), test)
        }
        ("transformList", 3, Some(v), Some(w), Some(f), _) => m.list(target, (v, Some(w)), None, f),
        ("transformList", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.list(target, (v, Some(w)), Some(test), f)
        }
        ("transformMap", 3, Some(v), Some(w), Some(f), _) => m.map(target, (v, w), None, f, true),
        ("transformMap", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.map(target, (v, w), Some(test), f, true)
        }
        ("transformMapEntry", 3, Some(v), Some(w), Some(f), _) => {
            m.map(target, (v, w), None, f, false)
        }
        ("transformMapEntry", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.map(target, (v, w), Some(test), f, false)
        }
        ("sortBy", 2, Some(v), Some(f), ..) => m.sort_by(target, v, f),
        _ => Err(ParseFault::Beyond("a macro with other arguments")),
    }
}

/// Whether a call with a receiver is a macro.
fn is_macro(minor: Minor, function: &str, args: usize) -> bool {
    let two = minor >= Minor::V1_32;
    match (function, args) {
        ("all" | "exists" | "exists_one" | "map" | "filter" | "optMap" | "optFlatMap", 2)
        | ("map", 3) => true,
        ("all" | "exists" | "exists_one" | "existsOne", 3) => two,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => two,
        ("sortBy", 2) => minor >= Minor::V1_34,
        _ => false,
    }
}

fn refused<T>(at: u32, message: &str) -> Parsing<T> {
    Err(ParseFault::Refused {
        at,
        message: message.to_owned(),
    })
}

fn variable(e: &Expr) -> Parsing<String> {
    match &e.kind {
        Kind::Ident(name) if name.starts_with('.') => {
            Err(ParseFault::Beyond("a loop variable with a leading dot"))
        }
        Kind::Ident(name) => Ok(name.clone()),
        _ => refused(e.at, "argument must be a simple name"),
    }
}

/// Creates nodes at the place of the macro's call.
struct Maker<'p> {
    p: &'p mut Parser,
    at: u32,
}

impl Maker<'_> {
    fn call(&mut self, function: &str, args: Vec<Expr>) -> Parsing<Expr> {
        self.p.call(self.at, function, args)
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Parsing<Expr> {
        self.p.node(
            self.at,
            Kind::Call {
                target: Some(Box::new(target)),
                function: function.to_owned(),
                args,
            },
        )
    }

    fn ident(&mut self, name: &str) -> Parsing<Expr> {
        self.p.node(self.at, Kind::Ident(name.to_owned()))
    }

    fn accu(&mut self) -> Parsing<Expr> {
        self.ident(accumulator(self.p.minor))
    }

    fn literal(&mut self, value: Val) -> Parsing<Expr> {
        self.p.node(self.at, Kind::Literal(value))
    }

    fn single(&mut self, value: Expr) -> Parsing<Expr> {
        self.p.node(
            self.at,
            Kind::List(vec![Element {
                value,
                optional: false,
            }]),
        )
    }

    fn fold(
        &mut self,
        purpose: Purpose,
        range: Expr,
        vars: (Expr, Option<Expr>),
        parts: [Expr; 4],
    ) -> Parsing<Expr> {
        let var = variable(&vars.0)?;
        let var2 = vars.1.as_ref().map(variable).transpose()?;
        let (at, at2) = (vars.0.at, vars.1.as_ref().map_or(0, |e| e.at));
        if var2.as_ref() == Some(&var) {
            return refused(at2, &format!("duplicate variable name: {var}"));
        }
        // 1.32 checks this only in the loops with two variables, which are new in it.
        if self.p.minor >= Minor::V1_33 || var2.is_some() {
            let named = [(at, Some(&var)), (at2, var2.as_ref())];
            for (at, name) in named {
                if name.is_some_and(|name| name == OLD_ACCUMULATOR) {
                    let message = "iteration variable overwrites accumulator variable";
                    return refused(at, message);
                }
            }
        }
        let [init, condition, step, result] = parts;
        let fold = Fold {
            range,
            var,
            var2,
            accu: accumulator(self.p.minor).to_owned(),
            purpose,
            init,
            condition,
            step,
            result,
        };
        self.p.node(self.at, Kind::Fold(Box::new(fold)))
    }

    fn quantifier(
        &mut self,
        function: &str,
        range: Expr,
        vars: (Expr, Option<Expr>),
        test: Expr,
    ) -> Parsing<Expr> {
        let accu = self.accu()?;
        let parts = match function {
            "all" => {
                let init = self.literal(Val::Bool(true))?;
                let condition = self.call("@not_strictly_false", vec![accu])?;
                let accu = self.accu()?;
                [
                    init,
                    condition,
                    self.call("_&&_", vec![accu, test])?,
                    self.accu()?,
                ]
            }
            "exists" => {
                let init = self.literal(Val::Bool(false))?;
                let not = self.call("!_", vec![accu])?;
                let condition = self.call("@not_strictly_false", vec![not])?;
                let accu = self.accu()?;
                [
                    init,
                    condition,
                    self.call("_||_", vec![accu, test])?,
                    self.accu()?,
                ]
            }
            _ => {
                let init = self.literal(Val::Int(0))?;
                let condition = self.literal(Val::Bool(true))?;
                let one = self.literal(Val::Int(1))?;
                let plus = self.call("_+_", vec![accu, one])?;
                let accu = self.accu()?;
                let step = self.call("_?_:_", vec![test, plus, accu])?;
                let (accu, one) = (self.accu()?, self.literal(Val::Int(1))?);
                [init, condition, step, self.call("_==_", vec![accu, one])?]
            }
        };
        let purpose = match function {
            "all" => Purpose::All,
            "exists" => Purpose::Exists,
            _ => Purpose::Count,
        };
        self.fold(purpose, range, vars, parts)
    }

    fn list(
        &mut self,
        range: Expr,
        vars: (Expr, Option<Expr>),
        test: Option<Expr>,
        value: Expr,
    ) -> Parsing<Expr> {
        let (accu, added) = (self.accu()?, self.single(value)?);
        let again = accu.clone();
        let step = self.call("_+_", vec![accu, added])?;
        let step = self.when(test, step, &again)?;
        let init = self.p.node(self.at, Kind::List(Vec::new()))?;
        let result = self.accu_again(&again)?;
        let parts = [init, self.literal(Val::Bool(true))?, step, result];
        self.fold(Purpose::List, range, vars, parts)
    }

    /// Another use of the accumulator. In 1.30, all uses of it in one list share one node, so a
    /// loop variable of its name gives that node a second type.
    fn accu_again(&mut self, first: &Expr) -> Parsing<Expr> {
        if self.p.minor == Minor::V1_30 {
            Ok(first.clone())
        } else {
            self.accu()
        }
    }

    fn map(
        &mut self,
        range: Expr,
        vars: (Expr, Expr),
        test: Option<Expr>,
        value: Expr,
        keyed: bool,
    ) -> Parsing<Expr> {
        let accu = self.accu()?;
        let again = accu.clone();
        let mut args = vec![accu];
        if keyed {
            args.push(self.ident(&variable(&vars.0)?)?);
        }
        args.push(value);
        let step = self.call("cel.@mapInsert", args)?;
        let step = self.when(test, step, &again)?;
        let init = self.p.node(self.at, Kind::Map(Vec::new()))?;
        let parts = [init, self.literal(Val::Bool(true))?, step, self.accu()?];
        self.fold(Purpose::Map, range, (vars.0, Some(vars.1)), parts)
    }

    /// A step that runs only if the test holds, and else keeps the accumulator.
    fn when(&mut self, test: Option<Expr>, step: Expr, accu: &Expr) -> Parsing<Expr> {
        let Some(test) = test else { return Ok(step) };
        let accu = self.accu_again(accu)?;
        self.call("_?_:_", vec![test, step, accu])
    }

    /// Binds `name` to `value` in `body`, with a fold over an empty list.
    fn bind(&mut self, name: &str, value: Expr, body: Expr) -> Parsing<Expr> {
        let range = self.p.node(self.at, Kind::List(Vec::new()))?;
        let condition = self.literal(Val::Bool(false))?;
        let step = self.ident(name)?;
        let (var, accu) = ("#unused".to_owned(), name.to_owned());
        let fold = Fold {
            range,
            var,
            var2: None,
            accu,
            purpose: Purpose::Binding,
            init: value,
            condition,
            step,
            result: body,
        };
        self.p.node(self.at, Kind::Fold(Box::new(fold)))
    }

    fn optional(&mut self, target: Expr, var: Expr, body: Expr, wrap: bool) -> Parsing<Expr> {
        let name = variable(&var)?;
        // Before 1.32 both uses share the same nodes.
        let again = if self.p.minor < Minor::V1_32 {
            self.p.count_copies(&target)?;
            target.clone()
        } else {
            self.copy(&target)?
        };
        let test = self.member("hasValue", target, Vec::new())?;
        let value = self.member("value", again, Vec::new())?;
        let mut yes = self.bind(&name, value, body)?;
        if wrap {
            yes = self.call("optional.of", vec![yes])?;
        }
        let no = self.call("optional.none", Vec::new())?;
        self.call("_?_:_", vec![test, yes, no])
    }

    fn sort_by(&mut self, target: Expr, var: Expr, key: Expr) -> Parsing<Expr> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(
            target.kind,
            Kind::Literal(_) | Kind::Map(_) | Kind::Message { .. }
        ) {
            return refused(
                target.at,
                "sortBy can only be applied to a list, identifier, comprehension, call or select \
                 expression",
            );
        }
        let (range, list) = (self.ident(INPUT)?, self.ident(INPUT)?);
        let keys = self.list(range, (var, None), None, key)?;
        let sorted = self.member("@sortByAssociatedKeys", list, vec![keys])?;
        self.bind(INPUT, target, sorted)
    }

    /// Copies a tree with new ids.
    fn copy(&mut self, e: &Expr) -> Parsing<Expr> {
        let kind = match &e.kind {
            Kind::Literal(_) | Kind::Ident(_) => e.kind.clone(),
            Kind::Select {
                operand,
                field,
                test,
            } => Kind::Select {
                operand: Box::new(self.copy(operand)?),
                field: field.clone(),
                test: *test,
            },
            Kind::Call {
                target,
                function,
                args,
            } => Kind::Call {
                target: target
                    .as_ref()
                    .map(|t| self.copy(t).map(Box::new))
                    .transpose()?,
                function: function.clone(),
                args: self.copies(args)?,
            },
            Kind::List(elements) => {
                let copied = elements.iter().map(|e| {
                    Ok(Element {
                        value: self.copy(&e.value)?,
                        optional: e.optional,
                    })
                });
                Kind::List(copied.collect::<Parsing<_>>()?)
            }
            Kind::Map(entries) => {
                let mut copied = Vec::with_capacity(entries.len());
                for e in entries {
                    let (key, value) = (self.copy(&e.key)?, self.copy(&e.value)?);
                    copied.push(super::ast::Entry {
                        key,
                        value,
                        optional: e.optional,
                    });
                }
                Kind::Map(copied)
            }
            Kind::Message { name, fields } => {
                let mut copied = Vec::with_capacity(fields.len());
                for field in fields {
                    let value = self.copy(&field.value)?;
                    copied.push(Field {
                        name: field.name.clone(),
                        value,
                        ..*field
                    });
                }
                Kind::Message {
                    name: name.clone(),
                    fields: copied,
                }
            }
            Kind::Fold(f) => Kind::Fold(Box::new(Fold {
                range: self.copy(&f.range)?,
                var: f.var.clone(),
                var2: f.var2.clone(),
                accu: f.accu.clone(),
                purpose: f.purpose,
                init: self.copy(&f.init)?,
                condition: self.copy(&f.condition)?,
                step: self.copy(&f.step)?,
                result: self.copy(&f.result)?,
            })),
        };
        self.p.node(e.at, kind)
    }

    fn copies(&mut self, args: &[Expr]) -> Parsing<Vec<Expr>> {
        args.iter().map(|a| self.copy(a)).collect()
    }
}
