//! Resolves names and selections.

use std::sync::Arc;

use super::{Checker, Name};
use crate::Minor;
use crate::ast::Expr;
use crate::decls::type_name;
use crate::types::Type;

/// Returns the type of a qualified name.
fn qualified_type(name: &str) -> Option<(Name, Type)> {
    Some(match name {
        "google.protobuf.Timestamp" => (Name::Type("google.protobuf.Timestamp"), Type::Timestamp),
        "google.protobuf.Duration" => (Name::Type("google.protobuf.Duration"), Type::Duration),
        "google.protobuf.Any" => (Name::Undefined("google.protobuf.Any"), Type::Any),
        "net.IP" => (Name::Type("net.IP"), Type::Opaque("net.IP")),
        "net.CIDR" => (Name::Type("net.CIDR"), Type::Opaque("net.CIDR")),
        _ => return None,
    })
}

impl Checker<'_> {
    pub(super) fn ident(&mut self, e: &Expr, written: &str) -> Type {
        let dotted = written.starts_with('.');
        let name = written.trim_start_matches('.');
        if dotted
            && self.minor < Minor::V1_37
            && self.local(name).is_some()
            && self.global(name).is_some()
        {
            self.beyond = Some(format!("the name {written:?} is also a loop variable"));
        }
        let mut outermost = false;
        let mut found = self.local(name).cloned();
        if dotted && self.minor >= Minor::V1_37 {
            outermost = found.is_some();
            found = None;
        }
        if let Some(t) = found.or_else(|| self.global(name).cloned()) {
            self.found.names.insert(
                e.id,
                Name::Variable {
                    name: name.to_owned(),
                    outermost,
                },
            );
            return t;
        }
        if self.minor == Minor::V1_30 && matches!(name, "optional_type" | "optional") {
            self.beyond = Some("the name of the optional type in 1.30".to_owned());
        }
        // Up to 1.31 the bare name has the type itself, so it is planned as a variable that no run
        // defines. From 1.32 on it has the type of that type.
        let bare = |name: &'static str, t: Type| match self.minor {
            Minor::V1_30 | Minor::V1_31 => (
                Name::Variable {
                    name: name.to_owned(),
                    outermost: false,
                },
                t,
            ),
            _ => (Name::Undefined(name), Type::Of(Some(Arc::new(t)))),
        };
        let (meaning, t) = match (name, type_name(name, self.minor)) {
            (_, Some((runtime, t))) => (Name::Type(runtime), t),
            ("timestamp", None) => bare("timestamp", Type::Timestamp),
            ("duration", None) => bare("duration", Type::Duration),
            _ => return self.undeclared(e, written),
        };
        self.found.names.insert(e.id, meaning);
        t
    }

    pub(super) fn select(&mut self, e: &Expr, operand: &Expr, field: &str, test: bool) -> Type {
        if let Some(name) = e.qualified_name().filter(|_| !test) {
            let root = name
                .trim_start_matches('.')
                .split('.')
                .next()
                .unwrap_or_default()
                .to_owned();
            if let Some((meaning, of)) =
                qualified_type(&name).filter(|_| self.local(&root).is_none())
            {
                self.found.names.insert(e.id, meaning);
                return Type::Of(Some(Arc::new(of)));
            }
            if matches!(root.as_str(), "google" | "kubernetes" | "net") {
                self.beyond = Some(format!("{name:?} may be the name of a type"));
            }
        }
        let t = self.field(e, operand, field, false);
        if test {
            Type::Bool
        } else {
            self.mapping.substitute(&t, false)
        }
    }

    pub(super) fn field(&mut self, e: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.mapping.substitute(&self.type_of(operand), false);
        let (target, was_optional) = operand_type.unwrapped();
        let t = match target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object("kubernetes.UserInfo") => match field {
                "username" | "uid" => Type::String,
                "groups" => Type::list(Type::String),
                "extra" => Type::map(Type::String, Type::list(Type::String)),
                _ => {
                    self.refuse(e, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Object(name) => {
                self.refuse(e, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    self.refuse(
                        e,
                        format!("type '{target}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(t)
        } else {
            t
        }
    }

    pub(super) fn message(&mut self, e: &Expr, name: &str) -> Type {
        let plain = name.trim_start_matches('.');
        if type_name(plain, self.minor).is_some()
            || ["google.", "kubernetes.", "net."]
                .iter()
                .any(|p| plain.starts_with(p))
        {
            self.beyond = Some(format!("a message {name:?} is made"));
        }
        self.undeclared(e, name)
    }
}
