//! Updates and drains while callers send requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keyferry_integration::http_client::trusting;
use keyferry_integration::node::NODE;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{caller_token, exchange_at};

use super::installed::{Way, install, pods, until_rolled_out};
use super::setup::{ACCOUNT, Cluster, TENANT, has_condition};

const PAUSE: Duration = Duration::from_millis(20);

/// Callers, each with its own client, that count their answers.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    async fn start(cluster: &Cluster) -> Result<Self, TestError> {
        let token = caller_token(&cluster.hub, TENANT, ACCOUNT).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let mut callers = Vec::new();
        for access in ["tenant-a/prod", "tenant-a/stage"] {
            // One caller keeps its connections, and one connects each time.
            for keeps in [true, false] {
                let (token, stop, answers) =
                    (token.clone(), Arc::clone(&stop), Arc::clone(&answers));
                let api = format!("https://{}", cluster.api);
                let discovery = format!(
                    "https://{}/.well-known/openid-configuration",
                    cluster.discovery
                );
                let authority = cluster.ground.ca().cert_pem().to_owned();
                let mut client = trusting(&authority)?;
                callers.push(tokio::spawn(async move {
                    let mut failed = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        if !keeps && let Ok(fresh) = trusting(&authority) {
                            client = fresh;
                        }
                        match exchange_at(&client, &api, &token, access).await {
                            Ok(answer) if answer.status == 200 => {}
                            Ok(answer) => failed.push(format!("{} {}", answer.status, answer.body)),
                            Err(error) => {
                                failed.push(format!("exchange, keeps {keeps}: {error:?}"))
                            }
                        }
                        match client.get(&discovery).send().await {
                            Ok(answer) if answer.status() == 200 => {}
                            other => failed.push(format!("discovery, keeps {keeps}: {other:?}")),
                        }
                        answers.fetch_add(2, Ordering::Relaxed);
                        tokio::time::sleep(PAUSE).await;
                    }
                    failed
                }));
            }
        }
        Ok(Self {
            stop,
            answers,
            callers,
        })
    }

    async fn stop(self) -> Result<(u64, Vec<String>), TestError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        for caller in self.callers {
            failed.extend(caller.await?);
        }
        Ok((self.answers.load(Ordering::Relaxed), failed))
    }
}

pub(crate) async fn an_update_fails_no_request(cluster: &Cluster, way: Way) -> TestResult {
    let before = names(cluster).await?;
    let load = Load::start(cluster).await?;
    install(cluster, way, "next").await?;
    until_rolled_out(cluster).await?;
    let (answers, failed) = load.stop().await?;
    assert!(
        failed.is_empty(),
        "{} of {answers}: {failed:#?}",
        failed.len()
    );
    assert!(answers > 100, "{answers}");
    let after = names(cluster).await?;
    assert!(
        before.iter().all(|name| !after.contains(name)),
        "{before:?} {after:?}"
    );
    eprintln!("{answers} answers during the update");
    Ok(())
}

/// The only node is drained: the PodDisruptionBudget lets one replica go, which finds no other node,
/// and keeps the other one until there is a node again.
pub(crate) async fn a_drain_leaves_one_replica(cluster: &Cluster) -> TestResult {
    let load = Load::start(cluster).await?;
    let selector = "--pod-selector=app.kubernetes.io/name=keyferry";
    let drain = [
        "drain",
        NODE,
        selector,
        "--delete-emptydir-data",
        "--timeout=25s",
    ];
    let drained = cluster.kubectl(&drain).await;
    let said = drained
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(said.contains("disruption budget"), "{said}");
    let ready = pods(cluster)
        .await?
        .iter()
        .filter(|pod| has_condition(pod, "Ready"))
        .count();
    assert_eq!(ready, 1);
    cluster.kubectl(&["uncordon", NODE]).await?;
    until_rolled_out(cluster).await?;
    let (answers, failed) = load.stop().await?;
    assert!(
        failed.is_empty(),
        "{} of {answers}: {failed:#?}",
        failed.len()
    );
    Ok(())
}

async fn names(cluster: &Cluster) -> Result<Vec<String>, TestError> {
    let name = |pod: &serde_json::Value| {
        pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(pods(cluster).await?.iter().map(name).collect())
}
