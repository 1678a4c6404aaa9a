//! The clock, read in one place and injected everywhere else.

use std::time::Instant;

use keyferry_api::moment::Moment;

/// A source of the wall clock and the monotonic clock.
pub trait Clock: Send + Sync {
    /// Reads both clocks together.
    fn now(&self) -> Moment;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Creates clocks whose monotonic time starts now.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clocks"
    )]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clocks"
    )]
    fn now(&self) -> Moment {
        Moment {
            wall: jiff::Timestamp::now(),
            mono: self.start.elapsed(),
        }
    }
}
