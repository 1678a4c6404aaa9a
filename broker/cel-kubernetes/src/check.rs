//! The type checker: finds the meaning and type of an expression before it runs, or refuses it.

mod name;
mod overload;

use std::collections::HashMap;

use crate::Minor;
use crate::ast::{Expr, Fold, Kind};
use crate::decls::Functions;
use crate::types::{Param, Type};
use crate::unify::{Mapping, most_general};

/// The checker's results for every node, by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checked {
    pub(crate) types: HashMap<u32, Type>,
    pub(crate) calls: HashMap<u32, Callee>,
    pub(crate) names: HashMap<u32, Name>,
}

/// The function that a call refers to: its full name, whether its receiver was only a part of that
/// name, and the matching overloads.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    pub(crate) function: String,
    pub(crate) namespaced: bool,
    pub(crate) overloads: Vec<&'static str>,
}

/// The meaning of an identifier.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    /// A type, by its runtime name.
    Type(&'static str),
    /// A type that the checker knows but the planner does not; planning the program fails.
    Undefined(String),
    /// A constant of an enumeration.
    Number(i64),
    /// A variable; `outermost` skips loop variables of the same name.
    Variable { name: String, outermost: bool },
}

/// An error in the expression, with its place.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) at: u32,
    pub(crate) message: String,
}

impl Issue {
    /// The place of an issue that has none.
    pub(crate) const NO_PLACE: u32 = u32::MAX;
}

/// The result of checking.
#[derive(Debug)]
pub(crate) enum Outcome {
    Fine(Checked),
    Refused(Vec<Issue>),
    /// The meaning of a name cannot be decided here.
    Beyond(String),
}

/// Why an expression is undetermined whose types repeat their parts very often.
const TOO_LARGE_TYPES: &str = "the types of the expression are too large";

/// Checks a tree against the functions of a release and one variable.
pub(crate) fn check(
    root: &Expr,
    functions: &Functions,
    variable: (&'static str, Type),
    minor: Minor,
) -> Outcome {
    let globals = vec![(variable.0.to_owned(), variable.1)];
    let mut checker = Checker {
        functions,
        minor,
        scopes: vec![globals],
        checked: Checked::default(),
        issues: Vec::new(),
        beyond: None,
        mapping: Mapping::default(),
        fresh: 0,
    };
    checker.check_expr(root);
    if checker.mapping.is_exhausted() {
        return Outcome::Beyond(TOO_LARGE_TYPES.to_owned());
    }
    if let Some(reason) = checker.beyond {
        return Outcome::Beyond(reason);
    }
    if !checker.issues.is_empty() {
        return Outcome::Refused(checker.issues);
    }
    let Checker {
        checked: mut found,
        mapping,
        ..
    } = checker;
    for t in found.types.values_mut() {
        *t = mapping.substitute(t, true);
    }
    if mapping.is_exhausted() {
        return Outcome::Beyond(TOO_LARGE_TYPES.to_owned());
    }
    Outcome::Fine(found)
}

struct Checker<'f> {
    functions: &'f Functions,
    minor: Minor,
    scopes: Vec<Vec<(String, Type)>>,
    checked: Checked,
    issues: Vec<Issue>,
    beyond: Option<String>,
    mapping: Mapping,
    fresh: u32,
}

impl Checker<'_> {
    fn add_issue(&mut self, e: &Expr, message: String) {
        self.issues.push(Issue { at: e.at, message });
    }

    fn refuse_undeclared(&mut self, e: &Expr, name: &str) -> Type {
        self.add_issue(
            e,
            format!("undeclared reference to '{name}' (in container '')"),
        );
        Type::Error
    }

    fn type_of(&self, e: &Expr) -> Type {
        self.checked
            .types
            .get(&e.id)
            .cloned()
            .unwrap_or(Type::Error)
    }

    fn fresh_type(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(Param::Fresh(self.fresh - 1))
    }

    fn check_expr(&mut self, e: &Expr) {
        let t = match &e.kind {
            Kind::Literal(value) => value.static_type(),
            Kind::Ident(name) => self.check_ident(e, name),
            Kind::Select {
                operand,
                field,
                test,
            } => self.check_select(e, operand, field, *test),
            Kind::Call {
                target,
                function,
                args,
            } => self.check_call(e, target.as_deref(), function, args),
            Kind::List(elements) => {
                let mut joined = None;
                for element in elements {
                    self.check_expr(&element.value);
                    let t = self.element_type(&element.value, element.optional);
                    joined = Some(self.join_types(joined, t));
                }
                Type::list(joined.unwrap_or_else(|| self.fresh_type()))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    self.check_expr(&entry.key);
                    let key = self.type_of(&entry.key);
                    keys = Some(self.join_types(keys, key));
                    self.check_expr(&entry.value);
                    let t = self.element_type(&entry.value, entry.optional);
                    values = Some(self.join_types(values, t));
                }
                let key = keys.unwrap_or_else(|| self.fresh_type());
                Type::map(key, values.unwrap_or_else(|| self.fresh_type()))
            }
            Kind::Message { name, fields } => self.check_message(e, name, fields),
            Kind::Fold(fold) => self.check_fold(fold),
        };
        // Only nodes with two parents are checked twice. The first type stays, so that the types of
        // the parents remain valid.
        match self.checked.types.get(&e.id).filter(|before| **before != t) {
            Some(before) => {
                let message = format!(
                    "incompatible type already exists for expression: old:{before}, new:{t}"
                );
                self.add_issue(e, message);
            }
            None => drop(self.checked.types.insert(e.id, t)),
        }
    }

    fn element_type(&mut self, value: &Expr, optional: bool) -> Type {
        let t = self.type_of(value);
        if !optional {
            return t;
        }
        let (inner, was) = t.unwrapped();
        if !was && !inner.is_dyn() {
            self.add_issue(
                value,
                format!(
                    "expected type '{}' but found '{t}'",
                    Type::optional(t.clone())
                ),
            );
        }
        inner.clone()
    }

    /// Joins the types of two elements. Mixed ones are left to the validation of literals.
    fn join_types(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        if self.mapping.assignable(&previous, &current) {
            most_general(&previous, &current).clone()
        } else {
            Type::Dyn
        }
    }

    fn local_type(&self, name: &str) -> Option<&Type> {
        self.scopes
            .iter()
            .skip(1)
            .rev()
            .flatten()
            .find(|(n, _)| n == name)
            .map(|(_, t)| t)
    }

    fn global_type(&self, name: &str) -> Option<&Type> {
        self.scopes
            .first()
            .into_iter()
            .flatten()
            .find(|(n, _)| n == name)
            .map(|(_, t)| t)
    }

    fn check_fold(&mut self, fold: &Fold) -> Type {
        self.check_expr(&fold.range);
        self.check_expr(&fold.init);
        let range = self.mapping.substitute(&self.type_of(&fold.range), false);
        let accu = self.type_of(&fold.init);
        self.scopes.push(vec![(fold.accu.clone(), accu.clone())]);
        let (first, second) = match &range {
            Type::List(of) if fold.var2.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                if fold.var2.is_some() && self.minor == Minor::V1_32 {
                    self.beyond = Some(
                        "a loop with two variables over dyn, whose second has no type in 1.32"
                            .to_owned(),
                    );
                }
                self.mapping.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                self.add_issue(
                    &fold.range,
                    format!(
                        "expression of type '{range}' cannot be range of a comprehension (must \
                        be list, map, or dynamic)"
                    ),
                );
                // 1.32 finds more issues where the second variable is used; their number cannot be
                // decided here.
                let uses = |name: &String| {
                    fold.step
                        .walk()
                        .iter()
                        .any(|e| matches!(&e.kind, Kind::Ident(used) if used == name))
                };
                if self.minor == Minor::V1_32 && fold.var2.as_ref().is_some_and(uses) {
                    self.beyond = Some(
                        "a loop with two variables over what has no elements, whose \
                        second has no type in 1.32"
                            .to_owned(),
                    );
                }
                (Type::Error, Type::Error)
            }
        };
        let mut scope = vec![(fold.var.clone(), first)];
        scope.extend(fold.var2.clone().map(|v| (v, second)));
        self.scopes.push(scope);
        self.check_expr(&fold.condition);
        self.expect_type(&fold.condition, &Type::Bool);
        self.check_expr(&fold.step);
        self.expect_type(&fold.step, &accu);
        self.scopes.pop();
        self.check_expr(&fold.result);
        self.scopes.pop();
        self.mapping.substitute(&self.type_of(&fold.result), false)
    }

    fn expect_type(&mut self, e: &Expr, t: &Type) {
        let found = self.type_of(e);
        if !self.mapping.assignable(t, &found) {
            self.add_issue(e, format!("expected type '{t}' but found '{found}'"));
        }
    }
}
