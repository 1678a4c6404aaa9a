//! The key set of a managed issuer: its binding and its current, next and previous keys.

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;
use keyferry_api::name::ObjectName;

use super::key::PrivateKey;
use super::rotation::Change;
use super::sightings::Sightings;
use crate::jwks::PublicKey;

/// Maximum number of previous keys in one set. A rotation waits until there is room.
pub const MAX_PREVIOUS: usize = 16;

/// The target, issuer and audience of a key set. It never changes: a set made for one audience
/// signs for no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The TargetCluster.
    pub target: ObjectName,
    /// The value of `iss`.
    pub issuer: Issuer,
    /// The only value of `aud`.
    pub audience: Audience,
}

/// The key that signs.
#[derive(Debug)]
pub struct CurrentKey {
    /// The key.
    pub key: PrivateKey,
    /// When it was first stored, by the clock of the replica that made it.
    pub published_at: Timestamp,
    /// When it began to sign.
    pub signs_since: Timestamp,
}

/// The key that will sign after the next rotation.
#[derive(Debug)]
pub struct NextKey {
    /// The key.
    pub key: PrivateKey,
    /// When it was first stored.
    pub published_at: Timestamp,
}

/// A key that used to sign. Its private half is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousKey {
    /// The public half.
    pub key: PublicKey,
    /// When the last token that it can have signed has expired.
    pub published_until: Timestamp,
}

/// One target's key set.
#[derive(Debug)]
pub struct KeySet {
    /// The target, issuer and audience of the set.
    pub binding: Binding,
    /// The key that signs.
    pub current: CurrentKey,
    /// The key that will sign after the next rotation.
    pub next: NextKey,
    /// The keys that used to sign, at most [`MAX_PREVIOUS`].
    pub previous: Vec<PreviousKey>,
    /// The text of the last manual rotation request that was carried out.
    pub handled_rotation: Option<String>,
}

impl KeySet {
    /// Makes a target's first set. It has signed nothing yet, but still waits for the activation
    /// delay. A set that replaces a deleted one looks the same, and verifiers may have cached the
    /// deleted one.
    pub fn initial_set(
        binding: Binding,
        current: PrivateKey,
        next: PrivateKey,
        now: Moment,
    ) -> Self {
        let published_at = whole_seconds(now.wall);
        Self {
            binding,
            current: CurrentKey {
                key: current,
                published_at,
                signs_since: published_at,
            },
            next: NextKey {
                key: next,
                published_at,
            },
            previous: Vec::new(),
            handled_rotation: None,
        }
    }

    /// Every public key, with the end of its publication if that is known already.
    pub fn public_keys(&self) -> impl Iterator<Item = (&PublicKey, Option<Timestamp>)> {
        let living = [self.current.key.public(), self.next.key.public()]
            .into_iter()
            .map(|key| (key, None));
        living.chain(
            self.previous
                .iter()
                .map(|previous| (&previous.key, Some(previous.published_until))),
        )
    }

    /// The set after a change. Keys that `seen` reports as missing are restored, and expired keys
    /// are removed. A promotion makes the next key current and the current key previous; the fresh
    /// key becomes the next one.
    pub fn apply_change(self, change: ReadyChange, seen: &Sightings, now: Moment) -> Self {
        let Self {
            binding,
            current,
            next,
            mut previous,
            handled_rotation,
        } = self;
        previous.retain(|key| !seen.is_over(key.key.kid(), now));
        for missing in seen.missing_keys(now) {
            if previous.len() < MAX_PREVIOUS {
                previous.push(missing);
            }
        }
        match change {
            ReadyChange::Promote { fresh, asked_for } => {
                let published_until = whole_seconds(seen.kept_from(now));
                let now = whole_seconds(seen.latest_time(now));
                previous.push(PreviousKey {
                    key: current.key.public().clone(),
                    published_until,
                });
                Self {
                    binding,
                    current: CurrentKey {
                        key: next.key,
                        published_at: next.published_at,
                        signs_since: now,
                    },
                    next: NextKey {
                        key: fresh,
                        published_at: now,
                    },
                    previous,
                    handled_rotation: asked_for.or(handled_rotation),
                }
            }
            ReadyChange::Tidy => Self {
                binding,
                current,
                next,
                previous,
                handled_rotation,
            },
        }
    }
}

/// A [`Change`] with the data that it needs.
#[derive(Debug)]
pub enum ReadyChange {
    /// The next key becomes the current one.
    Promote {
        /// The new next key.
        fresh: PrivateKey,
        /// The manual rotation request that this carries out, if there is one.
        asked_for: Option<String>,
    },
    /// Expired keys are removed and missing keys are restored, nothing else.
    Tidy,
}

impl ReadyChange {
    /// The kind of change, without its data.
    pub fn kind(&self) -> Change {
        match self {
            Self::Promote { .. } => Change::Promote,
            Self::Tidy => Change::Tidy,
        }
    }
}

/// Truncates to whole seconds, as the stored form does, so that a set reads back as it was written.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
