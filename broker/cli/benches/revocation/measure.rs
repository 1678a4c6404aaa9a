//! The runs: a key appears, is accepted everywhere, and is revoked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestClient;
use keyferry_integration::world::{ACCOUNT, Broker, TENANT, caller_token};
use serde_json::json;

use super::command::{self, Revoked};
use super::stage::{HubKey, Stage, access, audience};
use crate::harness::Outcome;
use crate::harness::process::{self, now};

/// The time between two requests of one watcher, which is the resolution of all figures.
const POLL: Duration = Duration::from_millis(100);
const CHANGE_LIMIT: Duration = Duration::from_secs(240);
/// The lifetime of a token of the hub, in seconds: the least that it mints.
const LIFETIME: u64 = 600;
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// All measurements of one run of the bench.
pub struct Figures {
    /// The machine of the run.
    pub machine: String,
    /// One for each key.
    pub runs: Vec<Run>,
}

/// What happened to one key. All figures are in seconds.
pub struct Run {
    /// From the appearance of the key at the hub.
    pub appeared: Appeared,
    /// From the start of `keyferry revoke`.
    pub revoked: Refused,
}

/// A new key, from its appearance at the hub.
pub struct Appeared {
    /// Until the first replica publishes it.
    pub first_replica: f64,
    /// Until the last replica publishes it.
    pub last_replica: f64,
    /// Until the last target accepts a token of it.
    pub last_target: f64,
}

/// A revoked key, from the start of the command.
pub struct Refused {
    /// Until the revocation is in the key journal.
    pub written: f64,
    /// Until the last replica does not publish it.
    pub unpublished: f64,
    /// Until the last replica refuses a caller with a token of it.
    pub callers: f64,
    /// Until the last target refuses a token of it.
    pub targets: f64,
    /// Until the command has ended.
    pub ended: f64,
}

impl Refused {
    /// From the key journal until the last replica does not publish the key.
    pub fn unpublished_after_written(&self) -> f64 {
        self.unpublished - self.written
    }

    /// From the key journal until the last replica refuses a caller.
    pub fn callers_after_written(&self) -> f64 {
        self.callers - self.written
    }

    /// From the key journal until the last target refuses.
    pub fn targets_after_written(&self) -> f64 {
        self.targets - self.written
    }

    /// Until the last refusal of all.
    pub fn everywhere(&self) -> f64 {
        self.unpublished.max(self.callers).max(self.targets)
    }
}

/// Tokens that the key of a run signed.
struct Tokens {
    caller: String,
    /// A client of each target that has only such a token.
    witnesses: Vec<RestClient>,
    witness_files: Vec<PathBuf>,
}

/// Measures as many runs.
pub async fn all(runs: usize) -> Outcome<Figures> {
    let machine = process::machine();
    process::complain("a hub, three replicas and two targets ...\n")?;
    let mut stage = Stage::start(runs).await?;
    let mut done = Vec::new();
    for index in 0..runs {
        // The replicas read on their own ticks, and one run ends with one of them. Pauses spread the
        // next run over all phases.
        pause(index, 0.382, 15.0).await;
        let appeared = appear(&mut stage, index).await?;
        let revoked = revoke_key(&stage, index).await?;
        process::complain(&format!(
            "run {}: published after {:.1} s, refused after {:.1} s\n",
            index + 1,
            appeared.last_replica,
            revoked.everywhere()
        ))?;
        done.push(Run { appeared, revoked });
    }
    Ok(Figures {
        machine,
        runs: done,
    })
}

async fn pause(index: usize, step: f64, most_seconds: f64) {
    let share = (index as f64 * step).fract();
    tokio::time::sleep(Duration::from_secs_f64(share * most_seconds)).await;
}

async fn appear(stage: &mut Stage, index: usize) -> Outcome<Appeared> {
    for replica in &stage.replicas {
        // As the kubelet does: its token lives for an hour.
        replica.kubeconfig().rewrite_token(3600).await?;
    }
    let from = now();
    stage.show_keys(index + 1);
    let key = key_of(stage, index)?;
    let published = stage
        .replicas
        .iter()
        .map(|replica| until(async move || publishes(replica, &key.kid).await));
    let published = try_join_all(published).await?;
    let tokens = sign_tokens(stage, key).await?;
    let accepted = tokens
        .witnesses
        .iter()
        .map(|witness| until(async move || accepts(witness).await));
    let accepted = try_join_all(accepted).await?;
    let since = |at: Option<&Instant>| at.map_or(f64::NAN, |at| (*at - from).as_secs_f64());
    Ok(Appeared {
        first_replica: since(published.iter().min()),
        last_replica: since(published.iter().max()),
        last_target: since(accepted.iter().max()),
    })
}

async fn revoke_key(stage: &Stage, index: usize) -> Outcome<Refused> {
    let key = key_of(stage, index)?;
    let tokens = sign_tokens(stage, key).await?;
    let caller = &tokens.caller;
    for replica in &stage.replicas {
        until(async move || exchanges(replica, caller).await).await?;
    }
    // How long the review of that caller stays cached is left to this pause.
    pause(index, 0.618, 10.0).await;
    let ended = AtomicBool::new(false);
    let from = now();
    let command = async {
        let revoked = command::run_revoke(stage, &key.kid, &tokens.witness_files).await;
        ended.store(true, Ordering::Release);
        revoked
    };
    let ended = &ended;
    let unpublished = stage
        .replicas
        .iter()
        .map(|replica| refused_since(ended, async move || publishes(replica, &key.kid).await));
    let callers = stage
        .replicas
        .iter()
        .map(|replica| refused_since(ended, async move || exchanges(replica, caller).await));
    let targets = tokens
        .witnesses
        .iter()
        .map(|witness| refused_since(ended, async move || accepts(witness).await));
    let (revoked, unpublished, callers, targets) = tokio::try_join!(
        command,
        try_join_all(unpublished),
        try_join_all(callers),
        try_join_all(targets)
    )?;
    let since = |at: Instant| (at - from).as_secs_f64();
    let last = |times: Vec<Instant>| times.into_iter().max().map_or(f64::NAN, since);
    let Revoked { written, ended } = revoked;
    Ok(Refused {
        written: since(written),
        unpublished: last(unpublished),
        callers: last(callers),
        targets: last(targets),
        ended: since(ended),
    })
}

fn key_of(stage: &Stage, index: usize) -> Outcome<&HubKey> {
    Ok(stage
        .keys
        .get(index)
        .ok_or("there is no key for this run")?)
}

async fn sign_tokens(stage: &Stage, key: &HubKey) -> Outcome<Tokens> {
    let sign = |token: &str| ControlPlane::sign_with(token, &key.files, &key.kid);
    let caller = sign(&caller_token(&stage.hub, TENANT, ACCOUNT).await?)?;
    let (mut witnesses, mut witness_files) = (Vec::new(), Vec::new());
    for (index, target) in stage.targets.iter().enumerate() {
        let minted = stage
            .hub
            .token_request(TENANT, ACCOUNT, &[&audience(index)], LIFETIME)
            .await?;
        let witness = sign(&minted.token)?;
        let file = stage.ground.folder().join(format!("witness-{index}"));
        std::fs::write(&file, &witness)?;
        witnesses.push(target.as_bearer(&witness)?);
        witness_files.push(file);
    }
    Ok(Tokens {
        caller,
        witnesses,
        witness_files,
    })
}

async fn publishes(replica: &Broker, kid: &str) -> Outcome<bool> {
    let url = format!("{}/openid/v1/jwks", replica.discovery_url());
    let answer = replica.http().get(url).send().await?.error_for_status()?;
    Ok(answer.text().await?.contains(kid))
}

async fn exchanges(replica: &Broker, caller: &str) -> Outcome<bool> {
    let answer = replica
        .exchange(caller, &format!("{TENANT}/{}", access(0)))
        .await?;
    Ok(answer.status == 200)
}

async fn accepts(witness: &RestClient) -> Outcome<bool> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    match witness.create(REVIEWS, &review).await {
        Ok(_) => Ok(true),
        Err(error) if error.status() == Some(401) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The time when the check was first true.
async fn until(holds: impl AsyncFn() -> Outcome<bool>) -> Outcome<Instant> {
    let limit = now() + CHANGE_LIMIT;
    while !holds().await? {
        if now() > limit {
            return Err(format!("nothing changed within {CHANGE_LIMIT:?}").into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(now())
}

/// The time of the first refusal after the last acceptance, once the command has ended.
async fn refused_since(
    ended: &AtomicBool,
    accepted: impl AsyncFn() -> Outcome<bool>,
) -> Outcome<Instant> {
    let limit = now() + CHANGE_LIMIT;
    let mut since = None;
    while now() < limit {
        since = match accepted().await? {
            true => None,
            false => since.or_else(|| Some(now())),
        };
        if let (Some(since), true) = (since, ended.load(Ordering::Acquire)) {
            return Ok(since);
        }
        tokio::time::sleep(POLL).await;
    }
    Err(format!("the key was still accepted after {CHANGE_LIMIT:?}").into())
}
