//! What a command starts from, as one word of its user.

use std::str::FromStr;

use keyferry_api::name::{NameError, Namespace, ObjectName};

use crate::args::names::{is_access_kind, with_slash};
use crate::command_error::command_errors;

/// What to start from: `KIND/NAME` or `KIND/NAMESPACE/NAME`, or an access as `NAME` or
/// `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartArg {
    pub(super) kind: StartKind,
    /// The namespace, if it is part of the text.
    pub(super) namespace: Option<Namespace>,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartKind {
    Access,
    Target,
    Secret,
    ConfigMap,
    Kustomization,
    HelmRelease,
}

/// Why a text does not name what to start from.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// It has too many parts.
    #[error(
        "write the name of a TargetAccess, as NAME or NAMESPACE/NAME, or targetaccess/NAME, \
         targetcluster/NAME, secret/NAME, configmap/NAME, kustomization/NAME or helmrelease/NAME"
    )]
    Form,
    /// The namespace is not valid.
    #[error("the namespace {0}")]
    Namespace(NameError),
    /// The name is not valid.
    #[error("the name {0}")]
    Name(#[from] NameError),
}

command_errors!(StartError);

impl FromStr for StartArg {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        let text = with_slash(text);
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts.as_slice() {
            [name] => (StartKind::Access, None, *name),
            [first, name] => match StartKind::named(first) {
                Some(kind) => (kind, None, *name),
                None => (StartKind::Access, Some(*first), *name),
            },
            [kind, namespace, name] => {
                let kind = StartKind::named(kind).ok_or(StartError::Form)?;
                (kind, Some(*namespace), *name)
            }
            _ => return Err(StartError::Form),
        };
        ObjectName::new(name)?;
        Ok(Self {
            kind,
            namespace: namespace
                .map(Namespace::new)
                .transpose()
                .map_err(StartError::Namespace)?,
            name: name.to_owned(),
        })
    }
}

impl StartKind {
    /// Reads a kind as kubectl does: singular, plural or short name, in any case, and with or
    /// without the group.
    fn named(word: &str) -> Option<Self> {
        if is_access_kind(word) {
            return Some(Self::Access);
        }
        let lower = word.to_ascii_lowercase();
        Some(match lower.split('.').next().unwrap_or_default() {
            "target" | "targetcluster" | "targetclusters" | "tgt" => Self::Target,
            "secret" | "secrets" => Self::Secret,
            "configmap" | "configmaps" | "cm" => Self::ConfigMap,
            "kustomization" | "kustomizations" | "ks" => Self::Kustomization,
            "helmrelease" | "helmreleases" | "hr" => Self::HelmRelease,
            _ => return None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_kind_and_a_name() {
        for good in [
            "access/a",
            "secret/b",
            "ks/c",
            "helmrelease/d",
            "targetaccess/a",
            "tga/a",
            "targetclusters/a",
            "tgt/a",
            "cm/a",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for good in [
            "TargetAccess/a",
            "targetaccesses.keyferry.dev/a",
            "configmap/a",
            "HelmRelease/d",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "secret/",
            "/a",
            "secret/a/b/c",
            "pod/a/b",
            "secret/A b",
            "A/b",
        ] {
            assert!(bad.parse::<StartArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_access_is_named_as_in_every_command() {
        let parsed = |text: &str| text.parse::<StartArg>().unwrap();
        let named = |text: &str| {
            let start = parsed(text);
            let namespace = start.namespace.map(|namespace| namespace.to_string());
            (start.kind, namespace, start.name)
        };
        let prod = |namespace: Option<&str>| {
            let namespace = namespace.map(str::to_owned);
            (StartKind::Access, namespace, "prod".to_owned())
        };
        assert_eq!(named("prod"), prod(None));
        assert_eq!(named("targetaccess/prod"), prod(None));
        for text in [
            "tenant-a/prod",
            "tenant-a:prod",
            "targetaccess/tenant-a/prod",
            "tga/tenant-a/prod",
        ] {
            assert_eq!(named(text), prod(Some("tenant-a")), "{text}");
        }
        let secret = named("secret/tenant-a/prod");
        assert_eq!(
            (secret.0, secret.1.as_deref()),
            (StartKind::Secret, Some("tenant-a"))
        );
    }
}
