//! The hub's discovery documents, read again every few seconds. No client's request ever causes a reading.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::reason::Reason;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::publication::Publisher;
use crate::read_again::ReadAgain;

const INTERVAL: Duration = Duration::from_secs(15);
/// AWS and Entra ID read 100 keys of an issuer and no more.
const CROWDED: usize = 80;
/// Before the first good reading there is nothing to serve, so the next try comes sooner.
const FIRST: Duration = Duration::from_secs(1);

/// Follows the hub's documents until the task is dropped.
pub async fn follow(publisher: Publisher, clock: Arc<dyn Clock>, metrics: Metrics, mut read_again: ReadAgain) {
    let mut failing: Option<Reason> = None;
    let mut crowded = false;
    loop {
        let outcome = publisher.refresh().await;
        metrics
            .issuer_read(outcome.as_ref().map(|()| clock.now().wall.as_second()).map_err(super::super::publication::PublishError::reason));
        if outcome.is_ok() {
            crowded = tell(&publisher, &metrics, clock.now().wall.as_second(), crowded);
        }
        match outcome {
            Ok(()) if failing.is_some() => {
                tracing::info!("the hub's discovery documents are read again");
                failing = None;
            }
            Ok(()) => {}
            Err(error) => {
                // Once for each cause, not for each try.
                if failing != Some(error.reason()) {
                    tracing::error!(reason = %error.reason(), %error, hint = hint(&error), "what was published before stays");
                }
                failing = Some(error.reason());
            }
        }
        let pause = if publisher.reader().current().is_some() { INTERVAL } else { FIRST };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = read_again.ordered() => {}
        }
    }
}

/// Counts what is published, and says once when it comes near the number of keys that clouds read.
fn tell(publisher: &Publisher, metrics: &Metrics, at: i64, was_crowded: bool) -> bool {
    let Some(published) = publisher.reader().current() else { return was_crowded };
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &published.jwks.bytes);
    metrics.published(published.keys.kids(), digest.as_ref(), at);
    let (keys, crowded) = (published.keys.len(), published.keys.len() > CROWDED);
    if crowded && !was_crowded {
        tracing::warn!(keys, "the hub publishes many keys: verifiers that read 100 at most will not find the last ones");
    }
    crowded
}

fn hint(error: &crate::publication::PublishError) -> &'static str {
    match error.reason() {
        Reason::HubDiscoveryForbidden => "bind ClusterRole system:service-account-issuer-discovery to Keyferry's ServiceAccount",
        _ => "",
    }
}
