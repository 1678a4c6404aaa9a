//! The inputs of 10,000 clusters: how long a read takes, and what memory Keyferry needs. Measured
//! on request alone.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::https::HttpsServer;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::{Broker, BrokerSpec, Ground};
use serde_json::json;

use super::stage::{bearer, new_credential, token_of};

const CLUSTERS: usize = 10_000;
/// Components of each cluster.
const COMPONENTS: usize = 20;
/// Reads of each round, from Keyferry and from the plain handler.
const READS: usize = 2_000;
const ROUNDS: usize = 5;
/// Writes to the hub at once.
const MAX_CONCURRENT_WRITES: usize = 16;

/// A hub with the ConfigMaps of all clusters, and nothing else.
pub(super) struct Fleet {
    ground: Ground,
    hub: Arc<ControlPlane>,
}

impl Fixture for Fleet {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Fleet {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        let hub = ground
            .hub(ControlPlaneSpec::named("hub"))
            .await
            .map_err(NotStarted::failed)?;
        Ok(Self { ground, hub })
    }

    async fn put_config_maps(&self) -> Result<(), TestError> {
        let data: serde_json::Map<_, _> = (0..COMPONENTS)
            .map(|component| {
                let text = format!("version: \"1.{component}.0\"\nreplicas: 2\n");
                (format!("component-{component}"), json!(text))
            })
            .collect();
        let path = "/api/v1/namespaces/keyferry-system/configmaps";
        let writes = stream::iter(0..CLUSTERS).map(|cluster| {
            let metadata = json!({ "name": format!("keyferry-inputs-c{cluster}") });
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
            });
            async move { self.hub.admin().create(path, &object).await.map(drop) }
        });
        let written: Vec<_> = writes
            .buffer_unordered(MAX_CONCURRENT_WRITES)
            .collect()
            .await;
        Ok(written.into_iter().collect::<Result<(), _>>()?)
    }
}

fn targets() -> String {
    (0..CLUSTERS).fold(String::new(), |mut text, cluster| {
        let _ = write!(
            text,
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\n\
             metadata: {{name: c{cluster}}}\n\
             spec:\n  address: https://c{cluster}.keyferry.test\n  audience: c{cluster}\n\
             \x20 probe: \"Off\"\n\
             \x20 identity: {{clusterName: c{cluster}, clusterDNS: c{cluster}.fleet.test, \
             environment: test}}\n"
        );
        text
    })
}

pub(super) async fn ten_thousand_clusters(fleet: Arc<Fleet>) -> TestResult {
    let [hub_file, child_file] = new_credential(&fleet.ground, "platform", &["--admin"]).await?;
    keyferry_integration::rbac::apply_manifests(&fleet.hub, &[&hub_file]).await?;
    let token = token_of(&child_file)?;
    let lines = "inputs:\n  enabled: true\n  requestsPerSecond: 0\n  credentials:\n\
                 \x20   - {name: platform, scope: Admin, secretRef: {name: keyferry-input-platform}}\n";
    let spec = BrokerSpec::of_hub("scale", &fleet.hub).with_server_lines(lines);
    let broker = fleet.ground.start_installed(&fleet.hub, spec).await?;
    let idle = resident_kib(&broker)?;
    let text = std::fs::read_to_string(broker.config())? + &targets();
    broker.rewrite_config(&text, "success").await?;
    until_read(&broker, &token, "cluster").await?;
    let named = resident_kib(&broker)?;
    fleet.put_config_maps().await?;
    until_read(&broker, &token, "platform-components").await?;
    let full = resident_kib(&broker)?;
    eprintln!(
        "resident memory: {} MiB without targets, {} MiB with {CLUSTERS} targets, {} MiB with \
         their ConfigMaps of {COMPONENTS} components",
        idle / 1024,
        named / 1024,
        full / 1024
    );
    for (view, at_once) in [
        ("cluster", 1),
        ("accesses", 1),
        ("platform-components", 1),
        ("platform-components", 16),
    ] {
        compare(&fleet, &broker, &token, view, at_once).await?;
    }
    Ok(())
}

/// Reads from Keyferry and from a plain axum handler with the same body, in turns.
async fn compare(
    fleet: &Fleet,
    broker: &Broker,
    token: &str,
    view: &str,
    at_once: usize,
) -> TestResult {
    let keyferry = Reader {
        base: broker.api_url(),
        client: broker.http().clone(),
        token: token.to_owned(),
    };
    let body = keyferry.body(CLUSTERS / 2, view).await?;
    let bytes = body.len();
    let plain = PlainHandler::start(&fleet.ground, body)?;
    let of_plain = Reader {
        base: plain.url.clone(),
        ..keyferry.clone()
    };
    let mut times = [Vec::new(), Vec::new()];
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let mut medians = [Duration::ZERO; 2];
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let reader = if which == 0 { &of_plain } else { &keyferry };
            let mut read = reader.read_all(view, at_once).await?;
            read.sort();
            medians[which] = share(&read, 50);
            times[which].append(&mut read);
        }
        ratios.push(medians[1].as_secs_f64() / medians[0].as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let [plain, own] = times.map(|mut times| {
        times.sort();
        [share(&times, 50), share(&times, 99)].map(|time| time.as_micros())
    });
    eprintln!(
        "{view}, {bytes} bytes, {at_once} at once: p50 {} us, p99 {} us; plain handler p50 {} us, \
         p99 {} us; ratio of p50 {:.2} ({:.2} to {:.2})",
        own[0],
        own[1],
        plain[0],
        plain[1],
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
    assert!(own[1] < 1_000_000, "a read is slow");
    Ok(())
}

fn share(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * percent / 100)
        .copied()
        .unwrap_or_default()
}

/// An axum handler that answers every path with one body, on its own threads.
struct PlainHandler {
    url: String,
    runtime: Option<tokio::runtime::Runtime>,
    _server: HttpsServer,
}

impl Drop for PlainHandler {
    fn drop(&mut self) {
        // A runtime must not wait for its threads where others run.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl PlainHandler {
    fn start(ground: &Ground, body: String) -> Result<Self, TestError> {
        let certificate = ground.ca().serving("plain-handler", &[])?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let body = axum::body::Bytes::from(body);
        let answer = move || {
            let body = body.clone();
            async move { ([("content-type", "application/json")], body) }
        };
        let routes = axum::Router::new().fallback(answer);
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _ = sender.send(HttpsServer::start(&certificate, routes).await);
        });
        let server = receiver.recv()??;
        Ok(Self {
            url: server.url(),
            runtime: Some(runtime),
            _server: server,
        })
    }
}

/// A client of Keyferry, or of the plain handler.
#[derive(Clone)]
struct Reader {
    base: String,
    client: reqwest::Client,
    token: String,
}

impl Reader {
    async fn read_all(&self, view: &str, at_once: usize) -> Result<Vec<Duration>, TestError> {
        let reads = stream::iter(0..READS).map(|read| async move {
            let started = Instant::now();
            let (status, _) = self.read((read * 7919) % CLUSTERS, view).await?;
            assert_eq!(status, 200);
            Ok::<_, TestError>(started.elapsed())
        });
        let times: Vec<_> = reads.buffer_unordered(at_once).collect().await;
        times.into_iter().collect()
    }

    async fn body(&self, cluster: usize, view: &str) -> Result<String, TestError> {
        let (status, body) = self.read(cluster, view).await?;
        assert_eq!(status, 200, "{body}");
        Ok(body)
    }

    async fn read(&self, cluster: usize, view: &str) -> Result<(u16, String), TestError> {
        let path = format!("/api/v2/flux/clusters/c{cluster}.fleet.test/{view}");
        let response = self
            .client
            .get(format!("{}{path}", self.base))
            .header("authorization", bearer(&self.token))
            .send()
            .await?;
        Ok((response.status().as_u16(), response.text().await?))
    }
}

/// Waits until the last cluster is served.
async fn until_read(broker: &Broker, token: &str, view: &str) -> Result<(), TestError> {
    let limit = Instant::now() + Duration::from_secs(120);
    let reader = Reader {
        base: broker.api_url(),
        client: broker.http().clone(),
        token: token.to_owned(),
    };
    while reader.read(CLUSTERS - 1, view).await?.0 != 200 {
        if Instant::now() > limit {
            return Err(format!("{view} of the last cluster is not served").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn resident_kib(broker: &Broker) -> Result<u64, TestError> {
    let id = broker.process().id().ok_or("Keyferry has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse()?)
}
