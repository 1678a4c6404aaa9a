//! Rotation of a Read and of the Admin credential while both are read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::put_secret;
use keyferry_keys::testing::client_certificates::TestAuthority;
use parking_lot::Mutex;
use reqwest::Client;

use super::stage::{
    ROTATED_CA, Stage, authority, bearer, cluster_path, reader_uri, succeeds, token_of,
};

/// Twice what a changed Secret may take to count.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// What a child shows.
enum Shown {
    Token(String),
    /// A client with its certificate.
    Certificate(Client),
}

/// A child that keeps reading its inputs with its current credential.
struct Child {
    shown: Mutex<Arc<Shown>>,
    reads: AtomicUsize,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Child {
    fn with(shown: Shown) -> Arc<Self> {
        Arc::new(Self {
            shown: Mutex::new(Arc::new(shown)),
            reads: AtomicUsize::new(0),
            failed: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn now_shows(&self, shown: Shown) {
        *self.shown.lock() = Arc::new(shown);
    }

    async fn read_on(self: Arc<Self>, stage: Arc<Stage>) {
        let path = cluster_path("prod-b", "platform-components");
        while !self.stop.load(Ordering::Relaxed) {
            let shown = Arc::clone(&self.shown.lock());
            let reply = match &*shown {
                Shown::Token(token) => stage.get(&path, &[bearer(token)]).await,
                Shown::Certificate(client) => stage.get_by(client, &path, &[]).await,
            };
            match reply {
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
        let child = Child::with(Shown::Token(stage.token(credential).to_owned()));
        let reading = tokio::spawn(Arc::clone(&child).read_on(Arc::clone(&stage)));
        let token = rotate(&stage, credential).await?;
        until_answered(&stage, &token, 200).await?;
        child.now_shows(Shown::Token(token.clone()));
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

/// A renewed certificate, and then another CA, while the child reads. Both old ones stay valid until
/// the child has the new ones.
pub(super) async fn of_certificates(stage: Arc<Stage>) -> TestResult {
    let uri = reader_uri("rotating");
    let shown = |authority: &TestAuthority| -> Result<Shown, TestError> {
        let certificate = authority.issue(&uri, |_| {});
        Ok(Shown::Certificate(stage.client(&certificate)?))
    };
    let child = Child::with(shown(&stage.rotated)?);
    let reading = tokio::spawn(Arc::clone(&child).read_on(Arc::clone(&stage)));
    until_read(&child, 20).await?;

    child.now_shows(shown(&stage.rotated)?);
    let before = child.reads.load(Ordering::Relaxed);
    until_read(&child, before + 20).await?;

    let next = authority("next readers");
    let announced = format!("{}{}", stage.rotated.pem(), next.pem());
    put_secret(&stage.hub, ROTATED_CA, &[("ca.crt", &announced)]).await?;
    let probe = stage.client(&next.issue(&uri, |_| {}))?;
    until_answered_by(&stage, &probe, 200).await?;
    child.now_shows(shown(&next)?);
    let before = child.reads.load(Ordering::Relaxed);
    until_read(&child, before + 20).await?;

    let old = stage.client(&stage.rotated.issue(&uri, |_| {}))?;
    until_answered_by(&stage, &old, 200).await?;
    put_secret(&stage.hub, ROTATED_CA, &[("ca.crt", next.pem())]).await?;
    // The connection of the old one stays open; its next request is refused.
    until_answered_by(&stage, &old, 401).await?;
    let before = child.reads.load(Ordering::Relaxed);
    until_read(&child, before + 20).await?;
    child.stop.store(true, Ordering::Relaxed);
    reading.await?;
    assert_eq!(*child.failed.lock(), Vec::<String>::new());
    let reads = child.reads.load(Ordering::Relaxed);
    eprintln!("certificates: {reads} reads during a renewal and a rotation of the CA, 0 failed");

    // A deleted Secret withdraws the CA at once.
    let path = format!("/api/v1/namespaces/keyferry-system/secrets/{ROTATED_CA}");
    stage.hub.admin().delete(&path).await?;
    until_answered_by(&stage, &probe, 401).await
}

async fn until_answered_by(stage: &Stage, client: &Client, status: u16) -> Result<(), TestError> {
    let limit = Instant::now() + WAIT_LIMIT;
    let path = cluster_path("prod-b", "cluster");
    loop {
        let reply = stage.get_by(client, &path, &[]).await?;
        if reply.status == status {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("not {status} within {WAIT_LIMIT:?}: {reply:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
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
    let limit = Instant::now() + WAIT_LIMIT;
    let path = cluster_path("prod-b", "cluster");
    loop {
        let reply = stage.get(&path, &[bearer(token)]).await?;
        if reply.status == status {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("not {status} within {WAIT_LIMIT:?}: {reply:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_read(child: &Child, reads: usize) -> Result<(), TestError> {
    let limit = Instant::now() + WAIT_LIMIT;
    while child.reads.load(Ordering::Relaxed) < reads {
        if Instant::now() > limit {
            return Err(format!("the child does not read: {:?}", child.failed.lock()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
