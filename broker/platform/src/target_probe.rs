//! The interface by which targets are asked whether they accept a token.

use futures::future::BoxFuture;
use keyferry_api::summary::SilenceCause;
use keyferry_core::access_status::TargetIdentity;
use keyferry_core::target_address::RefusedDestination;
use secrecy::SecretString;

use crate::target_connection::TargetAddress;

/// Why a target did not answer a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The cause, for a short line.
    pub cause: SilenceCause,
    /// The whole text. It may name the target's address and the names of its certificate.
    pub text: String,
}

impl From<&str> for Silence {
    fn from(text: &str) -> Self {
        Self {
            cause: SilenceCause::Other,
            text: text.to_owned(),
        }
    }
}

/// How a target answered a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The target accepted the token as this identity.
    Accepted(TargetIdentity),
    /// The target rejected the token.
    Refused,
    /// The target did not answer, or not as an apiserver does.
    Unanswered(Silence),
    /// Nothing was sent, because the address of the target or of its proxy is refused.
    AddressRefused(RefusedDestination),
}

/// Tests whether targets accept a token.
pub trait TargetProbe: Send + Sync {
    /// Sends the token to the target and to no other host.
    fn try_token<'a>(
        &'a self,
        target: &'a TargetAddress,
        token: &'a SecretString,
    ) -> BoxFuture<'a, ProbeAnswer>;
}
