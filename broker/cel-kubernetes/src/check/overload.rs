//! Finds the overloads of a function that match a call.

use super::{Callee, Checker};
use crate::ast::{Expr, Kind};
use crate::decls::Function;
use crate::types::{Param, Type};
use crate::unify::Mapping;
use crate::value::Val;

impl Checker<'_> {
    pub(super) fn check_call(
        &mut self,
        e: &Expr,
        target: Option<&Expr>,
        name: &str,
        args: &[Expr],
    ) -> Type {
        if let ("_?._", [operand, field]) = (name, args) {
            return self.optional_selection(e, operand, field);
        }
        for arg in args {
            self.check_expr(arg);
        }
        let Some(target) = target else {
            let plain = name.trim_start_matches('.');
            return match self.functions.get(plain) {
                Some(f) => self.resolve_overload(e, f, None, args, false),
                None => self.refuse_undeclared(e, name),
            };
        };
        if let Some(prefix) = target.qualified_name() {
            let full = format!("{}.{name}", prefix.trim_start_matches('.'));
            if let Some(f) = self.functions.get(&full) {
                return self.resolve_overload(e, f, None, args, true);
            }
        }
        self.check_expr(target);
        match self.functions.get(name) {
            Some(f) => self.resolve_overload(e, f, Some(target), args, false),
            None => self.refuse_undeclared(e, name),
        }
    }

    fn optional_selection(&mut self, e: &Expr, operand: &Expr, field: &Expr) -> Type {
        let Kind::Literal(Val::Str(name)) = &field.kind else {
            return Type::Error;
        };
        let t = self.check_field(e, operand, name, true);
        self.checked.types.insert(field.id, Type::String);
        let overloads = vec!["select_optional_field"];
        self.checked.calls.insert(
            e.id,
            Callee {
                function: "_?._".to_owned(),
                namespaced: false,
                overloads,
            },
        );
        self.mapping.substitute(&t, false)
    }

    fn resolve_overload(
        &mut self,
        e: &Expr,
        f: &Function,
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) -> Type {
        let mut types: Vec<Type> = target
            .into_iter()
            .chain(args)
            .map(|a| self.type_of(a))
            .collect();
        let (mut result, mut overloads) = (None, Vec::new());
        if matches!(f.name, "_&&_" | "_||_") {
            return self.resolve_logic(e, f, args, &types);
        }
        for overload in f.overloads.iter().filter(|o| o.member == target.is_some()) {
            let mut instance = Mapping::default();
            for letter in &overload.params {
                let fresh = self.fresh_type();
                instance.add(Param::Declared(*letter), fresh);
            }
            let wanted: Vec<Type> = overload
                .args
                .iter()
                .map(|t| instance.substitute(t, false))
                .collect();
            if !self.mapping.all_assignable(&types, &wanted) {
                continue;
            }
            overloads.push(overload.id);
            let own = self
                .mapping
                .substitute(&instance.substitute(&overload.result, false), false);
            result = match result {
                None => Some(own),
                Some(Type::Dyn) => Some(Type::Dyn),
                Some(Type::Any) => Some(Type::Any),
                Some(before) if before == own => Some(before),
                Some(_) => Some(Type::Dyn),
            };
        }
        let Some(result) = result else {
            for t in &mut types {
                *t = self.mapping.substitute(t, true);
            }
            self.add_issue(e, no_overload(f.name, &types, target.is_some()));
            return Type::Error;
        };
        self.checked.calls.insert(
            e.id,
            Callee {
                function: f.name.to_owned(),
                namespaced,
                overloads,
            },
        );
        result
    }

    fn resolve_logic(&mut self, e: &Expr, f: &Function, args: &[Expr], types: &[Type]) -> Type {
        let mut fine = true;
        for (arg, t) in args.iter().zip(types) {
            if !self.mapping.assignable(t, &Type::Bool) {
                self.add_issue(arg, format!("expected type 'bool' but found '{t}'"));
                fine = false;
            }
        }
        let overloads = f.overloads.iter().map(|o| o.id).collect();
        self.checked.calls.insert(
            e.id,
            Callee {
                function: f.name.to_owned(),
                namespaced: false,
                overloads,
            },
        );
        if fine { Type::Bool } else { Type::Error }
    }
}

fn no_overload(function: &str, types: &[Type], member: bool) -> String {
    let mut shown: Vec<String> = types.iter().map(ToString::to_string).collect();
    let receiver = if member && !shown.is_empty() {
        format!("{}.", shown.remove(0))
    } else {
        String::new()
    };
    format!(
        "found no matching overload for '{function}' applied to '{receiver}({})'",
        shown.join(", ")
    )
}
