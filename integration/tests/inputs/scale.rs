//! The inputs of 10,000 clusters: how long a read takes, and what memory Keyferry needs. Measured
//! on request alone.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use http::Method;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::{Broker, BrokerSpec, Ground};
use serde_json::json;

use super::stage::{bearer, new_credential, token_of};

const CLUSTERS: usize = 10_000;
/// Components of each cluster.
const COMPONENTS: usize = 20;
/// Reads of each measurement.
const READS: usize = 5_000;
/// Writes to the hub at once.
const AT_ONCE: usize = 16;

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
        let written: Vec<_> = writes.buffer_unordered(AT_ONCE).collect().await;
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
        let mut times = read_all(&broker, &token, view, at_once).await?;
        times.sort();
        let at = |share: usize| {
            times
                .get(times.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        eprintln!(
            "{view}, {at_once} at once: p50 {:?}, p99 {:?}",
            at(50),
            at(99)
        );
        assert!(at(99) < Duration::from_secs(1), "a read is slow");
    }
    Ok(())
}

async fn read_all(
    broker: &Broker,
    token: &str,
    view: &str,
    at_once: usize,
) -> Result<Vec<Duration>, TestError> {
    let reads = stream::iter(0..READS).map(|read| async move {
        let started = Instant::now();
        let status = read_one(broker, token, (read * 7919) % CLUSTERS, view).await?;
        assert_eq!(status, 200);
        Ok::<_, TestError>(started.elapsed())
    });
    let times: Vec<_> = reads.buffer_unordered(at_once).collect().await;
    times.into_iter().collect()
}

async fn read_one(
    broker: &Broker,
    token: &str,
    cluster: usize,
    view: &str,
) -> Result<u16, TestError> {
    let path = format!("/api/v2/flux/clusters/c{cluster}.fleet.test/{view}");
    let request = broker
        .http()
        .request(Method::GET, format!("{}{path}", broker.api_url()));
    let response = request
        .header("authorization", bearer(token))
        .send()
        .await?;
    let status = response.status().as_u16();
    response.bytes().await?;
    Ok(status)
}

/// Waits until the last cluster is served.
async fn until_read(broker: &Broker, token: &str, view: &str) -> Result<(), TestError> {
    let limit = Instant::now() + Duration::from_secs(120);
    while read_one(broker, token, CLUSTERS - 1, view).await? != 200 {
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
