//! Tracks whether this replica leads. Only the leader writes deliveries and statuses, and withdraws
//! keys.
//!
//! Leadership alone does not fence off an old leader: a replica that was paused still believes that
//! it leads when it resumes. So leadership is checked by the monotonic clock right before each
//! write, and each write names the version of the object that it expects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyferry_api::moment::Moment;
use tokio::sync::watch;

/// After how long without a leader this is reported.
const MISSING_AFTER: Duration = Duration::from_secs(60);

/// Reads whether this replica leads.
#[derive(Clone)]
pub struct LeadershipReader {
    until: Arc<AtomicU64>,
    /// When a replica was last seen to lead, by the monotonic clock.
    last_led_at: Arc<AtomicU64>,
    changed: watch::Receiver<bool>,
}

/// Sets whether this replica leads. Each process has one.
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
                last_led_at: Arc::default(),
                changed,
            },
            leads,
        }
    }
}

impl LeadershipWriter {
    /// Returns a reader.
    pub fn reader(&self) -> LeadershipReader {
        self.reader.clone()
    }

    /// Sets until when this replica leads, by the monotonic clock; `None` means that it does not.
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
    /// Notes that a replica, this one or another, led at this time, by the monotonic clock.
    pub fn set_seen(&self, at: Duration) {
        self.reader.last_led_at.store(
            u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            Ordering::SeqCst,
        );
    }
}

impl LeadershipReader {
    /// Whether no replica has been seen to lead for a minute.
    pub fn is_missing(&self, now: Moment) -> bool {
        let since = now.mono.saturating_sub(Duration::from_millis(
            self.last_led_at.load(Ordering::SeqCst),
        ));
        !self.leads(now) && since > MISSING_AFTER
    }

    /// Whether this replica leads at this moment.
    pub fn leads(&self, now: Moment) -> bool {
        u64::try_from(now.mono.as_millis()).is_ok_and(|now| now < self.until.load(Ordering::SeqCst))
    }

    /// Subscribes to changes.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.changed.clone()
    }
}
