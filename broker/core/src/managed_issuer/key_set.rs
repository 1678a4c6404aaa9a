//! A key set as it is stored: what it is for, the key that signs, the one that will, and those that
//! did.

use jiff::Timestamp;

use super::key::PrivateKey;
use super::rotation::Change;
use super::sightings::Sightings;
use crate::audience::Audience;
use crate::issuer::Issuer;
use crate::jwks::PublicKey;
use crate::moment::Moment;
use crate::name::ObjectName;

/// Superseded keys of one set at most. A rotation waits until there is room.
pub const MAX_PREVIOUS: usize = 16;

/// What a key set is for. It never changes: a set made for one audience signs for no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The TargetCluster.
    pub target: ObjectName,
    /// `iss`.
    pub issuer: Issuer,
    /// `aud`, alone.
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

/// A key that signed. Its private half is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousKey {
    /// The public half.
    pub key: PublicKey,
    /// When the last token that it can have signed is over.
    pub published_until: Timestamp,
}

/// One target's key set.
#[derive(Debug)]
pub struct KeySet {
    /// What it is for.
    pub binding: Binding,
    /// The key that signs.
    pub current: CurrentKey,
    /// The key that will.
    pub next: NextKey,
    /// The keys that did, at most [`MAX_PREVIOUS`].
    pub previous: Vec<PreviousKey>,
    /// The last rotation by hand that was carried out, as it was asked for.
    pub handled_rotation: Option<String>,
}

impl KeySet {
    /// A target's first set. Nothing was signed before it, but it is not used before it has
    /// settled: a set made in the place of one that was deleted looks the same, and verifiers may
    /// hold a copy of that one.
    pub fn first(binding: Binding, current: PrivateKey, next: PrivateKey, now: Moment) -> Self {
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

    /// Every public key with the time at which it is over, where that is known already.
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

    /// The set after a change: what `seen` says is missing comes back, what it says is over goes,
    /// and a promotion moves each key on by one place, the freshly made one coming in as the next.
    pub fn changed(self, change: ReadyChange, seen: &Sightings, now: Moment) -> Self {
        let Self {
            binding,
            current,
            next,
            mut previous,
            handled_rotation,
        } = self;
        previous.retain(|key| !seen.is_over(key.key.kid(), now));
        for missing in seen.missing(now) {
            if previous.len() < MAX_PREVIOUS {
                previous.push(missing);
            }
        }
        match change {
            ReadyChange::Promote { fresh, asked_for } => {
                let published_until = whole_seconds(seen.kept_from(now));
                let now = whole_seconds(seen.latest(now));
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

/// A [`Change`] with what it needs.
#[derive(Debug)]
pub enum ReadyChange {
    /// The next key becomes the current one.
    Promote {
        /// The new next key.
        fresh: PrivateKey,
        /// The request by hand that this carries out, if one stands.
        asked_for: Option<String>,
    },
    /// Nothing but what is over or missing.
    Tidy,
}

impl ReadyChange {
    /// Which change it is.
    pub fn kind(&self) -> Change {
        match self {
            Self::Promote { .. } => Change::Promote,
            Self::Tidy => Change::Tidy,
        }
    }
}

/// The stored form has whole seconds; what is written must be what is read again.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
