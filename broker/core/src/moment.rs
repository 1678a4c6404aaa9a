//! Time as the core gets it: two clocks read at once.

use std::time::Duration;

use jiff::Timestamp;

/// One reading of both clocks.
///
/// A deadline holds only while both agree: the wall clock can be set back, the monotonic clock can stand still while a machine
/// sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Wall time.
    pub wall: Timestamp,
    /// Time since an arbitrary start that never goes back.
    pub mono: Duration,
}

/// A point in time held on both clocks; it has passed as soon as one of them says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    wall_seconds: i64,
    mono: Duration,
}

impl Deadline {
    /// The deadline at `expires` on the wall clock, seen from `now`.
    pub fn at(expires: Timestamp, now: Moment) -> Deadline {
        let left = expires.as_second().saturating_sub(now.wall.as_second());
        let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
        Deadline { wall_seconds: expires.as_second(), mono: now.mono.saturating_add(left) }
    }

    /// The deadline `span` after `now`.
    pub fn after(span: Duration, now: Moment) -> Deadline {
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        Deadline { wall_seconds: now.wall.as_second().saturating_add(seconds), mono: now.mono.saturating_add(span) }
    }

    /// The time left: the smaller of what the two clocks leave, zero once passed.
    pub fn left(&self, now: Moment) -> Duration {
        let wall = self.wall_seconds.saturating_sub(now.wall.as_second());
        let wall = Duration::from_secs(u64::try_from(wall).unwrap_or(0));
        wall.min(self.mono.saturating_sub(now.mono))
    }

    /// Whether nothing is left.
    pub fn passed(&self, now: Moment) -> bool {
        self.left(now).is_zero()
    }

    /// The deadline on the wall clock.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_second(self.wall_seconds).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{Deadline, Moment};

    fn moment(wall: i64, mono: u64) -> Moment {
        Moment { wall: Timestamp::from_second(wall).unwrap(), mono: Duration::from_secs(mono) }
    }

    #[test]
    fn the_earlier_clock_wins() {
        let deadline = Deadline::at(Timestamp::from_second(1_000).unwrap(), moment(900, 5));
        assert_eq!(deadline.left(moment(900, 5)), Duration::from_secs(100));
        assert_eq!(deadline.left(moment(900, 65)), Duration::from_secs(40), "the wall clock was set back");
        assert_eq!(deadline.left(moment(990, 6)), Duration::from_secs(10), "the machine slept");
        assert!(deadline.passed(moment(1_000, 6)));
        assert!(deadline.passed(moment(2_000, 6)), "no underflow long after");
    }

    #[test]
    fn a_deadline_in_the_past_has_passed_at_once() {
        let deadline = Deadline::at(Timestamp::from_second(10).unwrap(), moment(900, 5));
        assert!(deadline.passed(moment(900, 5)));
        assert!(deadline.passed(moment(5, 5)), "not even when the wall clock is set back");
    }
}
