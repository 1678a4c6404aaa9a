//! Parses names that a user types as arguments.

use std::time::Duration;

use keyferry_api::name::{AccessName, NameError, Namespace, ObjectName, RoleName};
use keyferry_api::service_account::ServiceAccount;

use crate::command_error::CommandError;

/// Whether a word names the kind TargetAccess, as in kubectl: singular, plural or short name, in any
/// case, and with or without the group.
pub(crate) fn is_access_kind(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let kind = lower.split('.').next().unwrap_or_default();
    matches!(kind, "access" | "targetaccess" | "targetaccesses" | "tga")
}

/// Removes the kind before a name. `tga` and `access` may also be namespaces, so they are kinds only
/// beside a namespace.
fn without_kind<'a>(access: &'a str, namespace: Option<&str>) -> &'a str {
    match access.split_once('/') {
        Some((kind, name))
            if is_access_kind(kind)
                && (namespace.is_some()
                    || name.contains('/')
                    || kind.to_ascii_lowercase().starts_with("targetaccess")) =>
        {
            name
        }
        _ => access,
    }
}

/// Parses the name of an object.
pub(crate) fn object_name(name: &str) -> Result<ObjectName, NameError> {
    ObjectName::new(name)
}

/// Parses the name of a role.
pub(crate) fn role_name(name: &str) -> Result<RoleName, NameError> {
    RoleName::new(name)
}

/// Whether a text names an access without its namespace.
pub(crate) fn lacks_namespace(access: &str) -> bool {
    !without_kind(&with_slash(access), None).contains('/')
}

/// Parses NAME with a namespace, NAMESPACE/NAME or NAMESPACE:NAME. Before it, there may be the kind.
pub(crate) fn access_name(
    access: &str,
    namespace: Option<&str>,
) -> Result<AccessName, CommandError> {
    let wrong = |problem: String| {
        CommandError::with_fix(problem, "write NAME with -n NAMESPACE, or NAMESPACE/NAME")
    };
    let access = &with_slash(access);
    let access = without_kind(access, namespace);
    if let Some(namespace) = namespace.filter(|_| !access.contains('/')) {
        let namespace =
            Namespace::new(namespace).map_err(|error| wrong(format!("the namespace {error}")))?;
        let name =
            ObjectName::new(access).map_err(|error| wrong(format!("the access's name {error}")))?;
        return Ok(AccessName { namespace, name });
    }
    if !access.contains('/') {
        return Err(wrong("the access's namespace is missing".to_owned()));
    }
    AccessName::parse(access).map_err(|error| wrong(format!("the access {error}")))
}

/// Rewrites `NAMESPACE:NAME` as `NAMESPACE/NAME`. Kubernetes names contain neither character.
pub(crate) fn with_slash(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        name.replacen(':', "/", 1)
    }
}

/// Why a text does not name a ServiceAccount.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum ServiceAccountError {
    /// It has no slash and no colon.
    #[error("write NAMESPACE/NAME")]
    Form,
    /// The namespace is not valid.
    #[error("the namespace: {0}")]
    Namespace(NameError),
    /// The name is not valid.
    #[error("the name: {0}")]
    Name(NameError),
}

/// Parses `NAMESPACE/NAME`, or `NAMESPACE:NAME` as in a user name.
pub(crate) fn service_account(text: &str) -> Result<ServiceAccount, ServiceAccountError> {
    let text = with_slash(text);
    let (namespace, name) = text.split_once('/').ok_or(ServiceAccountError::Form)?;
    let namespace = Namespace::new(namespace).map_err(ServiceAccountError::Namespace)?;
    let name = ObjectName::new(name).map_err(ServiceAccountError::Name)?;
    Ok(ServiceAccount { namespace, name })
}

/// Parses the value of `--keyferry-namespace`.
pub(crate) fn keyferry_namespace(text: &str) -> Result<Namespace, CommandError> {
    Namespace::new(text).map_err(|error| {
        CommandError::new(format!("reading --keyferry-namespace {text:?}: {error}"))
    })
}

/// A text is not a duration of whole seconds.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a duration like 1h or 90m")]
pub(crate) struct LifetimeError;

/// Parses a duration like `1h` or `90m`, of whole seconds and at least one.
pub(crate) fn lifetime(text: &str) -> Result<Duration, LifetimeError> {
    let duration: jiff::SignedDuration = text.parse().map_err(|_| LifetimeError)?;
    let duration = Duration::try_from(duration).map_err(|_| LifetimeError)?;
    if duration.as_secs() == 0 || duration.subsec_nanos() != 0 {
        Err(LifetimeError)
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::access_name;

    #[test]
    fn an_access_is_named_with_a_slash_a_colon_or_a_flag() {
        let named = |access, namespace| {
            access_name(access, namespace)
                .map(|name| name.to_string())
                .ok()
        };
        for (access, namespace) in [
            ("tenant-a/prod", None),
            ("tenant-a:prod", None),
            ("prod", Some("tenant-a")),
            ("tenant-a:prod", Some("b")),
            ("targetaccess/prod", Some("tenant-a")),
            ("TargetAccess/prod", Some("tenant-a")),
            ("targetaccesses.keyferry.dev/prod", Some("tenant-a")),
            ("tga/prod", Some("tenant-a")),
            ("targetaccess/tenant-a/prod", None),
            ("tga/tenant-a/prod", None),
        ] {
            assert_eq!(
                named(access, namespace).as_deref(),
                Some("tenant-a/prod"),
                "{access}"
            );
        }
        assert_eq!(named("tga/prod", None).as_deref(), Some("tga/prod"));
        for access in [
            "prod",
            "targetaccess/prod",
            "tenant-a:b:c",
            "tenant-a/b:c",
            "a/b/c",
            ":prod",
        ] {
            assert_eq!(named(access, None), None, "{access}");
        }
    }
}
