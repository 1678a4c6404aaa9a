//! The memory limit of Keyferry's container, as the kernel enforces it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::http_client::trusting;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{caller_token, exchange_at};

use super::installed::pods;
use super::setup::{ACCOUNT, Cluster, TENANT};

const LOAD: Duration = Duration::from_secs(20);
/// Callers of each kind. All have the node's address, which may have 256 connections.
const CALLERS: usize = 40;
/// `resources.limits.memory` of the manifests.
const LIMIT: u64 = 512 * 1024 * 1024;
/// As large as a request may be, and no token.
const JUNK: usize = 60 * 1024;

/// Callers with tokens, callers with large bodies that are none, and readers that connect each time
/// load both replicas. Neither comes near its limit.
pub(crate) async fn its_limit_holds_under_load(cluster: &Cluster) -> TestResult {
    let before = pods(cluster).await?;
    let processes = processes()?;
    assert_eq!(processes.len(), 2, "{processes:?}");
    for process in &processes {
        assert_eq!(limit_of(process)?, LIMIT, "{}", process.display());
    }
    let token = caller_token(&cluster.hub, TENANT, ACCOUNT).await?;
    let (granted, refused, read) = (count(), count(), count());
    let end = Instant::now() + LOAD;
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let api = format!("https://{}", cluster.api);
        let discovery = format!("https://{}/openid/v1/jwks", cluster.discovery);
        let authority = cluster.ground.ca().cert_pem().to_owned();
        let (client, junk_client) = (trusting(&authority)?, trusting(&authority)?);
        let (token, junk) = (token.clone(), "x".repeat(JUNK));
        let (granted, refused, read) = (granted.clone(), refused.clone(), read.clone());
        callers.push(tokio::spawn(async move {
            let with_token = async {
                while Instant::now() < end {
                    let answer = exchange_at(&client, &api, &token, "tenant-a/prod").await?;
                    if answer.status != 200 {
                        return Err(format!("{} {}", answer.status, answer.body).into());
                    }
                    granted.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), TestError>(())
            };
            let with_junk = async {
                while Instant::now() < end {
                    let answer = exchange_at(&junk_client, &api, &junk, "tenant-a/prod").await?;
                    if answer.status < 400 {
                        return Err(format!("{} for junk", answer.status).into());
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), TestError>(())
            };
            let connecting = async {
                while Instant::now() < end {
                    trusting(&authority)?.get(&discovery).send().await?;
                    read.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), TestError>(())
            };
            tokio::try_join!(with_token, with_junk, connecting).map_err(|error| error.to_string())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    for process in &processes {
        let peak = peak_of(process)?;
        eprintln!(
            "peak of resident memory {} MiB after {} s: {} tokens, {} refusals, {} documents",
            peak >> 20,
            LOAD.as_secs(),
            granted.load(Ordering::Relaxed),
            refused.load(Ordering::Relaxed),
            read.load(Ordering::Relaxed),
        );
        assert!(peak < LIMIT / 2, "{peak}");
    }
    // The same containers, still without a restart.
    let containers = |pods: &[serde_json::Value]| -> Vec<String> {
        let status = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0].clone();
        let named = pods.iter().map(status);
        named
            .map(|one| format!("{} {}", one["containerID"], one["restartCount"]))
            .collect()
    };
    assert_eq!(containers(&before), containers(&pods(cluster).await?));
    Ok(())
}

fn count() -> Arc<AtomicU64> {
    Arc::default()
}

/// The folders in /proc of Keyferry's servers in Pods.
fn processes() -> Result<Vec<PathBuf>, TestError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let folder = entry?.path();
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        if line.starts_with(b"/usr/bin/keyferry\0serve\0") {
            found.push(folder);
        }
    }
    Ok(found)
}

/// The limit of a process' cgroup: version 1 where the machine has a hierarchy for memory.
fn limit_of(process: &Path) -> Result<u64, TestError> {
    let groups = std::fs::read_to_string(process.join("cgroup"))?;
    let (folder, file) = groups
        .lines()
        .find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            match rest.split_once(':')? {
                ("memory", path) => Some((
                    format!("/sys/fs/cgroup/memory{path}"),
                    "memory.limit_in_bytes",
                )),
                _ => None,
            }
        })
        .or_else(|| {
            let path = groups.trim().strip_prefix("0::")?;
            Some((format!("/sys/fs/cgroup{path}"), "memory.max"))
        })
        .ok_or_else(|| format!("no cgroup for memory: {groups}"))?;
    let limit = std::fs::read_to_string(Path::new(&folder).join(file))?;
    Ok(limit.trim().parse()?)
}

/// The most memory that a process has had resident, in bytes (`VmHWM` of proc(5)).
fn peak_of(process: &Path) -> Result<u64, TestError> {
    let status = std::fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.ok_or("the process has ended")?.trim();
    let kib: u64 = kib.trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
