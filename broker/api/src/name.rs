//! Kubernetes object names, checked once and then trusted.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("is empty")]
    Empty,
    /// Longer than Kubernetes allows.
    #[error("is longer than {0} characters")]
    TooLong(usize),
    /// Contains anything but lower-case letters, digits, `-` (and `.` where a subdomain is
    /// allowed), or does not start and end with a letter or digit.
    #[error(
        "may hold only lower-case letters, digits, '-' and, in an object's name, '.', and starts \
         and ends with a letter or digit"
    )]
    Grammar,
    /// A role's name contains anything but lower-case letters, digits and `-`.
    #[error("may hold only lower-case letters, digits and '-'")]
    RoleGrammar,
    /// The role would have the users that ServiceAccounts have without a role.
    #[error("is reserved: users without a role begin with it")]
    ReservedRole,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes a name from a text after checking it.
            ///
            /// # Errors
            /// [`NameError`] says which rule it breaks. Nothing is normalised.
            pub fn new(text: impl AsRef<str>) -> Result<$name, NameError> {
                let text = text.as_ref();
                $check(text)?;
                Ok($name(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<$name, NameError> {
                $name::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A namespace's name: an RFC 1123 label of at most 63 characters.
    Namespace,
    check_label
);
name_type!(
    /// An object's name: an RFC 1123 subdomain of at most 253 characters.
    ObjectName,
    check_subdomain
);

name_type!(
    /// A ClusterTrustBundle's name: at most 253 characters, and `:` between subdomains where it begins
    /// with its signer's name.
    TrustBundleName,
    trust_bundle
);

name_type!(
    /// The DNS name of a target in its fleet: an RFC 1123 subdomain in lower case.
    ClusterDns,
    check_subdomain
);

name_type!(
    /// A role's name: 1 to 32 lower-case letters, digits and `-`. It is part of the usernames at the
    /// target, `<hub>:<role>:…`, so it is not `system`.
    RoleName,
    check_role
);

/// Checks an RFC 1123 label, such as a hub's name. A hub's name begins every username at the
/// targets, so it never changes.
pub fn check_label(text: &str) -> Result<(), NameError> {
    if text.len() > 63 {
        return Err(NameError::TooLong(63));
    }
    check_segment(text)
}

/// Checks the value of a label, by `IsValidLabelValue` of kubernetes apimachinery. It may be empty.
pub(crate) fn check_label_value(text: &str) -> Result<(), LabelValueError> {
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    let is_valid = text.len() <= 63
        && bytes.first().is_none_or(is_end)
        && bytes.last().is_none_or(is_end)
        && bytes
            .iter()
            .all(|byte| is_end(byte) || b"-._".contains(byte));
    is_valid.then_some(()).ok_or(LabelValueError)
}

/// A text is not the value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the value of a label: at most 63 letters, digits, -, _ and ., and a letter or digit at either end"
)]
pub(crate) struct LabelValueError;

fn check_subdomain(text: &str) -> Result<(), NameError> {
    if text.len() > 253 {
        return Err(NameError::TooLong(253));
    }
    text.split('.').try_for_each(check_segment)
}

/// By kubernetes pkg/apis/certificates/validation: `<signer's domain>:<signer's path>:<name>`, or a
/// name without colons.
fn trust_bundle(text: &str) -> Result<(), NameError> {
    if text.len() > 253 {
        return Err(NameError::TooLong(253));
    }
    text.split(':').try_for_each(check_subdomain)
}

fn check_role(text: &str) -> Result<(), NameError> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match text {
        "" => Err(NameError::Empty),
        _ if text.len() > 32 => Err(NameError::TooLong(32)),
        "system" => Err(NameError::ReservedRole),
        _ if text.bytes().all(is_allowed) => Ok(()),
        _ => Err(NameError::RoleGrammar),
    }
}

fn check_segment(text: &str) -> Result<(), NameError> {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return Err(NameError::Empty);
    };
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if alphanumeric(first)
        && alphanumeric(last)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    {
        Ok(())
    } else {
        Err(NameError::Grammar)
    }
}

/// The name of a TargetAccess as callers write it: `<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccessName {
    /// The tenant's namespace.
    pub namespace: Namespace,
    /// The TargetAccess in it.
    pub name: ObjectName,
}

impl AccessName {
    /// Reads `<namespace>/<name>`: exactly one slash, nothing decoded or trimmed.
    ///
    /// # Errors
    /// [`NameError`] of the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once('/').ok_or(NameError::Grammar)?;
        Ok(Self {
            namespace: Namespace::new(namespace)?,
            name: ObjectName::new(name)?,
        })
    }
}

impl fmt::Display for AccessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessName, NameError, Namespace, ObjectName, RoleName, TrustBundleName};

    #[test]
    fn hostile_names_are_refused_as_they_stand() {
        for text in [
            "",
            "../x",
            "a%2Fb",
            "Tenant-a",
            "tenant\u{0430}",
            "a_b",
            "-a",
            "a-",
            "a b",
            "a\0b",
            "a/b",
        ] {
            assert!(Namespace::new(text).is_err(), "{text:?} is no namespace");
            assert!(ObjectName::new(text).is_err(), "{text:?} is no object name");
        }
        assert_eq!(Namespace::new("a".repeat(64)), Err(NameError::TooLong(63)));
        assert_eq!(
            Namespace::new("a.b"),
            Err(NameError::Grammar),
            "a namespace holds no dot"
        );
        assert!(ObjectName::new("a.b").is_ok());
        assert!(ObjectName::new("a..b").is_err());
        for text in ["prod-ca", "example.com:serving:prod-ca"] {
            assert!(TrustBundleName::new(text).is_ok(), "{text}");
        }
        for text in ["", ":a", "a:", "a/b", "..", "a:../b", "a%3Ab"] {
            assert!(TrustBundleName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_role_is_named_by_few_characters_and_is_not_the_systems() {
        let longest = "a".repeat(32);
        for text in ["view", "a", "-", "0", "system-x", "sys", longest.as_str()] {
            assert!(RoleName::new(text).is_ok(), "{text}");
        }
        for (text, mistake) in [
            ("", NameError::Empty),
            ("system", NameError::ReservedRole),
            (&"a".repeat(33), NameError::TooLong(32)),
            ("View", NameError::RoleGrammar),
            ("a:b", NameError::RoleGrammar),
            ("a.b", NameError::RoleGrammar),
            ("a b", NameError::RoleGrammar),
            ("vi\u{0435}w", NameError::RoleGrammar),
        ] {
            assert_eq!(RoleName::new(text), Err(mistake), "{text:?}");
        }
    }

    #[test]
    fn an_access_name_has_one_slash() {
        assert!(AccessName::parse("tenant-a/prod").is_ok());
        for text in [
            "tenant-a",
            "tenant-a/",
            "/prod",
            "tenant-a/prod/x",
            "tenant-a//prod",
            " tenant-a/prod",
        ] {
            assert!(AccessName::parse(text).is_err(), "{text:?}");
        }
    }
}
