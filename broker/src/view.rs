//! One look at the policy and the hub's live objects, and what it found for a caller.
//!
//! Policy is replaced as a whole and the live objects count their changes. So it is known whether
//! another look would find the same, without looking; and a caller that asks again for the same has
//! the same answer while nothing has changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keyferry_core::authorise::{Pair, Review};
use keyferry_core::config::{DeliveryType, Policy};
use keyferry_core::moment::{Deadline, Moment};
use keyferry_core::name::AccessName;

use crate::live::LiveObjects;
use crate::policy_store::PolicyReader;

/// The policy and the hub's live objects as they were when a look began.
pub struct View {
    /// The policy.
    pub policy: Arc<Policy>,
    changes: u64,
}

impl View {
    /// Of now. Whatever is looked up is looked up after this: a change in between makes the view an
    /// old one.
    pub fn of(policy: &PolicyReader, live: &LiveObjects) -> Self {
        Self {
            changes: live.changes(),
            policy: policy.current(),
        }
    }

    /// Whether another look would find the same.
    pub fn is_current(&self, policy: &PolicyReader, live: &LiveObjects) -> bool {
        Arc::ptr_eq(&self.policy, &policy.look()) && self.changes == live.changes()
    }
}

/// A pair, and the hub's word on it.
#[derive(Clone, Debug)]
pub struct Found {
    /// What policy allows.
    pub pair: Pair,
    /// What the hub said, where it had to be asked.
    pub review: Review,
    /// How long that stands; nothing if nothing was asked.
    pub until: Option<Deadline>,
}

/// What one caller found last. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub struct LastFound(Arc<Mutex<Option<Remembered>>>);

#[derive(Debug)]
struct Remembered {
    /// Weak, so that no caller keeps an old policy; its place in memory is not used again while
    /// this is there.
    policy: Weak<Policy>,
    changes: u64,
    deliveries: &'static [DeliveryType],
    found: Found,
}

impl LastFound {
    /// What was found, if it was for the same request in the same view and the hub's word on it
    /// still stands.
    pub fn recall(
        &self,
        view: &View,
        access: &AccessName,
        deliveries: &[DeliveryType],
        now: Moment,
    ) -> Option<Found> {
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

    /// Remembers this in the place of what was found before.
    pub fn remember(&self, view: &View, deliveries: &'static [DeliveryType], found: &Found) {
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

#[cfg(all(test, feature = "embedded"))]
mod tests;
