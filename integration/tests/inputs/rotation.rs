//! Rotation of a Read and of the Admin credential while both are read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use parking_lot::Mutex;

use super::stage::{Stage, bearer, cluster_path, succeeds, token_of};

/// Twice what a changed Secret may take to count.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that reads its inputs all the time with its present token.
struct Child {
    token: Mutex<String>,
    reads: AtomicUsize,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Child {
    fn with(token: &str) -> Arc<Self> {
        Arc::new(Self {
            token: Mutex::new(token.to_owned()),
            reads: AtomicUsize::new(0),
            failed: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    async fn read_on(self: Arc<Self>, stage: Arc<Stage>) {
        let path = cluster_path("prod-b", "platform-components");
        while !self.stop.load(Ordering::Relaxed) {
            let token = self.token.lock().clone();
            match stage.get(&path, &[bearer(&token)]).await {
                Ok(reply) if reply.status == 200 => {
                    self.reads.fetch_add(1, Ordering::Relaxed);
                }
                other => self.failed.lock().push(format!("{other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(super) async fn fails_no_read(stage: Arc<Stage>) -> TestResult {
    // The other tests go on with the first token of the platform: an overlap keeps it valid.
    for credential in ["rotating", "platform"] {
        let child = Child::with(stage.token(credential));
        let reading = tokio::spawn(Arc::clone(&child).read_on(Arc::clone(&stage)));
        let token = rotate(&stage, credential).await?;
        until_answered(&stage, &token, 200).await?;
        token.clone_into(&mut child.token.lock());
        let before = child.reads.load(Ordering::Relaxed);
        if credential == "rotating" {
            revoke(&stage, credential, &["--previous"]).await?;
            until_answered(&stage, stage.token(credential), 401).await?;
        }
        until_read(&child, before + 20).await?;
        child.stop.store(true, Ordering::Relaxed);
        reading.await?;
        assert_eq!(*child.failed.lock(), Vec::<String>::new(), "{credential}");
        let reads = child.reads.load(Ordering::Relaxed);
        eprintln!("{credential}: {reads} reads during a rotation, 0 failed");
        if credential == "rotating" {
            revoke(&stage, credential, &[]).await?;
            until_answered(&stage, &token, 401).await?;
        }
    }
    Ok(())
}

/// The hub's Secret of a credential, as a file.
async fn stored(stage: &Stage, credential: &str) -> Result<PathBuf, TestError> {
    let path = format!("/api/v1/namespaces/keyferry-system/secrets/keyferry-input-{credential}");
    let secret = stage.hub.admin().get(&path).await?;
    let file = stage
        .ground
        .folder()
        .join(format!("{credential}.stored.json"));
    std::fs::write(&file, secret.to_string())?;
    Ok(file)
}

/// Rotates a credential on the hub, and returns the new token.
async fn rotate(stage: &Stage, credential: &str) -> Result<String, TestError> {
    let stored = stored(stage, credential).await?.display().to_string();
    let files = ["hub", "child"].map(|kind| {
        let file = format!("{credential}.rotated.{kind}.yaml");
        stage.ground.folder().join(file)
    });
    let [hub, child] = files.each_ref().map(|file| file.display().to_string());
    let args = [
        "inputs",
        "credential",
        "rotate",
        "--hub-secret",
        &stored,
        "--hub-file",
        &hub,
        "--child-file",
        &child,
    ];
    succeeds(&stage.ground, &args).await?;
    let [hub, child] = files;
    apply_manifests(&stage.hub, &[&hub]).await?;
    token_of(&child)
}

async fn revoke(stage: &Stage, credential: &str, flags: &[&str]) -> Result<(), TestError> {
    let stored = stored(stage, credential).await?.display().to_string();
    let mut args = vec!["inputs", "credential", "revoke", "--hub-secret", &stored];
    args.extend_from_slice(flags);
    let printed = succeeds(&stage.ground, &args).await?;
    let file = stage
        .ground
        .folder()
        .join(format!("{credential}.revoked.yaml"));
    std::fs::write(&file, printed)?;
    Ok(apply_manifests(&stage.hub, &[&file]).await?)
}

async fn until_answered(stage: &Stage, token: &str, status: u16) -> Result<(), TestError> {
    let limit = Instant::now() + PATIENCE;
    let path = cluster_path("prod-b", "cluster");
    loop {
        let reply = stage.get(&path, &[bearer(token)]).await?;
        if reply.status == status {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("not {status} within {PATIENCE:?}: {reply:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_read(child: &Child, reads: usize) -> Result<(), TestError> {
    let limit = Instant::now() + PATIENCE;
    while child.reads.load(Ordering::Relaxed) < reads {
        if Instant::now() > limit {
            return Err(format!("the child does not read: {:?}", child.failed.lock()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
