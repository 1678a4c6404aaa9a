//! Mistakes that a test plants around the real parts, to see that the invariants find them.

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Every replica believes that it leads.
    LeaderIgnoresLease,
    /// The monotonic clock of one replica runs at a third of its rate.
    LeaderClockSlow,
    /// The delivery looks at a clock that lags, so it writes after its term has ended.
    LeaderTermOutlived,
    /// A key is active as soon as it is published.
    NoActivationDelay,
    /// One replica does not share the key journal.
    JournalNotShared,
    /// A process that starts reads the first key journal ever written.
    JournalRolledBack,
    /// Audit records are lost, and reported as written.
    RecordDropped,
    /// Audit records are reported as written before they are.
    RecordLate,
    /// The watch reports health and brings nothing.
    WatchBlind,
}
