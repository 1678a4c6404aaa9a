//! Time, read in one place and passed in everywhere else.

use std::time::Instant;

use keyferry_core::moment::Moment;

/// A source of both clocks.
pub trait Clock: Send + Sync {
    /// Both clocks, read together.
    fn now(&self) -> Moment;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic side starts now.
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
