//! Spans of time.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// A span of time with at least one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    from: Timestamp,
    until: Option<Timestamp>,
}

impl Window {
    /// From a moment, without an end that is known.
    pub fn since(from: Timestamp) -> Self {
        Self { from, until: None }
    }

    /// From one moment to another; `None` if it has no length. Without an `until`, its end is not
    /// known.
    pub fn between(from: Timestamp, until: Option<Timestamp>) -> Option<Self> {
        until
            .is_none_or(|until| from < until)
            .then_some(Self { from, until })
    }

    /// Its first moment.
    pub fn from(self) -> Timestamp {
        self.from
    }

    /// Its last moment; `None` if that is not known.
    pub fn until(self) -> Option<Timestamp> {
        self.until
    }

    /// Whether a moment lies in it.
    pub fn contains(self, moment: Timestamp) -> bool {
        self.from <= moment && self.until.is_none_or(|until| moment <= until)
    }

    /// Whether the whole of another window lies in it.
    pub fn encloses(self, other: Self) -> bool {
        let ends_later = match (self.until, other.until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => other <= own,
        };
        self.from <= other.from && ends_later
    }

    /// The shortest window that has both.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        let until = match (self.until, other.until) {
            (Some(own), Some(other)) => Some(own.max(other)),
            _ => None,
        };
        Self {
            from: self.from.min(other.from),
            until,
        }
    }
}

/// The moment `later` after `at`.
pub(super) fn after(at: Timestamp, later: Duration) -> Timestamp {
    at.saturating_add(later).unwrap_or(Timestamp::MAX)
}

/// The moment `earlier` before `at`.
pub(super) fn before(at: Timestamp, earlier: Duration) -> Timestamp {
    at.saturating_sub(earlier).unwrap_or(Timestamp::MIN)
}

/// A time as documents and tables show it.
pub(super) fn printed(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
