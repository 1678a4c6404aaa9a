//! The index of the active policy, made once for each policy.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use keyferry_api::config::Policy;
use keyferry_core::inputs::fleet_index::FleetIndex;
use parking_lot::Mutex;

use crate::policy_store::PolicyReader;

/// A policy with its index.
#[derive(Debug)]
pub struct IndexedPolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its index.
    pub index: FleetIndex,
}

/// Reads the active policy with its index. Clones share the index.
#[derive(Clone)]
pub struct FleetIndexReader {
    policy: PolicyReader,
    last: Arc<ArcSwapOption<IndexedPolicy>>,
    /// Locked while an index is made, so that concurrent readers make only one.
    making: Arc<Mutex<()>>,
}

impl FleetIndexReader {
    /// Creates a reader of the active policy.
    pub fn new(policy: PolicyReader) -> Self {
        Self {
            policy,
            last: Arc::default(),
            making: Arc::default(),
        }
    }

    /// Returns the active policy with its index.
    pub fn current(&self) -> Arc<IndexedPolicy> {
        let policy = self.policy.current();
        if let Some(known) = self.index_of_policy(&policy) {
            return known;
        }
        let _making = self.making.lock();
        if let Some(known) = self.index_of_policy(&policy) {
            return known;
        }
        let made = Arc::new(IndexedPolicy {
            index: FleetIndex::of(&policy),
            policy,
        });
        self.last.store(Some(Arc::clone(&made)));
        made
    }

    fn index_of_policy(&self, policy: &Arc<Policy>) -> Option<Arc<IndexedPolicy>> {
        let last = self.last.load_full();
        last.filter(|last| Arc::ptr_eq(&last.policy, policy))
    }
}
