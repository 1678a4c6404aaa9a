//! Updates and drains while callers send requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::http_client::trusting;
use keyferry_integration::node::NODE;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{caller_token, exchange_at};
use parking_lot::Mutex;
use serde_json::Value;

use super::installation::Installation;
use super::installed::{audit_records, pods, until_rolled_out};
use super::setup::{ACCOUNT, Cluster, SYSTEM, TENANT, has_condition};

const PAUSE: Duration = Duration::from_millis(20);
/// For how long each new Pod serves beside those of the previous version.
const BESIDE: Duration = Duration::from_secs(15);

/// Callers, each with its own client, that count their answers.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    /// The different key sets that were published.
    key_sets: Arc<Mutex<BTreeSet<String>>>,
    callers: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    async fn start(cluster: &Cluster) -> Result<Self, TestError> {
        let token = caller_token(&cluster.hub, TENANT, ACCOUNT).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let key_sets = Arc::new(Mutex::new(BTreeSet::new()));
        let mut callers = Vec::new();
        for access in ["tenant-a/prod", "tenant-a/stage"] {
            // One caller keeps its connections, and one connects each time.
            for keeps in [true, false] {
                let (token, stop, answers) =
                    (token.clone(), Arc::clone(&stop), Arc::clone(&answers));
                let key_sets = Arc::clone(&key_sets);
                let api = format!("https://{}", cluster.api);
                let jwks = format!("https://{}/openid/v1/jwks", cluster.discovery);
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
                        match client.get(&jwks).send().await {
                            Ok(answer) if answer.status() == 200 => match answer.text().await {
                                Ok(text) => drop(key_sets.lock().insert(text)),
                                Err(error) => failed.push(format!("key set: {error:?}")),
                            },
                            other => failed.push(format!("key set, keeps {keeps}: {other:?}")),
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
            key_sets,
            callers,
        })
    }

    /// Ends it; none of its requests may have failed. Returns how many there were.
    async fn stop(self) -> Result<u64, TestError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        for caller in self.callers {
            failed.extend(caller.await?);
        }
        let answers = self.answers.load(Ordering::Relaxed);
        if let [first, ..] = failed.as_slice() {
            let count = failed.len();
            return Err(format!("{count} of {answers} failed, the first with {first}").into());
        }
        let key_sets = self.key_sets.lock();
        assert_eq!(key_sets.len(), 1, "{key_sets:#?}");
        Ok(answers)
    }
}

/// Replaces the Pods while callers send requests.
pub(crate) async fn an_update_fails_no_request(
    cluster: &Cluster,
    update: impl Future<Output = TestResult>,
) -> TestResult {
    let before = names(cluster).await?;
    let load = Load::start(cluster).await?;
    update.await?;
    until_rolled_out(cluster).await?;
    let answers = match load.stop().await {
        Ok(answers) => answers,
        Err(error) => return Err(format!("{error}\n{}", logs(cluster).await?).into()),
    };
    assert!(answers > 100, "{answers}");
    let after = names(cluster).await?;
    assert!(
        before.iter().all(|name| !after.contains(name)),
        "{before:?} {after:?}"
    );
    eprintln!("{answers} answers during the update");
    Ok(())
}

/// As [`an_update_fails_no_request`], to this version. Both versions serve for some time: each new
/// Pod counts as available only after [`BESIDE`].
pub(crate) async fn both_versions_serve(
    cluster: &Cluster,
    installation: Installation<'_>,
) -> TestResult {
    wait_for_new_pods(cluster, BESIDE).await?;
    let beside = Mutex::new((None::<Instant>, Duration::ZERO, BTreeSet::new()));
    let watching = async {
        loop {
            let serving = serving(cluster).await?;
            {
                let mut beside = beside.lock();
                if serving.len() == 2 {
                    let began = *beside.0.get_or_insert_with(Instant::now);
                    beside.1 = began.elapsed();
                    let answered = serving.into_iter().filter(|(_, answered)| *answered);
                    beside.2.extend(answered.map(|(image, _)| image));
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let update = an_update_fails_no_request(cluster, installation.apply(cluster));
    tokio::select! {
        updated = update => updated?,
        failed = watching => return failed,
    }
    let (_, time, answered) = beside.into_inner();
    eprintln!("both versions were ready for {} s", time.as_secs());
    assert!(time >= BESIDE, "{time:?}");
    assert_eq!(answered.len(), 2, "both answered meanwhile: {answered:?}");
    wait_for_new_pods(cluster, Duration::ZERO).await
}

/// `minReadySeconds`: an update goes on when a new Pod has been ready for so long.
async fn wait_for_new_pods(cluster: &Cluster, time: Duration) -> TestResult {
    let patch = format!("{{\"spec\":{{\"minReadySeconds\":{}}}}}", time.as_secs());
    let command = [
        "patch",
        "deployment",
        "keyferry",
        "-n",
        SYSTEM,
        "-p",
        &patch,
    ];
    cluster.kubectl(&command).await?;
    until_rolled_out(cluster).await?;
    Ok(())
}

/// The images of the Pods that get requests, and whether one with this image has granted a token in
/// the last two seconds.
async fn serving(cluster: &Cluster) -> Result<BTreeMap<String, bool>, TestError> {
    let mut serving = BTreeMap::new();
    for pod in pods(cluster).await? {
        if !has_condition(&pod, "Ready") || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&pod["metadata"]["name"]);
        let log = ["logs", "-n", SYSTEM, "--since=2s", &name];
        let log = cluster.kubectl(&log).await.unwrap_or_default();
        let image = text(&pod["spec"]["containers"][0]["image"]);
        // The previous version has its records in the log, this one on a volume.
        *serving.entry(image).or_default() |= log.contains("\"granted\"")
            || audit_records(cluster, &pod)?
                .iter()
                .any(|record| record["decision"] == "granted" && is_recent(record));
    }
    Ok(serving)
}

/// Whether an audit record is of the last two seconds.
fn is_recent(record: &Value) -> bool {
    let time = record["time"].as_str().and_then(|text| text.parse().ok());
    time.is_some_and(|time: jiff::Timestamp| {
        jiff::Timestamp::now().duration_since(time) < jiff::SignedDuration::from_secs(2)
    })
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
    load.stop().await?;
    Ok(())
}

/// The warnings and the last lines of the running Pods.
async fn logs(cluster: &Cluster) -> Result<String, TestError> {
    let selector = "app.kubernetes.io/name=keyferry";
    let command = [
        "logs",
        "-n",
        SYSTEM,
        "-l",
        selector,
        "--tail=-1",
        "--prefix",
    ];
    let all = cluster.kubectl(&command).await?;
    let lines: Vec<&str> = all
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR") || line.contains("denied"))
        .collect();
    let last = lines.len().saturating_sub(30);
    Ok(lines.get(last..).unwrap_or_default().join("\n"))
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
