//! Resolves names and selections.

use std::sync::Arc;

use super::{Checker, Issue, Name};
use crate::Minor;
use crate::ast::{Expr, Field};
use crate::decls::type_name;
use crate::library::Message;
use crate::types::Type;

/// The types of Kubernetes, which no message literal can make. How each is refused depends on the
/// minor version.
const KUBERNETES_TYPES: [&str; 5] = [
    "kubernetes.NamedFormat",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    USER_TYPE,
];

const USER_TYPE: &str = "kubernetes.UserInfo";

/// Returns the type of a qualified name.
fn qualified_type(name: &str) -> Option<(Name, Type)> {
    Some(match name {
        "google.protobuf.Timestamp" => (Name::Type("google.protobuf.Timestamp"), Type::Timestamp),
        "google.protobuf.Duration" => (Name::Type("google.protobuf.Duration"), Type::Duration),
        "google.protobuf.Empty" => {
            let name = "google.protobuf.Empty";
            (Name::Type(name), Type::Object(name))
        }
        "google.protobuf.Any" => (Name::Undefined("google.protobuf.Any".to_owned()), Type::Any),
        "net.IP" => (Name::Type("net.IP"), Type::Opaque("net.IP")),
        "net.CIDR" => (Name::Type("net.CIDR"), Type::Opaque("net.CIDR")),
        _ => return None,
    })
}

impl Checker<'_> {
    pub(super) fn check_ident(&mut self, e: &Expr, written: &str) -> Type {
        let dotted = written.starts_with('.');
        let name = written.trim_start_matches('.');
        if dotted
            && self.minor < Minor::V1_37
            && self.local_type(name).is_some()
            && self.global_type(name).is_some()
        {
            self.beyond = Some(format!("the name {written:?} is also a loop variable"));
        }
        let mut outermost = false;
        let mut declared_type = self.local_type(name).cloned();
        if dotted && self.minor >= Minor::V1_37 {
            outermost = declared_type.is_some();
            declared_type = None;
        }
        if let Some(t) = declared_type.or_else(|| self.global_type(name).cloned()) {
            self.checked.names.insert(
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
            _ => {
                let looked_up = if outermost { written } else { name };
                let meaning = Name::Undefined(looked_up.to_owned());
                (meaning, Type::Of(Some(Arc::new(t))))
            }
        };
        let (meaning, t) = match (name, type_name(name, self.minor)) {
            // cel-go looks for the type by the name with its dot.
            (_, Some((_, t))) if outermost => (Name::Undefined(written.to_owned()), t),
            (_, Some((runtime, t))) => (Name::Type(runtime), t),
            ("timestamp", None) => bare("timestamp", Type::Timestamp),
            ("duration", None) => bare("duration", Type::Duration),
            _ => return self.refuse_undeclared(e, written),
        };
        self.checked.names.insert(e.id, meaning);
        t
    }

    pub(super) fn check_select(
        &mut self,
        e: &Expr,
        operand: &Expr,
        field: &str,
        test: bool,
    ) -> Type {
        if let Some(name) = e.qualified_name().filter(|_| !test)
            && let Some(t) = self.qualified_type(e, &name)
        {
            return t;
        }
        let t = self.check_field(e, operand, field, false);
        if test {
            Type::Bool
        } else {
            self.mapping.substitute(&t, false)
        }
    }

    /// Returns the type of a name of several parts that names a type or a constant.
    fn qualified_type(&mut self, e: &Expr, written: &str) -> Option<Type> {
        let name = written.trim_start_matches('.');
        let root = name.split('.').next().unwrap_or_default();
        // Up to 1.36 such a name wins over a loop variable of its first part.
        let hidden = self.minor >= Minor::V1_37 && self.local_type(root).is_some();
        if hidden && !written.starts_with('.') {
            return None;
        }
        let (meaning, t) = if let Some((meaning, of)) = qualified_type(name) {
            // cel-go then looks for the type by the name with its dot.
            let meaning = if hidden {
                Name::Undefined(written.to_owned())
            } else {
                meaning
            };
            (meaning, Type::Of(Some(Arc::new(of))))
        } else if name == "google.protobuf.NullValue.NULL_VALUE" {
            (Name::Number(0), Type::Int)
        } else if name == USER_TYPE && self.global_type("user").is_some() {
            if self.minor < Minor::V1_32 {
                self.beyond = Some(format!("the name {written:?}"));
            }
            let of = Type::Object(USER_TYPE);
            (
                Name::Undefined(USER_TYPE.to_owned()),
                Type::Of(Some(Arc::new(of))),
            )
        } else {
            return None;
        };
        self.checked.names.insert(e.id, meaning);
        Some(t)
    }

    pub(super) fn check_field(
        &mut self,
        e: &Expr,
        operand: &Expr,
        field: &str,
        optional: bool,
    ) -> Type {
        self.check_expr(operand);
        let operand_type = self.mapping.substitute(&self.type_of(operand), false);
        let (target, was_optional) = operand_type.unwrapped();
        let t = match target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object("kubernetes.UserInfo") => match field {
                "username" | "uid" => Type::String,
                "groups" => Type::list(Type::String),
                "extra" => Type::map(Type::String, Type::list(Type::String)),
                _ => {
                    self.add_issue(e, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Object(name) => {
                self.add_issue(e, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    self.add_issue(
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

    pub(super) fn check_message(&mut self, e: &Expr, name: &str, fields: &[Field]) -> Type {
        let plain = name.trim_start_matches('.');
        let Some(message) = Message::named(plain) else {
            if type_name(plain, self.minor).is_some()
                || qualified_type(plain).is_some()
                || KUBERNETES_TYPES.contains(&plain)
            {
                self.beyond = Some(format!("a message {name:?} is made"));
            }
            return self.refuse_undeclared(e, name);
        };
        for field in fields {
            self.check_expr(&field.value);
            let wanted = message.field_type(&field.name);
            if wanted.is_none() {
                self.issues.push(Issue {
                    at: field.at,
                    message: format!("undefined field '{}'", field.name),
                });
            }
            let found = self.element_type(&field.value, field.optional);
            let wanted = wanted.unwrap_or(Type::Error);
            if !self.mapping.assignable(&wanted, &found) {
                self.issues.push(Issue {
                    at: field.at,
                    message: format!(
                        "expected type of field '{}' is '{wanted}' but provided type is '{found}'",
                        field.name
                    ),
                });
            }
        }
        message.result_type()
    }
}
