//! A snapshot of the policy and the hub's live objects, and what it allowed a caller.
//!
//! Policy is replaced as a whole, and the live objects count their changes. So Keyferry knows
//! without a lookup whether a new one would give the same result. A caller that repeats its request
//! gets the same decision while nothing has changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keyferry_api::config::{DeliveryType, Policy};
use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::name::AccessName;
use keyferry_core::authorise::{Pair, Review};
use keyferry_hub::live::LiveObjects;
use keyferry_hub::policy_store::PolicyReader;

/// The policy and the version of the hub's live objects at the start of a lookup.
pub struct View {
    /// The policy at that time.
    pub policy: Arc<Policy>,
    changes: u64,
}

impl View {
    /// Takes a view of the current state. Take it before any lookup, so that a change in between
    /// makes the view outdated.
    pub fn of(policy: &PolicyReader, live: &LiveObjects) -> Self {
        Self {
            changes: live.changes(),
            policy: policy.current(),
        }
    }

    /// Whether a new lookup would find the same.
    pub fn is_current(&self, policy: &PolicyReader, live: &LiveObjects) -> bool {
        Arc::ptr_eq(&self.policy, &policy.look()) && self.changes == live.changes()
    }
}

/// A pair that policy allows, with the hub's review of it.
#[derive(Clone, Debug)]
pub struct ReviewedPair {
    /// What policy allows.
    pub pair: Pair,
    /// The hub's review, if one was needed.
    pub review: Review,
    /// How long the review is valid; `None` if the hub was not asked.
    pub until: Option<Deadline>,
}

/// The last result of one caller. A clone shares it.
#[derive(Clone, Debug, Default)]
pub struct LastReviewed(Arc<Mutex<Option<Remembered>>>);

#[derive(Debug)]
struct Remembered {
    /// Weak, so that no caller keeps an old policy alive. The weak reference also reserves the
    /// address, so that a new policy cannot have the same one.
    policy: Weak<Policy>,
    changes: u64,
    deliveries: &'static [DeliveryType],
    found: ReviewedPair,
}

impl LastReviewed {
    /// Returns the last result, if it was for the same request in the same view and its review is
    /// still valid.
    pub fn recall(
        &self,
        view: &View,
        access: &AccessName,
        deliveries: &[DeliveryType],
        now: Moment,
    ) -> Option<ReviewedPair> {
        let remembered = self.lock();
        let Remembered {
            policy,
            changes,
            deliveries: before,
            found,
        } = remembered.as_ref()?;
        let same_view = policy.as_ptr() == Arc::as_ptr(&view.policy) && *changes == view.changes;
        let same_request = found.pair.access() == access && *before == deliveries;
        let stands = found.until.is_none_or(|until| !until.passed(now));
        (same_view && same_request && stands).then(|| found.clone())
    }

    /// Replaces the remembered result.
    pub fn remember(&self, view: &View, deliveries: &'static [DeliveryType], found: &ReviewedPair) {
        let (policy, changes) = (Arc::downgrade(&view.policy), view.changes);
        *self.lock() = Some(Remembered {
            policy,
            changes,
            deliveries,
            found: found.clone(),
        });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
