//! What one replica has seen of one key set, measured with the monotonic clock.
//!
//! Stored times come from another replica, or from a user who edited the Secret. A replica trusts
//! them only once, for the keys that it finds at its start. From then on it relies on what it has
//! published itself.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::moment::Moment;

use super::SUPERSEDED_KEY_RETENTION;
use super::key_set::{KeySet, PreviousKey};
use crate::jwks::{JwksError, PublicKey, PublicKeySet};

/// Maximum number of keys published for one issuer, including missing ones. Verifiers accept at
/// least a hundred.
pub const MAX_PUBLISHED: usize = 64;

/// A superseded key that is removed at most this long before its end counts as removed at its end,
/// because clocks differ.
const EARLY_REMOVAL_TOLERANCE: Duration = Duration::from_secs(120);

/// One replica's observations of a key set: since when it publishes each key, and which keys are
/// missing.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    origin: Option<String>,
    /// Both clocks at the first reading. A replica that starts with a wrong clock does not get as
    /// far as a reading.
    anchor: Option<Moment>,
    keys: BTreeMap<String, Sighting>,
}

#[derive(Clone, Debug)]
struct Sighting {
    key: PublicKey,
    first_seen: Duration,
    active_from: Duration,
    /// When the publication ends, for a superseded or missing key. Both clocks must have passed it,
    /// because one of them may have jumped.
    end: Option<End>,
    missing: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    wall: Timestamp,
    mono: Duration,
}

impl End {
    /// Places the stored time `wall` on both clocks; `earliest` is the wall time that is assumed
    /// for `now`.
    fn at(wall: Timestamp, earliest: Timestamp, now: Moment) -> Self {
        Self {
            wall,
            mono: now.mono.saturating_add(time_between(earliest, wall)),
        }
    }

    fn passed(self, now: Moment) -> bool {
        now.wall >= self.wall && now.mono >= self.mono
    }
}

impl Sightings {
    /// Applies a reading of the stored set. `origin` identifies the stored object, so that a
    /// deleted and recreated object counts as a different one.
    ///
    /// A key that disappears from the same object before its end stays published, because it may
    /// have signed. A key that disappears with its object does not: deleting the object is how a
    /// stolen key is revoked.
    pub fn note_reading(
        &mut self,
        set: &KeySet,
        origin: &str,
        active_after: Duration,
        now: Moment,
    ) {
        let first = self.origin.is_none();
        self.anchor.get_or_insert(now);
        let (kept_from_now, earliest) = (self.kept_from(now), self.earliest_time(now));
        let same = self.origin.as_deref() == Some(origin);
        let mut keys = std::mem::take(&mut self.keys);
        for (key, published_until) in set.public_keys() {
            let before = keys.remove(key.kid());
            let end = published_until.map(|until| match &before {
                Some(Sighting { end: Some(end), .. }) if end.wall >= until => *end,
                // For this replica the key may have signed until now, whatever the clock of the
                // replica that superseded it said.
                Some(Sighting { end: None, .. }) => {
                    End::at(until.max(kept_from_now), earliest, now)
                }
                _ => End::at(until, earliest, now),
            });
            let sighting = match before {
                Some(before) => Sighting {
                    end,
                    missing: false,
                    ..before
                },
                None => Sighting {
                    key: key.clone(),
                    first_seen: now.mono,
                    active_from: now.mono.saturating_add(if first {
                        still_to_wait(set, key, active_after, now)
                    } else {
                        active_after
                    }),
                    end,
                    missing: false,
                },
            };
            self.keys.insert(key.kid().to_owned(), sighting);
        }
        if same {
            self.retain_missing(keys, now);
        }
        self.origin = Some(origin.to_owned());
    }

    fn retain_missing(&mut self, gone: BTreeMap<String, Sighting>, now: Moment) {
        for (kid, seen) in gone {
            let early = |end: End| end.mono > now.mono.saturating_add(EARLY_REMOVAL_TOLERANCE);
            let retired = !seen.missing && seen.end.is_some_and(|end| !early(end));
            let over = seen.end.is_some_and(|end| end.passed(now));
            if retired || over || self.keys.len() >= MAX_PUBLISHED {
                continue;
            }
            let end = seen
                .end
                .unwrap_or_else(|| End::at(self.kept_from(now), self.earliest_time(now), now));
            self.keys.insert(
                kid,
                Sighting {
                    end: Some(end),
                    missing: true,
                    ..seen
                },
            );
        }
    }

    /// The later of the wall clock and the time that it would show if it had never been set. Used
    /// for times that are written, which must not be too early.
    pub fn latest_time(&self, now: Moment) -> Timestamp {
        self.monotonic_time(now).max(now.wall)
    }

    /// The earlier of the same two times. Used for times that are read, so that no key ends too
    /// early.
    fn earliest_time(&self, now: Moment) -> Timestamp {
        self.monotonic_time(now).min(now.wall)
    }

    fn monotonic_time(&self, now: Moment) -> Timestamp {
        let unset = self.anchor.and_then(|anchor| {
            anchor
                .wall
                .saturating_add(now.mono.saturating_sub(anchor.mono))
                .ok()
        });
        unset.unwrap_or(now.wall)
    }

    /// The end of publication of a key that may have signed a moment ago.
    pub fn kept_from(&self, now: Moment) -> Timestamp {
        self.latest_time(now)
            .saturating_add(SUPERSEDED_KEY_RETENTION)
            .unwrap_or(Timestamp::MAX)
    }

    /// Whether this replica may sign with the key, because the key has been published for the
    /// activation delay. This counts what this replica has seen itself. For a key that it found at
    /// its start, it counts the stored time.
    pub fn is_active(&self, kid: &str, now: Moment) -> bool {
        self.keys
            .get(kid)
            .is_some_and(|seen| now.mono >= seen.active_from)
    }

    /// How long this replica itself has published the key.
    pub fn published_for(&self, kid: &str, now: Moment) -> Option<Duration> {
        self.keys
            .get(kid)
            .map(|seen| now.mono.saturating_sub(seen.first_seen))
    }

    /// Whether the last token that the key can have signed has expired, by both clocks.
    pub fn is_over(&self, kid: &str, now: Moment) -> bool {
        self.keys
            .get(kid)
            .and_then(|seen| seen.end)
            .is_some_and(|end| end.passed(now))
    }

    /// The keys that were removed from the stored set before their end.
    pub fn missing_keys(&self, now: Moment) -> impl Iterator<Item = PreviousKey> {
        let missing = self.keys.values().filter(|seen| seen.missing);
        missing.filter_map(move |seen| {
            let end = seen.end.filter(|end| !end.passed(now))?;
            let published_until = Timestamp::from_second(end.wall.as_second()).unwrap_or(end.wall);
            Some(PreviousKey {
                key: seen.key.clone(),
                published_until,
            })
        })
    }

    /// The keys to publish: every key of the last reading, and the missing ones.
    ///
    /// # Errors
    /// [`JwksError`] before the first reading.
    pub fn published_keys(&self) -> Result<PublicKeySet, JwksError> {
        PublicKeySet::from_keys(self.keys.values().map(|seen| seen.key.clone()))
    }
}

/// How much of the activation delay remains for a key found at the start, by its stored time.
fn still_to_wait(set: &KeySet, key: &PublicKey, active_after: Duration, now: Moment) -> Duration {
    let published_at = [
        (set.current.key.kid(), set.current.published_at),
        (set.next.key.kid(), set.next.published_at),
    ]
    .into_iter()
    .find_map(|(kid, at)| (kid == key.kid()).then_some(at));
    let Some(at) = published_at else {
        return active_after;
    };
    let active_at = at.saturating_add(active_after).unwrap_or(Timestamp::MAX);
    time_between(now.wall, active_at).min(active_after)
}

/// The time from `one` to `other`; zero if `other` is earlier.
fn time_between(one: Timestamp, other: Timestamp) -> Duration {
    Duration::try_from(other.duration_since(one)).unwrap_or_default()
}
