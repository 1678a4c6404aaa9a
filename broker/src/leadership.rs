//! Whether this replica leads. Only the leader writes deliveries and statuses, and withdraws keys.
//!
//! Leading is no fence: a replica that was stopped wakes up believing what it believed. So it is asked by the monotonic clock right before
//! each write, and each write names the very object that it is to meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyferry_core::moment::Moment;
use tokio::sync::watch;

/// Reads it.
#[derive(Clone)]
pub struct LeadershipReader {
    until: Arc<AtomicU64>,
    changed: watch::Receiver<bool>,
}

/// Writes it. There is one of it.
pub struct LeadershipWriter {
    reader: LeadershipReader,
    leads: watch::Sender<bool>,
}

impl Default for LeadershipWriter {
    fn default() -> LeadershipWriter {
        let (leads, changed) = watch::channel(false);
        LeadershipWriter { reader: LeadershipReader { until: Arc::default(), changed }, leads }
    }
}

impl LeadershipWriter {
    /// The reading half.
    pub fn reader(&self) -> LeadershipReader {
        self.reader.clone()
    }

    /// This replica leads until then, by the monotonic clock; nothing means that it does not.
    pub fn set(&self, until: Option<Duration>) {
        let millis = until.map_or(0, |until| u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
        self.reader.until.store(millis, Ordering::SeqCst);
        self.leads.send_if_modified(|leads| std::mem::replace(leads, until.is_some()) != until.is_some());
    }
}

impl LeadershipReader {
    /// Whether this replica leads at this moment.
    pub fn leads(&self, now: Moment) -> bool {
        u64::try_from(now.mono.as_millis()).is_ok_and(|now| now < self.until.load(Ordering::SeqCst))
    }

    /// Told of every change.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.changed.clone()
    }
}
