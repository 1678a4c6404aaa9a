//! What a listener counts.

/// Counts what happens to the connections of listeners and to their certificates. Every method gets
/// the listener's name.
pub trait ListenerMetrics: Send + Sync {
    /// A connection was not served.
    fn connection_refused(&self, listener: &'static str, cause: &'static str);
    /// A connection is open.
    fn connection_opened(&self, listener: &'static str);
    /// The listener ends an open connection.
    fn connection_ended(&self, listener: &'static str, cause: &'static str);
    /// A connection is not read from for a moment, because its source sends too many requests.
    fn connection_paused(&self, listener: &'static str);
    /// An open connection is closed, whichever side closed it.
    fn connection_closed(&self, listener: &'static str);
    /// The certificate in use expires at this time, in seconds since 1970.
    fn serving_certificate(&self, listener: &'static str, not_after: i64);
    /// A changed certificate is used, or cannot be.
    fn serving_certificate_reloaded(&self, listener: &'static str, good: bool);
}
