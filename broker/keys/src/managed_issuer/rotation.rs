//! Decides when a key set must change.

use std::time::Duration;

use keyferry_api::moment::Moment;

use super::key_set::{KeySet, MAX_PREVIOUS};
use super::sightings::Sightings;

/// If a key's `signs_since` is further ahead than this, the clock that promoted it was wrong.
const MAX_PROMOTION_SKEW: Duration = Duration::from_secs(24 * 3600);

/// How keys are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    /// The activation delay: how long a key must have been published before it signs
    /// ([`keyferry_api::lifetime::activation_delay`]).
    pub active_after: Duration,
    /// How long a key signs before the next one replaces it.
    pub every: Duration,
}

/// A change that a key set needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The next key becomes the current one.
    Promote,
    /// Expired keys are removed, and keys that were removed too early are restored.
    Tidy,
}

/// The change that is due now, if any. `asked_for` is the manual rotation request on the stored
/// set, if there is one.
///
/// A replica promotes a key only after publishing it itself for the whole activation delay,
/// whatever the stored times say.
pub fn due_change(
    set: &KeySet,
    seen: &Sightings,
    asked_for: Option<&str>,
    policy: &RotationPolicy,
    now: Moment,
) -> Option<Change> {
    let by_hand = asked_for.is_some() && asked_for != set.handled_rotation.as_deref();
    let at = set.current.signs_since;
    let by_schedule = now.wall
        >= at
            .saturating_add(policy.every)
            .unwrap_or(jiff::Timestamp::MAX)
        || now
            .wall
            .saturating_add(MAX_PROMOTION_SKEW)
            .is_ok_and(|limit| at > limit);
    let room = set
        .previous
        .iter()
        .filter(|key| !seen.is_over(key.key.kid(), now))
        .count()
        + seen.missing_keys(now).count()
        < MAX_PREVIOUS;
    let observed = seen
        .published_for(set.next.key.kid(), now)
        .is_some_and(|span| span >= policy.active_after);
    if (by_hand || by_schedule) && room && observed {
        return Some(Change::Promote);
    }
    let over = set
        .previous
        .iter()
        .any(|key| seen.is_over(key.key.kid(), now));
    let missing = set.previous.len() < MAX_PREVIOUS && seen.missing_keys(now).next().is_some();
    (over || missing).then_some(Change::Tidy)
}
