//! Whether this replica leads. Only the leader writes deliveries and statuses, and withdraws keys.
//!
//! Leading is no admission policy: a replica that was stopped wakes up believing what it believed. So it is
//! asked by the monotonic clock right before each write, and each write names the very object that
//! it is to meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyferry_core::moment::Moment;
use tokio::sync::watch;

/// After how long without a leader that is said.
const MISSING_AFTER: Duration = Duration::from_secs(60);

/// Reads it.
#[derive(Clone)]
pub struct LeadershipReader {
    until: Arc<AtomicU64>,
    /// When a replica was last seen to lead, by the monotonic clock.
    seen: Arc<AtomicU64>,
    changed: watch::Receiver<bool>,
}

/// Writes it. There is one of it.
pub struct LeadershipWriter {
    reader: LeadershipReader,
    leads: watch::Sender<bool>,
}

impl Default for LeadershipWriter {
    fn default() -> Self {
        let (leads, changed) = watch::channel(false);
        Self {
            reader: LeadershipReader {
                until: Arc::default(),
                seen: Arc::default(),
                changed,
            },
            leads,
        }
    }
}

impl LeadershipWriter {
    /// The reading half.
    pub fn reader(&self) -> LeadershipReader {
        self.reader.clone()
    }

    /// This replica leads until then, by the monotonic clock; nothing means that it does not.
    pub fn set(&self, until: Option<Duration>) {
        let millis = until.map_or(0, |until| {
            u64::try_from(until.as_millis()).unwrap_or(u64::MAX)
        });
        self.reader.until.store(millis, Ordering::SeqCst);
        self.leads
            .send_if_modified(|leads| std::mem::replace(leads, until.is_some()) != until.is_some());
    }
}

impl LeadershipWriter {
    /// A replica, this one or another, was seen to lead then, by the monotonic clock.
    pub fn set_seen(&self, at: Duration) {
        self.reader.seen.store(
            u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            Ordering::SeqCst,
        );
    }
}

impl LeadershipReader {
    /// Whether no replica has been seen to lead for a minute.
    pub fn is_missing(&self, now: Moment) -> bool {
        let since = now
            .mono
            .saturating_sub(Duration::from_millis(self.seen.load(Ordering::SeqCst)));
        !self.leads(now) && since > MISSING_AFTER
    }

    /// Whether this replica leads at this moment.
    pub fn leads(&self, now: Moment) -> bool {
        u64::try_from(now.mono.as_millis()).is_ok_and(|now| now < self.until.load(Ordering::SeqCst))
    }

    /// Told of every change.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.changed.clone()
    }
}
