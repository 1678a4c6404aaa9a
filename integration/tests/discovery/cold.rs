//! Tests the state before the hub's documents have been read for the first time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Broker, BrokerSpec, World};

use super::setup::{KEYS, METADATA, published};

/// A client may open a connection for each request. The listener ends a handshake after 3 s, and a
/// busy machine needs longer for 500 at once.
const MAX_CONCURRENT_HANDSHAKES: usize = 32;

/// Keyferry is live but not ready, and serves nothing that a verifier or a cache could take for a
/// document.
pub(super) async fn before_the_first_reading(world: Arc<World>) -> TestResult {
    let proxy = ChaosProxy::in_front_of(world.hub()).await?;
    proxy.add(Rule::on(
        Method::GET,
        KEYS,
        Fault::Status {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            headers: Vec::new(),
            body: Vec::new(),
        },
    ));
    let spec = BrokerSpec::of_hub("cold", world.hub())
        .alone()
        .through(&proxy.url())
        .not_ready_yet();
    let broker = world.start_broker(world.hub(), spec).await?;
    assert_eq!(health(&broker, "/readyz").await?, 503);

    let (started, before) = (Instant::now(), proxy.count(&Method::GET, KEYS));
    let requests = (0..500).map(|number| no_answer(&broker, [METADATA, KEYS][number % 2]));
    stream::iter(requests)
        .buffer_unordered(MAX_CONCURRENT_HANDSHAKES)
        .try_collect::<()>()
        .await?;
    let reads = proxy.count(&Method::GET, KEYS) - before;
    assert!(
        reads <= started.elapsed().as_secs() + 2,
        "500 requests caused {reads} readings of the hub in {:?}",
        started.elapsed()
    );
    assert_eq!(health(&broker, "/livez").await?, 200);

    proxy.clear();
    let limit = Instant::now() + Duration::from_secs(15);
    while health(&broker, "/readyz").await? != 200 {
        assert!(
            Instant::now() < limit,
            "not ready 15 s after the hub was well"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let issuers = [
        published(&broker).await?[0].json()?["issuer"].take(),
        published(world.broker()).await?[0].json()?["issuer"].take(),
    ];
    assert_eq!(issuers[0], issuers[1]);
    Ok(())
}

async fn no_answer(broker: &Broker, path: &str) -> TestResult {
    let answer = broker
        .http()
        .get(format!("{}{path}", broker.discovery_url()))
        .send()
        .await?;
    assert_eq!(answer.status(), 503, "neither 404 nor an empty set");
    assert!(
        answer
            .headers()
            .get("cache-control")
            .is_some_and(|value| value == "no-store")
    );
    assert!(!answer.headers().contains_key("etag"));
    Ok(())
}

async fn health(broker: &Broker, path: &str) -> Result<u16, TestError> {
    Ok(plain_client()?
        .get(format!("{}{path}", broker.health_url()))
        .send()
        .await?
        .status()
        .as_u16())
}
