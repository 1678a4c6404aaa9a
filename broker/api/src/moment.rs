//! Time for decisions: two clocks read at once.

use std::time::Duration;

use jiff::Timestamp;

/// One reading of both clocks.
///
/// A deadline holds only while both agree: the wall clock can be set back, the monotonic clock can
/// stand still while a machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Wall time.
    pub wall: Timestamp,
    /// Time since an arbitrary start that never goes back.
    pub mono: Duration,
}

/// A point in time on both clocks. It has passed as soon as one of them has reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    wall: Timestamp,
    mono: Duration,
}

impl Deadline {
    /// The deadline at `expires` on the wall clock, seen from `now`.
    pub fn at(expires: Timestamp, now: Moment) -> Self {
        Self {
            wall: expires,
            mono: now.mono.saturating_add(from_to(now.wall, expires)),
        }
    }

    /// The deadline `span` after `now`.
    pub fn after(span: Duration, now: Moment) -> Self {
        Self {
            wall: now.wall.saturating_add(span).unwrap_or(Timestamp::MAX),
            mono: now.mono.saturating_add(span),
        }
    }

    /// The time left: the smaller of what the two clocks leave, zero once passed.
    pub fn left(&self, now: Moment) -> Duration {
        from_to(now.wall, self.wall).min(self.mono.saturating_sub(now.mono))
    }

    /// Whether no time is left.
    pub fn passed(&self, now: Moment) -> bool {
        self.left(now).is_zero()
    }

    /// The deadline on the wall clock.
    pub fn wall(&self) -> Timestamp {
        self.wall
    }
}

/// The time from `one` to `other`; zero if `other` is earlier.
fn from_to(one: Timestamp, other: Timestamp) -> Duration {
    Duration::try_from(other.duration_since(one)).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{Deadline, Moment};

    fn moment(wall: i64, mono: u64) -> Moment {
        Moment {
            wall: Timestamp::from_second(wall).unwrap(),
            mono: Duration::from_secs(mono),
        }
    }

    #[test]
    fn the_earlier_clock_wins() {
        let deadline = Deadline::at(Timestamp::from_second(1_000).unwrap(), moment(900, 5));
        assert_eq!(deadline.left(moment(900, 5)), Duration::from_secs(100));
        assert_eq!(
            deadline.left(moment(900, 65)),
            Duration::from_secs(40),
            "the wall clock was set back"
        );
        assert_eq!(
            deadline.left(moment(990, 6)),
            Duration::from_secs(10),
            "the machine slept"
        );
        assert!(deadline.passed(moment(1_000, 6)));
        assert!(deadline.passed(moment(2_000, 6)), "no underflow long after");
    }

    #[test]
    fn a_span_that_begins_late_in_a_second_is_not_shorter() {
        let at = |millis: i64, mono| Moment {
            wall: Timestamp::from_millisecond(millis).unwrap(),
            mono: Duration::from_millis(mono),
        };
        let deadline = Deadline::after(Duration::from_secs(10), at(100_900, 0));
        assert_eq!(
            deadline.left(at(110_000, 9_100)),
            Duration::from_millis(900)
        );
        assert!(deadline.passed(at(110_900, 10_000)));
    }

    #[test]
    fn a_deadline_in_the_past_has_passed_at_once() {
        let deadline = Deadline::at(Timestamp::from_second(10).unwrap(), moment(900, 5));
        assert!(deadline.passed(moment(900, 5)));
        assert!(
            deadline.passed(moment(5, 5)),
            "not even when the wall clock is set back"
        );
    }
}
