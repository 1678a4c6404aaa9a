//! An embedded apiserver with the policy of a hub or of a target: a loopback server that speaks real
//! TLS, real signatures and the few Kubernetes calls that Keyferry and `kubectl` make.
//!
//! It runs `keyferry demo` and replaces apiservers in tests. It is not a complete apiserver: it
//! stores, admits and validates only what is described here.

pub mod clock;
pub mod hub;
#[cfg(feature = "matrix")]
pub mod impersonation_matrix;
pub mod pki;
pub mod target;

mod apiserver;
mod identity;
mod json_body;
mod jws;
mod status;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;

pub use apiserver::EmbeddedApiserver;
pub use clock::Clock;
#[cfg(feature = "faults")]
pub use hub::Fault;
pub use hub::{
    DiscoveryAccess, EmbeddedHub, Grant, HubOptions, HubPolicy, KeyAlgorithm, PodBinding, Route,
    Subject,
};
pub use identity::UserInfo;
pub use pki::{Authority, ServerIdentity};
pub use target::{
    EmbeddedTarget, Fetch, FetchedDocument, Outcome, RbacError, RbacPolicy, SeenRequest,
    TargetOptions, TargetPolicy, TokenCase, TokenRefused, TokenVerifier,
};

/// Why an embedded server could not be started or asked for something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A certificate could not be made.
    #[error("could not make a certificate for the embedded server")]
    Certificate(#[from] rcgen::Error),
    /// The certificate and key were refused by the TLS library.
    #[error("could not build the TLS configuration of the embedded server")]
    Tls(#[from] rustls::Error),
    /// The private key of a certificate could not be read back.
    #[error("could not read the private key of the embedded server")]
    PrivateKey,
    /// No loopback port could be opened.
    #[error("could not listen on 127.0.0.1")]
    Listen(#[source] std::io::Error),
    /// A signing key or random bytes could not be made.
    #[error("could not make a signing key or random bytes")]
    Crypto,
    /// The client for discovery could not be built from the given CA.
    #[error("could not build the discovery client from the given CA")]
    DiscoveryClient(#[source] reqwest::Error),
    /// The target's roles and bindings cannot be read.
    #[error(transparent)]
    Rbac(#[from] RbacError),
    /// The hub has no such ServiceAccount.
    #[error("the embedded hub has no ServiceAccount {namespace}/{name}")]
    NoServiceAccount {
        /// Namespace that was asked for.
        namespace: String,
        /// Name that was asked for.
        name: String,
    },
    /// The hub has no such signing key.
    #[error("the embedded hub has no signing key {kid}")]
    NoKey {
        /// Key ID that was asked for.
        kid: String,
    },
}

impl From<aws_lc_rs::error::Unspecified> for EmbeddedError {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self::Crypto
    }
}

/// 256 random bits, in a form that is not a JWT.
fn random_token() -> Result<SecretString, EmbeddedError> {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes)?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes)))
}

/// Locks even a poisoned mutex: a test that panicked must not hide its own message behind the
/// poisoned lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "faults", feature = "matrix"))]
mod tests;
