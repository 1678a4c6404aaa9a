//! Issuers of Keyferry's own, for hubs whose issuer a target cannot trust: one issuer, one audience
//! and one key set per TargetCluster.
//!
//! A key set is three things: the key that signs, the key that will, and the keys that did. All are
//! published. The next key has been published for a soak before it signs, and a key that signed
//! stays published until the longest token that it can have signed is over. The set is stored as
//! one document that any replica may replace by compare-and-swap; what a replica may do with it
//! depends on what it has seen itself ([`Sightings`]).

mod claims;
mod key;
mod key_set;
mod rotation;
mod sightings;
mod stored;

use std::time::Duration;

use crate::issuer::{Issuer, IssuerError, PublicUrl};
use crate::lifetime;
use crate::name::{NameError, ObjectName};

pub use claims::{ClaimsOfToken, signing_input};
pub use key::{KeyFault, PrivateKey};
pub use key_set::{Binding, CurrentKey, KeySet, MAX_PREVIOUS, NextKey, PreviousKey, ReadyChange};
pub use rotation::{Change, RotationPolicy, due};
pub use sightings::{MAX_PUBLISHED, Sightings};
pub use stored::{MAX_STORED_BYTES, StoredFault, read, write};

/// The audience of the TokenRequest by which the hub says that the ServiceAccount is there and that
/// Keyferry may mint for it. No target has it and no API server takes it; the token is dropped.
pub const INERT_AUDIENCE: &str = "keyferry.dev/inert";

/// How long after a superseded key's last signature it stays published: the longest life of a
/// token, and time for replicas that have not read the change yet and for clocks that differ.
pub const KEPT: Duration = Duration::from_secs(24 * 3600 + 300);

/// How often each replica reads a key set.
pub const READ_EVERY: Duration = Duration::from_secs(10);

/// How old a replica's last good reading may be for it to sign.
pub const READING_GOOD_FOR: Duration = Duration::from_secs(30);

/// `<publicURL>/issuers/<target>`: what `iss` says, and where the target looks for the keys.
///
/// # Errors
/// [`IssuerError`] when the two together are longer than verifiers accept.
pub fn issuer(public_url: &PublicUrl, target: &ObjectName) -> Result<Issuer, IssuerError> {
    Issuer::new(format!("{public_url}/issuers/{target}"))
}

/// Where an issuer's key set is.
pub fn jwks_uri(issuer: &Issuer) -> String {
    format!("{issuer}/openid/v1/jwks")
}

/// The Secret of a target's key set, in Keyferry's namespace.
///
/// # Errors
/// [`NameError`] when the target's name leaves no room for the prefix.
pub fn secret_name(target: &ObjectName) -> Result<ObjectName, NameError> {
    ObjectName::new(format!("keyferry-issuer-{target}"))
}

const _: () = assert!(
    KEPT.as_secs()
        > lifetime::MAX.as_secs() + READING_GOOD_FOR.as_secs() + lifetime::MAX_SKEW.as_secs()
);

#[cfg(test)]
mod tests;
