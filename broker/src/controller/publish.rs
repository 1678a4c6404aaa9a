//! The hub's discovery documents, read again every few seconds. No client's request ever causes a reading.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::publication::Publisher;
use crate::read_again::ReadAgain;

const INTERVAL: Duration = Duration::from_secs(15);
/// Before the first good reading there is nothing to serve, so the next try comes sooner.
const FIRST: Duration = Duration::from_secs(1);

/// Follows the hub's documents until the task is dropped.
pub async fn follow(publisher: Publisher, clock: Arc<dyn Clock>, metrics: Metrics, mut read_again: ReadAgain) {
    let mut failing = false;
    loop {
        let outcome = publisher.refresh().await;
        metrics
            .issuer_read(outcome.as_ref().map(|()| clock.now().wall.as_second()).map_err(super::super::publication::PublishError::reason));
        match outcome {
            Ok(()) if failing => {
                tracing::info!("the hub's discovery documents are read again");
                failing = false;
            }
            Ok(()) => {}
            Err(error) => {
                if !failing {
                    tracing::error!(reason = %error.reason(), %error, hint = hint(&error), "what was published before stays");
                }
                failing = true;
            }
        }
        let pause = if publisher.reader().current().is_some() { INTERVAL } else { FIRST };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = read_again.ordered() => {}
        }
    }
}

fn hint(error: &crate::publication::PublishError) -> &'static str {
    match error.reason() {
        keyferry_core::reason::Reason::HubDiscoveryForbidden => {
            "bind ClusterRole system:service-account-issuer-discovery to Keyferry's ServiceAccount"
        }
        _ => "",
    }
}
