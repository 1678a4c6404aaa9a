//! Reloads the hub's discovery documents every few seconds. A client's request never causes a
//! reload here.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_issuer::publication::Publisher;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;

/// How often the hub's documents are read.
pub const READ_INTERVAL: Duration = Duration::from_secs(15);
/// Warn above this number of keys: AWS and Entra ID read at most 100 keys of an issuer.
const MANY_KEYS_WARNING: usize = 80;
/// The pause before the first successful reading, shorter because there is nothing to serve yet.
const FIRST_READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the hub's documents until the task is dropped.
pub async fn run_key_refresh(
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    mut reload_signal: ReloadSignal,
) {
    let mut failing: Option<Reason> = None;
    let mut last_report = LastReport::default();
    loop {
        let outcome = publisher.refresh().await;
        publisher.sync_if_changed().await;
        if outcome.is_ok() {
            last_report =
                last_report.report_changes(&publisher, &metrics, clock.now().wall.as_second());
        }
        metrics.issuer_read(
            outcome
                .as_ref()
                .map(|()| clock.now().wall.as_second())
                .map_err(keyferry_issuer::publication::PublishError::reason),
        );
        match outcome {
            Ok(()) if failing.is_some() => {
                tracing::info!("the hub's discovery documents are read again");
                failing = None;
            }
            Ok(()) => {}
            Err(error) => {
                // Logged once per cause, not per attempt.
                if failing != Some(error.reason()) {
                    tracing::error!(reason = %error.reason(), %error, hint = fix_hint(&error), "what was published before stays");
                }
                failing = Some(error.reason());
            }
        }
        let pause = if publisher.reader().current().is_some() {
            READ_INTERVAL
        } else {
            FIRST_READ_INTERVAL
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = reload_signal.received() => {}
        }
    }
}

/// What was last reported about the published keys.
#[derive(Default)]
struct LastReport {
    etag: String,
    crowded: bool,
}

impl LastReport {
    /// Updates the metrics, logs the keys when they change, and warns once when their number comes
    /// near what clouds read.
    fn report_changes(self, publisher: &Publisher, metrics: &Metrics, at: i64) -> Self {
        let Some(published) = publisher.reader().current() else {
            return self;
        };
        metrics.report_published_keys(published.keys.kids(), &published.jwks.sha256, at);
        if published.jwks.etag != self.etag {
            let kids: Vec<&str> = published.keys.kids().collect();
            tracing::info!(issuer = %published.issuer, ?kids, "these keys are published");
        }
        let (keys, crowded) = (
            published.keys.len(),
            published.keys.len() > MANY_KEYS_WARNING,
        );
        if crowded && !self.crowded {
            tracing::warn!(
                keys,
                "the hub publishes many keys: verifiers that read 100 at most will not find the \
                 last ones"
            );
        }
        Self {
            etag: published.jwks.etag.clone(),
            crowded,
        }
    }
}

fn fix_hint(error: &keyferry_issuer::publication::PublishError) -> &'static str {
    match error.reason() {
        Reason::HubDiscoveryForbidden => {
            "bind ClusterRole system:service-account-issuer-discovery to Keyferry's ServiceAccount"
        }
        _ => "",
    }
}
