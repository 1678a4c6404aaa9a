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
fn accumulator_name(minor: Minor) -> &'static str {
    if minor < Minor::V1_33 {
        OLD_ACCUMULATOR
    } else {
        HIDDEN_ACCUMULATOR
    }
}

/// Builds a call without a receiver, which may be a macro.
pub(crate) fn expand_global(
    p: &mut Parser,
    at: u32,
    function: &str,
    mut args: Vec<Expr>,
) -> Parsing<Expr> {
    if function == "has" && args.len() == 1 {
        let Some(arg) = args.pop() else {
            return p.make_call(at, function, args);
        };
        return match arg.kind {
            Kind::Select { operand, field, .. } => p.make_node(
                at,
                Kind::Select {
                    operand,
                    field,
                    test: true,
                },
            ),
            _ => p.add_issue(arg.at, "invalid argument to has() macro".to_owned()),
        };
    }
    p.make_call(at, function, args)
}

/// Builds a call on a receiver, which may be a macro. A macro reports only the first faulty
/// argument.
pub(crate) fn expand_receiver(
    p: &mut Parser,
    at: u32,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Parsing<Expr> {
    match expand_macro(p, at, function, target, args) {
        Err(ParseFault::Refused { at, message }) => p.add_issue(at, message),
        other => other,
    }
}

fn expand_macro(
    p: &mut Parser,
    at: u32,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Parsing<Expr> {
    if !is_macro(p.minor, function, args.len()) {
        return p.make_node(
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
            m.make_quantifier(function, target, (v, None), test)
        }
        ("map", 2, Some(v), Some(f), ..) => m.make_list_fold(target, (v, None), None, f),
        ("map", 3, Some(v), Some(test), Some(f), _) => {
            m.make_list_fold(target, (v, None), Some(test), f)
        }
        ("filter", 2, Some(v), Some(test), ..) => {
            m.make_list_fold(target, (v.clone(), None), Some(test), v)
        }
        ("optMap", 2, Some(v), Some(f), ..) => m.make_optional(target, v, f, true),
        ("optFlatMap", 2, Some(v), Some(f), ..) => m.make_optional(target, v, f, false),
        ("all" | "exists" | "exists_one" | "existsOne", 3, Some(v), Some(w), Some(test), _) => {
            m.make_quantifier(function, target, (v, Some(w)), test)
        }
        ("transformList", 3, Some(v), Some(w), Some(f), _) => {
            m.make_list_fold(target, (v, Some(w)), None, f)
        }
        ("transformList", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.make_list_fold(target, (v, Some(w)), Some(test), f)
        }
        ("transformMap", 3, Some(v), Some(w), Some(f), _) => {
            m.make_map_fold(target, (v, w), None, f, true)
        }
        ("transformMap", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.make_map_fold(target, (v, w), Some(test), f, true)
        }
        ("transformMapEntry", 3, Some(v), Some(w), Some(f), _) => {
            m.make_map_fold(target, (v, w), None, f, false)
        }
        ("transformMapEntry", 4, Some(v), Some(w), Some(test), Some(f)) => {
            m.make_map_fold(target, (v, w), Some(test), f, false)
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

fn refuse_macro<T>(at: u32, message: &str) -> Parsing<T> {
    Err(ParseFault::Refused {
        at,
        message: message.to_owned(),
    })
}

fn variable_name(e: &Expr) -> Parsing<String> {
    match &e.kind {
        Kind::Ident(name) if name.starts_with('.') => {
            Err(ParseFault::Beyond("a loop variable with a leading dot"))
        }
        Kind::Ident(name) => Ok(name.clone()),
        _ => refuse_macro(e.at, "argument must be a simple name"),
    }
}

/// Creates nodes at the place of the macro's call.
struct Maker<'p> {
    p: &'p mut Parser,
    at: u32,
}

impl Maker<'_> {
    fn make_call(&mut self, function: &str, args: Vec<Expr>) -> Parsing<Expr> {
        self.p.make_call(self.at, function, args)
    }

    fn make_member_call(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Parsing<Expr> {
        self.p.make_node(
            self.at,
            Kind::Call {
                target: Some(Box::new(target)),
                function: function.to_owned(),
                args,
            },
        )
    }

    fn make_ident(&mut self, name: &str) -> Parsing<Expr> {
        self.p.make_node(self.at, Kind::Ident(name.to_owned()))
    }

    fn make_accumulator(&mut self) -> Parsing<Expr> {
        self.make_ident(accumulator_name(self.p.minor))
    }

    fn make_literal(&mut self, value: Val) -> Parsing<Expr> {
        self.p.make_node(self.at, Kind::Literal(value))
    }

    fn make_single_list(&mut self, value: Expr) -> Parsing<Expr> {
        self.p.make_node(
            self.at,
            Kind::List(vec![Element {
                value,
                optional: false,
            }]),
        )
    }

    fn make_fold(
        &mut self,
        purpose: Purpose,
        range: Expr,
        vars: (Expr, Option<Expr>),
        parts: [Expr; 4],
    ) -> Parsing<Expr> {
        let var = variable_name(&vars.0)?;
        let var2 = vars.1.as_ref().map(variable_name).transpose()?;
        let (at, at2) = (vars.0.at, vars.1.as_ref().map_or(0, |e| e.at));
        if var2.as_ref() == Some(&var) {
            return refuse_macro(at2, &format!("duplicate variable name: {var}"));
        }
        // 1.32 checks this only in the loops with two variables, which are new in it.
        if self.p.minor >= Minor::V1_33 || var2.is_some() {
            let named = [(at, Some(&var)), (at2, var2.as_ref())];
            for (at, name) in named {
                if name.is_some_and(|name| name == OLD_ACCUMULATOR) {
                    let message = "iteration variable overwrites accumulator variable";
                    return refuse_macro(at, message);
                }
            }
        }
        let [init, condition, step, result] = parts;
        let fold = Fold {
            range,
            var,
            var2,
            accu: accumulator_name(self.p.minor).to_owned(),
            purpose,
            init,
            condition,
            step,
            result,
        };
        self.p.make_node(self.at, Kind::Fold(Box::new(fold)))
    }

    fn make_quantifier(
        &mut self,
        function: &str,
        range: Expr,
        vars: (Expr, Option<Expr>),
        test: Expr,
    ) -> Parsing<Expr> {
        let accu = self.make_accumulator()?;
        let parts = match function {
            "all" => {
                let init = self.make_literal(Val::Bool(true))?;
                let condition = self.make_call("@not_strictly_false", vec![accu])?;
                let accu = self.make_accumulator()?;
                [
                    init,
                    condition,
                    self.make_call("_&&_", vec![accu, test])?,
                    self.make_accumulator()?,
                ]
            }
            "exists" => {
                let init = self.make_literal(Val::Bool(false))?;
                let not = self.make_call("!_", vec![accu])?;
                let condition = self.make_call("@not_strictly_false", vec![not])?;
                let accu = self.make_accumulator()?;
                [
                    init,
                    condition,
                    self.make_call("_||_", vec![accu, test])?,
                    self.make_accumulator()?,
                ]
            }
            _ => {
                let init = self.make_literal(Val::Int(0))?;
                let condition = self.make_literal(Val::Bool(true))?;
                let one = self.make_literal(Val::Int(1))?;
                let plus = self.make_call("_+_", vec![accu, one])?;
                let accu = self.make_accumulator()?;
                let step = self.make_call("_?_:_", vec![test, plus, accu])?;
                let (accu, one) = (self.make_accumulator()?, self.make_literal(Val::Int(1))?);
                [
                    init,
                    condition,
                    step,
                    self.make_call("_==_", vec![accu, one])?,
                ]
            }
        };
        let purpose = match function {
            "all" => Purpose::All,
            "exists" => Purpose::Exists,
            _ => Purpose::Count,
        };
        self.make_fold(purpose, range, vars, parts)
    }

    fn make_list_fold(
        &mut self,
        range: Expr,
        vars: (Expr, Option<Expr>),
        test: Option<Expr>,
        value: Expr,
    ) -> Parsing<Expr> {
        let (accu, added) = (self.make_accumulator()?, self.make_single_list(value)?);
        let again = accu.clone();
        let step = self.make_call("_+_", vec![accu, added])?;
        let step = self.make_conditional_step(test, step, &again)?;
        let init = self.p.make_node(self.at, Kind::List(Vec::new()))?;
        let result = self.accu_again(&again)?;
        let parts = [init, self.make_literal(Val::Bool(true))?, step, result];
        self.make_fold(Purpose::List, range, vars, parts)
    }

    /// Another use of the accumulator. In 1.30, all uses of it in one list share one node, so a
    /// loop variable of its name gives that node a second type.
    fn accu_again(&mut self, first: &Expr) -> Parsing<Expr> {
        if self.p.minor == Minor::V1_30 {
            Ok(first.clone())
        } else {
            self.make_accumulator()
        }
    }

    fn make_map_fold(
        &mut self,
        range: Expr,
        vars: (Expr, Expr),
        test: Option<Expr>,
        value: Expr,
        keyed: bool,
    ) -> Parsing<Expr> {
        let accu = self.make_accumulator()?;
        let again = accu.clone();
        let mut args = vec![accu];
        if keyed {
            args.push(self.make_ident(&variable_name(&vars.0)?)?);
        }
        args.push(value);
        let step = self.make_call("cel.@mapInsert", args)?;
        let step = self.make_conditional_step(test, step, &again)?;
        let init = self.p.make_node(self.at, Kind::Map(Vec::new()))?;
        let parts = [
            init,
            self.make_literal(Val::Bool(true))?,
            step,
            self.make_accumulator()?,
        ];
        self.make_fold(Purpose::Map, range, (vars.0, Some(vars.1)), parts)
    }

    /// A step that runs only if the test holds, and else keeps the accumulator.
    fn make_conditional_step(
        &mut self,
        test: Option<Expr>,
        step: Expr,
        accu: &Expr,
    ) -> Parsing<Expr> {
        let Some(test) = test else { return Ok(step) };
        let accu = self.accu_again(accu)?;
        self.make_call("_?_:_", vec![test, step, accu])
    }

    /// Binds `name` to `value` in `body`, with a fold over an empty list.
    fn make_binding(&mut self, name: &str, value: Expr, body: Expr) -> Parsing<Expr> {
        let range = self.p.make_node(self.at, Kind::List(Vec::new()))?;
        let condition = self.make_literal(Val::Bool(false))?;
        let step = self.make_ident(name)?;
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
        self.p.make_node(self.at, Kind::Fold(Box::new(fold)))
    }

    fn make_optional(&mut self, target: Expr, var: Expr, body: Expr, wrap: bool) -> Parsing<Expr> {
        let name = variable_name(&var)?;
        // Before 1.32 both uses share the same nodes.
        let again = if self.p.minor < Minor::V1_32 {
            self.p.count_copies(&target)?;
            target.clone()
        } else {
            self.copy_tree(&target)?
        };
        let test = self.make_member_call("hasValue", target, Vec::new())?;
        let value = self.make_member_call("value", again, Vec::new())?;
        let mut yes = self.make_binding(&name, value, body)?;
        if wrap {
            yes = self.make_call("optional.of", vec![yes])?;
        }
        let no = self.make_call("optional.none", Vec::new())?;
        self.make_call("_?_:_", vec![test, yes, no])
    }

    fn sort_by(&mut self, target: Expr, var: Expr, key: Expr) -> Parsing<Expr> {
        const SORT_INPUT: &str = "@__sortBy_input__";
        if matches!(
            target.kind,
            Kind::Literal(_) | Kind::Map(_) | Kind::Message { .. }
        ) {
            return refuse_macro(
                target.at,
                "sortBy can only be applied to a list, identifier, comprehension, call or select \
                 expression",
            );
        }
        let (range, list) = (self.make_ident(SORT_INPUT)?, self.make_ident(SORT_INPUT)?);
        let keys = self.make_list_fold(range, (var, None), None, key)?;
        let sorted = self.make_member_call("@sortByAssociatedKeys", list, vec![keys])?;
        self.make_binding(SORT_INPUT, target, sorted)
    }

    /// Copies a tree with new ids.
    fn copy_tree(&mut self, e: &Expr) -> Parsing<Expr> {
        let kind = match &e.kind {
            Kind::Literal(_) | Kind::Ident(_) => e.kind.clone(),
            Kind::Select {
                operand,
                field,
                test,
            } => Kind::Select {
                operand: Box::new(self.copy_tree(operand)?),
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
                    .map(|t| self.copy_tree(t).map(Box::new))
                    .transpose()?,
                function: function.clone(),
                args: self.copy_trees(args)?,
            },
            Kind::List(elements) => {
                let copied = elements.iter().map(|e| {
                    Ok(Element {
                        value: self.copy_tree(&e.value)?,
                        optional: e.optional,
                    })
                });
                Kind::List(copied.collect::<Parsing<_>>()?)
            }
            Kind::Map(entries) => {
                let mut copied = Vec::with_capacity(entries.len());
                for e in entries {
                    let (key, value) = (self.copy_tree(&e.key)?, self.copy_tree(&e.value)?);
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
                    let value = self.copy_tree(&field.value)?;
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
                range: self.copy_tree(&f.range)?,
                var: f.var.clone(),
                var2: f.var2.clone(),
                accu: f.accu.clone(),
                purpose: f.purpose,
                init: self.copy_tree(&f.init)?,
                condition: self.copy_tree(&f.condition)?,
                step: self.copy_tree(&f.step)?,
                result: self.copy_tree(&f.result)?,
            })),
        };
        self.p.make_node(e.at, kind)
    }

    fn copy_trees(&mut self, args: &[Expr]) -> Parsing<Vec<Expr>> {
        args.iter().map(|a| self.copy_tree(a)).collect()
    }
}
