//! The subjects that answers are about.

use std::fmt;
use std::str::FromStr;

use keyferry_kube_rbac::parse_service_account;

/// A subject of the hub: what a binding can name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A ServiceAccount, by namespace and name.
    ServiceAccount(String, String),
    /// A user. Which groups it has, the identity provider knows.
    User(String),
    /// A member of a group, of which nothing else is known.
    Group(String),
}

/// A text names no subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write NAMESPACE/NAME for a ServiceAccount, user:NAME or group:NAME")]
pub struct SubjectError;

impl Subject {
    /// The user of this name, which may be a ServiceAccount.
    pub fn of_user(name: &str) -> Self {
        match parse_service_account(name) {
            Some((namespace, name)) => Self::ServiceAccount(namespace.to_owned(), name.to_owned()),
            None => Self::User(name.to_owned()),
        }
    }

    /// `ServiceAccount`, `User` or `Group`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ServiceAccount(..) => "ServiceAccount",
            Self::User(_) => "User",
            Self::Group(_) => "Group",
        }
    }

    /// The name, with the namespace of a ServiceAccount.
    pub fn name(&self) -> String {
        match self {
            Self::ServiceAccount(namespace, name) => format!("{namespace}/{name}"),
            Self::User(name) | Self::Group(name) => name.clone(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// Reads `NAMESPACE/NAME`, `user:NAME`, `group:NAME`, or a user name of a ServiceAccount.
impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((namespace, name)) = parse_service_account(text) {
            return Ok(Self::ServiceAccount(namespace.to_owned(), name.to_owned()));
        }
        if let Some(name) = text.strip_prefix("user:").filter(|name| !name.is_empty()) {
            return Ok(Self::of_user(name));
        }
        if let Some(name) = text.strip_prefix("group:").filter(|name| !name.is_empty()) {
            return Ok(Self::Group(name.to_owned()));
        }
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::ServiceAccount(namespace.to_owned(), name.to_owned()))
            }
            _ => Err(SubjectError),
        }
    }
}
