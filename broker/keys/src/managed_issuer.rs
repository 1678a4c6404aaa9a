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

use keyferry_api::lifetime;

pub use keyferry_api::managed_issuer::{INERT_AUDIENCE, jwks_uri, managed_issuer_url, secret_name};

pub use claims::{ClaimsOfToken, signing_input};
pub use key::{KeyFault, PrivateKey};
pub use key_set::{Binding, CurrentKey, KeySet, MAX_PREVIOUS, NextKey, PreviousKey, ReadyChange};
pub use rotation::{Change, RotationPolicy, due_change};
pub use sightings::{MAX_PUBLISHED, Sightings};
pub use stored::{MAX_STORED_BYTES, StoredFault, read_key_set, write_key_set};

/// How long a superseded key stays published after its last signature. This is the longest token
/// lifetime, plus time for replicas that have not read the change yet and for clock differences.
pub const SUPERSEDED_KEY_RETENTION: Duration = Duration::from_secs(24 * 3600 + 300);

/// The pause between two readings of a key set. Each replica must know of a deleted one within 10 s
/// while the hub answers within two.
pub const READ_EVERY: Duration = Duration::from_secs(8);

/// Maximum age of a replica's last successful reading at which it may sign.
pub const READING_GOOD_FOR: Duration = Duration::from_secs(30);

const _: () = assert!(
    SUPERSEDED_KEY_RETENTION.as_secs()
        > lifetime::MAX.as_secs() + READING_GOOD_FOR.as_secs() + lifetime::MAX_SKEW.as_secs()
);

#[cfg(test)]
mod tests;
