//! The active policy. Readers take a complete one and never see half of a change.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use keyferry_api::config::Policy;
use tokio::sync::watch;

/// Reads the active policy.
#[derive(Clone)]
pub struct PolicyReader {
    current: Arc<ArcSwap<Policy>>,
    changed: watch::Receiver<u64>,
}

/// Replaces the active policy. Each process has one.
pub struct PolicyWriter {
    reader: PolicyReader,
    epoch: watch::Sender<u64>,
}

impl PolicyReader {
    /// Returns the active policy.
    pub fn current(&self) -> Arc<Policy> {
        self.current.load_full()
    }

    /// Borrows the active policy briefly. This changes no reference count, so that concurrent
    /// readers do not contend.
    pub fn borrow(&self) -> Guard<Arc<Policy>> {
        self.current.load()
    }

    /// Subscribes to accepted changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

impl PolicyWriter {
    /// Creates a store with `policy` active.
    pub fn new(policy: Policy) -> Self {
        let (epoch, changed) = watch::channel(0);
        Self {
            reader: PolicyReader {
                current: Arc::new(ArcSwap::from_pointee(policy)),
                changed,
            },
            epoch,
        }
    }

    /// Returns a reader.
    pub fn reader(&self) -> PolicyReader {
        self.reader.clone()
    }

    /// Activates another policy. It applies to every decision from now on, also to requests that
    /// wait for a mint.
    pub fn replace(&self, policy: Policy) {
        self.reader.current.store(Arc::new(policy));
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
}
