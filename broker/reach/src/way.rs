//! The steps of a way, and what takes a step away.

use std::fmt;

use keyferry_api::name::{AccessName, ObjectName};
use keyferry_kube_rbac::ObjectId;

/// One step of a way: an object, and what it gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The door that it opens; `None` for a step at the target that is no door.
    pub door: Option<u8>,
    /// What it is, such as `RoleBinding tenant-a/ci → Role builder, rule 1`. Rules count from 0.
    pub text: String,
    /// The object whose removal takes the step away.
    pub removal: Option<Removal>,
}

impl Hop {
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Self {
            door: None,
            text: text.into(),
            removal: None,
        }
    }
}

/// An object that can be removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// A binding of the hub, or of a target.
    Binding(Option<ObjectName>, ObjectId),
    /// A TargetAccess.
    Access(AccessName),
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binding(None, id) => write!(f, "{id}"),
            Self::Binding(Some(target), id) => write!(f, "{id} at {target}"),
            Self::Access(name) => write!(f, "TargetAccess {name}"),
        }
    }
}
