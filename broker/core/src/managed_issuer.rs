//! Managed issuers, for hubs whose own issuer a target cannot trust. Each TargetCluster has one
//! issuer, one audience and one key set.
//!
//! A key set has a current key, which signs, a next key, which will sign, and previous keys, which
//! used to sign. All of them are published. The next key is published for the activation delay
//! before it signs. A previous key stays published until the longest token that it can have signed
//! has expired. The set is stored as one document that any replica may replace by compare-and-swap.
//! What a replica may do with it depends on what it has seen itself ([`Sightings`]).

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

/// Audience of the TokenRequest that asks the hub whether the ServiceAccount exists and whether
/// Keyferry may mint for it. No target has this audience and no API server accepts it. The token is
/// discarded.
pub const INERT_AUDIENCE: &str = "keyferry.dev/inert";

/// How long a superseded key stays published after its last signature. This is the longest token
/// lifetime, plus time for replicas that have not read the change yet and for clock differences.
pub const KEPT: Duration = Duration::from_secs(24 * 3600 + 300);

/// How often each replica reads a key set.
pub const READ_EVERY: Duration = Duration::from_secs(10);

/// Maximum age of a replica's last successful reading at which it may sign.
pub const READING_GOOD_FOR: Duration = Duration::from_secs(30);

/// `<publicURL>/issuers/<target>`: the value of `iss`, and where the target looks for the keys.
///
/// # Errors
/// [`IssuerError`] when the two together are longer than verifiers accept.
pub fn issuer(public_url: &PublicUrl, target: &ObjectName) -> Result<Issuer, IssuerError> {
    Issuer::new(format!("{public_url}/issuers/{target}"))
}

/// The URL of an issuer's key set.
pub fn jwks_uri(issuer: &Issuer) -> String {
    format!("{issuer}/openid/v1/jwks")
}

/// The name of the Secret with a target's key set, in Keyferry's namespace.
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
