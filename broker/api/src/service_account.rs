//! A ServiceAccount as an identity: `system:serviceaccount:<namespace>:<name>` and its UID.

use std::fmt;
use std::sync::Arc;

use crate::name::{NameError, Namespace, ObjectName};

/// The namespace and name of a ServiceAccount on the hub. Another object can reuse the name; see
/// [`ServiceAccountIdentity`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: ObjectName,
}

impl ServiceAccount {
    /// Reads a username of the form `system:serviceaccount:<namespace>:<name>`.
    ///
    /// # Errors
    /// [`NameError::Grammar`] for anything else.
    pub fn from_username(username: &str) -> Result<Self, NameError> {
        let rest = username
            .strip_prefix("system:serviceaccount:")
            .ok_or(NameError::Grammar)?;
        let (namespace, name) = rest.split_once(':').ok_or(NameError::Grammar)?;
        Ok(Self {
            namespace: Namespace::new(namespace)?,
            name: ObjectName::new(name)?,
        })
    }

    /// The username that Kubernetes gives it.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One ServiceAccount object. If it is deleted and recreated under the same name, the new object is
/// a different one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccountIdentity {
    /// Its namespace and name.
    pub account: ServiceAccount,
    /// Its `metadata.uid`, never empty.
    pub uid: Uid,
}

/// An object's `metadata.uid`: not empty, at most 128 bytes of printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Makes a UID from a text after checking it.
    ///
    /// # Errors
    /// [`NameError`] if the UID is empty, too long or not printable ASCII. An empty UID would equal
    /// another empty one.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > 128 {
            return Err(NameError::TooLong(128));
        }
        if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(NameError::Grammar)
        }
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ServiceAccount, Uid};

    #[test]
    fn a_username_reads_back_as_it_was_written() {
        let account =
            ServiceAccount::from_username("system:serviceaccount:tenant-a:reconciler").unwrap();
        assert_eq!(
            account.username(),
            "system:serviceaccount:tenant-a:reconciler"
        );
        for text in [
            "tenant-a:reconciler",
            "system:serviceaccount:tenant-a",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount::b",
            "",
        ] {
            assert!(ServiceAccount::from_username(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_empty_uid_is_no_uid() {
        assert!(Uid::new("").is_err());
        assert!(Uid::new("a b").is_err());
        assert!(Uid::new("0b8f").is_ok());
    }
}
