//! The policy in force. Readers take a whole one; nobody sees half of a change.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use keyferry_core::config::Policy;
use tokio::sync::watch;

/// Reads the policy in force.
#[derive(Clone)]
pub struct PolicyReader {
    current: Arc<ArcSwap<Policy>>,
    changed: watch::Receiver<u64>,
}

/// Writes it. There is one of it.
pub struct PolicyWriter {
    reader: PolicyReader,
    epoch: watch::Sender<u64>,
}

impl PolicyReader {
    /// The policy in force now.
    pub fn current(&self) -> Arc<Policy> {
        self.current.load_full()
    }

    /// The same for a look that ends at once: it is not counted among those who hold it, so looks
    /// do not hinder each other.
    pub fn look(&self) -> Guard<Arc<Policy>> {
        self.current.load()
    }

    /// Told of every accepted change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }
}

impl PolicyWriter {
    /// Puts `policy` in force.
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

    /// The reading half.
    pub fn reader(&self) -> PolicyReader {
        self.reader.clone()
    }

    /// Puts another policy in force; it holds for every decision from now on, also for those that
    /// wait for a mint.
    pub fn replace(&self, policy: Policy) {
        self.reader.current.store(Arc::new(policy));
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
}
