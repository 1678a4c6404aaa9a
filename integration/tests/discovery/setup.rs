//! A Keyferry that reads the hub's documents through a chaos proxy.

use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::ChaosProxy;
use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Broker, BrokerSpec, World};

/// The path of the provider metadata document, at the hub and at Keyferry.
pub(crate) const METADATA: &str = "/.well-known/openid-configuration";
/// The path of the key set, at the hub and at Keyferry.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

/// A Keyferry behind a chaos proxy.
pub(crate) struct Behind {
    pub(crate) proxy: ChaosProxy,
    pub(crate) broker: Broker,
}

/// One document as a verifier sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) bytes: Vec<u8>,
    pub(crate) etag: String,
    pub(crate) content_type: String,
    pub(crate) cache_control: String,
}

impl Behind {
    pub(crate) async fn start(world: &World, name: &str) -> Result<Self, TestError> {
        let proxy = ChaosProxy::in_front_of(world.hub()).await?;
        let broker = world
            .start_broker(
                world.hub(),
                BrokerSpec::of_hub(name, world.hub())
                    .alone()
                    .through(&proxy.url()),
            )
            .await?;
        let behind = Self { proxy, broker };
        // It becomes ready a moment before its first reading is counted.
        let limit = Instant::now() + Duration::from_secs(13);
        while behind
            .broker
            .metric("keyferry_issuer_reads_total{result=\"success\",reason=\"Ready\"}")
            .await?
            < 1.0
        {
            assert!(Instant::now() < limit, "no reading is counted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(behind)
    }

    /// Requests a reading of the hub's documents by signal, and waits until one has ended with this
    /// result.
    pub(crate) async fn reload_signal(&self, result: &str, reason: &str) -> TestResult {
        let metric =
            format!("keyferry_issuer_reads_total{{result=\"{result}\",reason=\"{reason}\"}}");
        let before = self.broker.metric(&metric).await?;
        self.broker.process().hang_up().await?;
        // Two calls of five seconds, if the hub is as slow as allowed.
        let limit = Instant::now() + Duration::from_secs(13);
        while self.broker.metric(&metric).await? <= before {
            if Instant::now() > limit {
                let metrics = plain_client()?
                    .get(format!("{}/metrics", self.broker.health_url()))
                    .send()
                    .await?
                    .text()
                    .await?;
                let reads: Vec<&str> = metrics
                    .lines()
                    .filter(|line| line.starts_with("keyferry_issuer_reads"))
                    .collect();
                return Err(format!("no reading ended as {metric}: {reads:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The number of requests to the hub for either document.
    pub(crate) fn upstream_reads(&self) -> u64 {
        self.proxy.count(&Method::GET, METADATA) + self.proxy.count(&Method::GET, KEYS)
    }
}

/// Fetches both documents, metadata first.
pub(crate) async fn published(broker: &Broker) -> Result<[Document; 2], TestError> {
    Ok([
        document(broker, METADATA).await?,
        document(broker, KEYS).await?,
    ])
}

/// Fetches one document.
pub(crate) async fn document(broker: &Broker, path: &str) -> Result<Document, TestError> {
    Document::of(
        broker
            .http()
            .get(format!("{}{path}", broker.discovery_url()))
            .send()
            .await?,
    )
    .await
}

impl Document {
    pub(crate) async fn of(answer: reqwest::Response) -> Result<Self, TestError> {
        assert_eq!(answer.status(), 200);
        let header = |name: &str| {
            answer
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (etag, content_type, cache_control) = (
            header("etag"),
            header("content-type"),
            header("cache-control"),
        );
        Ok(Self {
            bytes: answer.bytes().await?.to_vec(),
            etag,
            content_type,
            cache_control,
        })
    }

    pub(crate) fn json(&self) -> Result<serde_json::Value, TestError> {
        Ok(serde_json::from_slice(&self.bytes)?)
    }
}
