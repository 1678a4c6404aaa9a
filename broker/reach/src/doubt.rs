//! What keeps an answer from being yes or no, and what would decide it.

use keyferry_api::name::ObjectName;

use crate::list::ListKind;
use crate::way::Hop;

/// One thing that is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// A list was not read, or not whole.
    List {
        /// The target whose list it is; `None` for the hub.
        target: Option<ObjectName>,
        /// The resource in the plural.
        resource: &'static str,
        /// The only namespace that matters; `None` for all.
        namespace: Option<String>,
    },
    /// A subject holds a right that may open a door, and nothing decides it.
    Door {
        /// The number of the door.
        door: u8,
        /// Where the right comes from.
        right: String,
    },
    /// Anything else.
    Fact {
        /// What is not known.
        description: String,
        /// What would decide it.
        decide: String,
    },
}

impl Doubt {
    pub(crate) fn list(kind: ListKind) -> Self {
        Self::List {
            target: None,
            resource: kind.resource(),
            namespace: None,
        }
    }

    pub(crate) fn list_in(kind: ListKind, namespace: &str) -> Self {
        Self::List {
            target: None,
            resource: kind.resource(),
            namespace: Some(namespace.to_owned()),
        }
    }

    pub(crate) fn fact(description: impl Into<String>, decide: impl Into<String>) -> Self {
        Self::Fact {
            description: description.into(),
            decide: decide.into(),
        }
    }

    /// A right that may open a door, and nothing decides whether it does.
    pub(crate) fn door(door: u8, hops: &[Hop]) -> Self {
        let hops: Vec<&str> = hops.iter().map(|hop| hop.text.as_str()).collect();
        let right = hops.join(", ");
        Self::Door { door, right }
    }

    /// What is not known.
    pub fn description(&self) -> String {
        match self {
            Self::List {
                target,
                resource,
                namespace,
            } => {
                let place = match target {
                    Some(target) => format!(" of target {target}"),
                    None => String::new(),
                };
                match namespace {
                    Some(namespace) => format!("{resource} in {namespace}{place} were not read"),
                    None => format!("{resource}{place} were not read"),
                }
            }
            Self::Door { door, right } => format!("door {door} is not decided: {right}"),
            Self::Fact { description, .. } => description.clone(),
        }
    }

    /// What would decide it.
    pub fn decide(&self) -> String {
        match self {
            Self::List {
                target,
                resource,
                namespace,
            } => {
                let folder = match target {
                    Some(target) => format!("targets/{target}/rbac"),
                    None => "hub".to_owned(),
                };
                match namespace {
                    Some(namespace) => format!(
                        "kubectl get {resource} -n {namespace} -o yaml > \
                         {folder}/{resource}.{namespace}.yaml"
                    ),
                    None => format!("kubectl get {resource} -A -o yaml > {folder}/{resource}.yaml"),
                }
            }
            Self::Door { .. } => "check it by hand, or take the right away".to_owned(),
            Self::Fact { decide, .. } => decide.clone(),
        }
    }
}
