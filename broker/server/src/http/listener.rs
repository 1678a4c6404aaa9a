//! Listeners with the certificates that the configuration names, which count in the server's
//! metrics.

use std::sync::Arc;

use keyferry_api::config::Listener;
use keyferry_listener::{ListenError, ListenerMetrics, TlsListener};
use keyferry_platform::metrics::Metrics;

use crate::certificate_source;

pub use keyferry_listener::{Bounds, DiscoveryAuthorityMismatch, ServingCertificateError};

pub use crate::certificate_source::{CertificateAccess, Pod, PodEvents};

/// Reads the serving certificate of a listener and binds its address. If `host` is known, the
/// certificate must be valid for it.
///
/// # Errors
/// [`ListenError`].
pub async fn bind_listener(
    listener: &Listener,
    bounds: Bounds,
    host: Option<&str>,
    access: &CertificateAccess,
    metrics: &Metrics,
) -> Result<TlsListener, ListenError> {
    let source = certificate_source::certificate_source(&listener.tls, access)?;
    TlsListener::bind(listener, bounds, host, source, listener_metrics(metrics)).await
}

/// Checks the serving certificate of a listener, without opening it. Returns what is wrong with the
/// CA certificates beside it, if clients use a known host.
///
/// # Errors
/// The certificate cannot be used.
pub async fn check_certificate(
    listener: &Listener,
    host: Option<&str>,
    access: &CertificateAccess,
) -> Result<Option<DiscoveryAuthorityMismatch>, ServingCertificateError> {
    let source = certificate_source::certificate_source(&listener.tls, access)?;
    keyferry_listener::check_certificate(listener, host, &*source).await
}

/// Counts what happens to listeners in these metrics.
pub fn listener_metrics(metrics: &Metrics) -> Arc<dyn ListenerMetrics> {
    Arc::new(Counted(metrics.clone()))
}

struct Counted(Metrics);

impl ListenerMetrics for Counted {
    fn connection_refused(&self, listener: &'static str, cause: &'static str) {
        self.0.connection_refused(listener, cause);
    }

    fn connection_opened(&self, listener: &'static str) {
        self.0.connection_opened(listener);
    }

    fn connection_ended(&self, listener: &'static str, cause: &'static str) {
        self.0.connection_ended(listener, cause);
    }

    fn connection_paused(&self, listener: &'static str) {
        self.0.connection_paused(listener);
    }

    fn connection_closed(&self, listener: &'static str) {
        self.0.connection_closed(listener);
    }

    fn serving_certificate(&self, listener: &'static str, not_after: i64) {
        self.0.serving_certificate(listener, not_after);
    }

    fn serving_certificate_reloaded(&self, listener: &'static str, good: bool) {
        self.0.serving_certificate_reloaded(listener, good);
    }
}

#[cfg(test)]
mod tests {
    use keyferry_platform::metrics::Metrics;

    use super::listener_metrics;

    #[test]
    fn each_event_has_its_metric() {
        let metrics = Metrics::default();
        let counts = listener_metrics(&metrics);
        for _ in 0..3 {
            counts.connection_opened("api");
        }
        counts.connection_closed("api");
        counts.connection_refused("api", "address_limit");
        counts.connection_ended("health", "idle");
        counts.connection_paused("api");
        counts.serving_certificate("api", 1_700_000_000);
        counts.serving_certificate_reloaded("api", false);
        let text = metrics.exposition();
        for sample in [
            "keyferry_connections_open{listener=\"api\"} 2",
            "keyferry_connections_refused_total{listener=\"api\",cause=\"address_limit\"} 1",
            "keyferry_connections_ended_total{listener=\"health\",cause=\"idle\"} 1",
            "keyferry_connection_pauses_total{listener=\"api\"} 1",
            "keyferry_serving_certificate_not_after_timestamp_seconds{listener=\"api\"} 1700000000",
            "keyferry_serving_certificate_reloads_total{listener=\"api\",result=\"failure\"} 1",
        ] {
            assert!(
                text.lines().any(|line| line == sample),
                "{sample} in {text}"
            );
        }
    }
}
