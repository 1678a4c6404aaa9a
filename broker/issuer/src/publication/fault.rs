//! The errors of reading the hub's documents; each leaves the published documents unchanged.

use std::sync::Arc;

use keyferry_api::issuer::IssuerError;
use keyferry_api::reason::Reason;
use keyferry_hub::ports::HubError;
use keyferry_keys::discovery::DiscoveryError;
use keyferry_keys::jwks::JwksError;

/// Why a reading of the hub's documents was not published.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// The hub did not return the documents.
    #[error("reading the hub's discovery documents: {0}")]
    Hub(#[from] HubError),
    /// The metadata cannot be used.
    #[error("reading the hub's provider metadata: {0}")]
    Metadata(Arc<DiscoveryError>),
    /// The metadata names no issuer that a target could trust.
    #[error("reading the hub's provider metadata: its issuer {0}")]
    Issuer(#[from] IssuerError),
    /// The key set cannot be used.
    #[error("reading the hub's key set: {0}")]
    Keys(Arc<JwksError>),
    /// The reading task panicked or was cancelled.
    #[error("reading the hub's discovery documents: the reading task ended without an answer")]
    SharedCallLost,
}

impl PublishError {
    /// Returns the stable reason code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => {
                Reason::HubDiscoveryForbidden
            }
            Self::Hub(HubError::Unreachable(_) | HubError::Overloaded(_) | HubError::TooLarge)
            | Self::SharedCallLost => Reason::HubUnreachable,
            _ => Reason::HubDiscoveryInvalid,
        }
    }
}
