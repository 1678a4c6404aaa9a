//! Expands macros: calls that the parser replaces by folds and presence tests.

use crate::Minor;
use crate::ast::{Element, Expr, Fold, Kind};
use crate::parser::{ParseFault, Parser, Parsing};
use crate::value::Val;

/// The name of a fold's accumulator. Releases before 1.33 name it `__result__`, which an expression
/// could access; such texts are undetermined.
pub(crate) const ACCUMULATOR: &str = "@result";

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
    let two = p.minor >= Minor::V1_32;
    let mut rest = args.clone().into_iter();
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
        ("all" | "exists" | "exists_one" | "existsOne", 3, Some(v), Some(w), Some(test), _)
            if two =>
        {
            m.quantifier(function, target, (v, Some(w)), test)
        }
        ("transformList", 3, Some(v), Some(w), Some(f), _) if two => {
            m.list(target, (v, Some(w)), None, f)
        }
        ("transformList", 4, Some(v), Some(w), Some(test), Some(f)) if two => {
            m.list(target, (v, Some(w)), Some(test), f)
        }
        ("transformMap", 3, Some(v), Some(w), Some(f), _) if two => {
            m.map(target, (v, w), None, f, true)
        }
        ("transformMap", 4, Some(v), Some(w), Some(test), Some(f)) if two => {
            m.map(target, (v, w), Some(test), f, true)
        }
        ("transformMapEntry", 3, Some(v), Some(w), Some(f), _) if two => {
            m.map(target, (v, w), None, f, false)
        }
        ("transformMapEntry", 4, Some(v), Some(w), Some(test), Some(f)) if two => {
            m.map(target, (v, w), Some(test), f, false)
        }
        ("sortBy", 2, Some(v), Some(f), ..) if m.p.minor >= Minor::V1_34 => m.sort_by(target, v, f),
        _ => m.p.node(
            at,
            Kind::Call {
                target: Some(Box::new(target)),
                function: function.to_owned(),
                args,
            },
        ),
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
        self.ident(ACCUMULATOR)
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

    fn fold(&mut self, range: Expr, vars: (Expr, Option<Expr>), parts: [Expr; 4]) -> Parsing<Expr> {
        let var = variable(&vars.0)?;
        let var2 = vars.1.as_ref().map(variable).transpose()?;
        if var2.as_ref() == Some(&var) {
            return refused(
                vars.1.map_or(self.at, |e| e.at),
                &format!("duplicate variable name: {var}"),
            );
        }
        let [init, condition, step, result] = parts;
        let fold = Fold {
            range,
            var,
            var2,
            accu: ACCUMULATOR.to_owned(),
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
        self.fold(range, vars, parts)
    }

    fn list(
        &mut self,
        range: Expr,
        vars: (Expr, Option<Expr>),
        test: Option<Expr>,
        value: Expr,
    ) -> Parsing<Expr> {
        let (accu, added) = (self.accu()?, self.single(value)?);
        let step = self.call("_+_", vec![accu, added])?;
        let step = self.when(test, step)?;
        let init = self.p.node(self.at, Kind::List(Vec::new()))?;
        let parts = [init, self.literal(Val::Bool(true))?, step, self.accu()?];
        self.fold(range, vars, parts)
    }

    fn map(
        &mut self,
        range: Expr,
        vars: (Expr, Expr),
        test: Option<Expr>,
        value: Expr,
        keyed: bool,
    ) -> Parsing<Expr> {
        let mut args = vec![self.accu()?];
        if keyed {
            args.push(self.ident(&variable(&vars.0)?)?);
        }
        args.push(value);
        let step = self.call("cel.@mapInsert", args)?;
        let step = self.when(test, step)?;
        let init = self.p.node(self.at, Kind::Map(Vec::new()))?;
        let parts = [init, self.literal(Val::Bool(true))?, step, self.accu()?];
        self.fold(range, (vars.0, Some(vars.1)), parts)
    }

    fn when(&mut self, test: Option<Expr>, step: Expr) -> Parsing<Expr> {
        let Some(test) = test else { return Ok(step) };
        let accu = self.accu()?;
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
            Kind::Message { name, values } => Kind::Message {
                name: name.clone(),
                values: self.copies(values)?,
            },
            Kind::Fold(f) => Kind::Fold(Box::new(Fold {
                range: self.copy(&f.range)?,
                var: f.var.clone(),
                var2: f.var2.clone(),
                accu: f.accu.clone(),
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
