//! A clock that a test advances.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::moment::Moment;
use parking_lot::Mutex;

use crate::clock::Clock;

/// A wall clock and a monotonic clock that a test advances.
#[derive(Debug)]
pub struct FakeClock(Mutex<Moment>);

impl FakeClock {
    /// Creates a clock that stands still.
    pub fn start() -> Arc<Self> {
        let wall = Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH);
        Arc::new(Self(Mutex::new(Moment {
            wall,
            mono: Duration::from_secs(1000),
        })))
    }

    /// Advances both clocks.
    pub fn advance(&self, span: Duration) {
        let mut now = self.0.lock();
        now.wall = now.wall.saturating_add(span).unwrap_or(Timestamp::MAX);
        now.mono += span;
    }

    /// Advances the monotonic clock alone, by which rates count.
    pub fn advance_monotonic(&self, span: Duration) {
        self.0.lock().mono += span;
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Moment {
        *self.0.lock()
    }
}
