//! The health of a watch, for the readers of its objects.

use std::time::Duration;

use keyferry_api::moment::Moment;

/// Learns how a watch fares.
pub(crate) trait WatchHealth: Sync {
    /// What is watched, for the log.
    fn name(&self) -> &'static str;
    /// The watch has its first complete list and works.
    fn note_listed(&self);
    /// The watch answered.
    fn note_answer(&self);
    /// The watch failed; the first failure counts.
    fn note_failure(&self, now: Moment);
}

/// Whether a watch has listed, and since when it has been failing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchState {
    pub(crate) listed: bool,
    pub(crate) failing_since: Option<Duration>,
}

impl WatchState {
    /// The state of a watch that works.
    pub(crate) const WORKING_STATE: Self = Self {
        listed: true,
        failing_since: None,
    };

    pub(crate) fn note_answer(&mut self) {
        self.failing_since = None;
    }

    pub(crate) fn note_failure(&mut self, now: Moment) {
        self.failing_since.get_or_insert(now.mono);
    }

    /// Whether it has listed and has not been failing for longer than `limit`.
    pub(crate) fn is_current(&self, limit: Duration, now: Moment) -> bool {
        self.listed
            && self
                .failing_since
                .is_none_or(|since| now.mono.saturating_sub(since) <= limit)
    }
}
