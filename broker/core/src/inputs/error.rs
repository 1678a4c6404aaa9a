//! Why a collection of fleet inputs is not sent.

use keyferry_api::reason::Reason;

use super::secret_scan::LooksSecret;

/// Why a collection is not sent. No text repeats a value of the collection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputsError {
    /// Something in it looks like a secret.
    #[error(
        "{0}; fix: remove it, and give the cluster its secrets another way: inputs are copied into \
         statuses and templates, where many can read them"
    )]
    LooksSecret(#[from] LooksSecret),
    /// It is larger than readers accept.
    #[error(
        "the collection has {0} bytes and may have 921600; fix: make the values shorter, or split \
         the cluster's components"
    )]
    TooLarge(usize),
    /// The ConfigMap cannot be read as inputs.
    #[error(
        "ConfigMap {config_map}: {problem}; fix: write one key for each component, and under it a \
         YAML mapping"
    )]
    Invalid {
        /// The ConfigMap's name.
        config_map: String,
        /// What is wrong.
        problem: String,
    },
    /// Two inputs have one id.
    #[error("two inputs have one id; fix: report this as a bug of Keyferry")]
    SameId,
    /// The collection cannot be written as JSON.
    #[error("writing the collection as JSON; fix: report this as a bug of Keyferry")]
    Unwritable,
    /// There is no ConfigMap for the target.
    #[error("there is no ConfigMap {0} in Keyferry's namespace; fix: create it, empty if need be")]
    Missing(String),
    /// Another target has the same DNS name.
    #[error(
        "another TargetCluster has the same identity.clusterDNS; fix: delete one of them, or \
         create it again with another clusterDNS"
    )]
    IdentityConflict,
    /// The hub's objects have not been read, or not for too long.
    #[error(
        "the hub's objects have not been read; fix: try again, and if it lasts, check that the hub \
         answers and that Keyferry's Role in its own namespace is as shipped"
    )]
    Unread,
}

impl InputsError {
    /// The stable reason code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::LooksSecret(_) => Reason::InputLooksSecret,
            Self::TooLarge(_) => Reason::InputsTooLarge,
            Self::Invalid { .. } | Self::SameId | Self::Unwritable => Reason::InputsInvalid,
            Self::Missing(_) => Reason::InputsMissing,
            Self::IdentityConflict => Reason::IdentityConflict,
            Self::Unread => Reason::InputsUnread,
        }
    }
}
