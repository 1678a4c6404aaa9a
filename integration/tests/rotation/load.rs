//! Workloads that use issued tokens at once, and a task that makes the targets read keys at the
//! worst moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::caller_token;
use parking_lot::Mutex;
use serde_json::json;

use super::stage::{Judge, Stage, TENANT, kid};

/// How often a workload requests a token and uses it.
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);
/// How often its own token is renewed, as the kubelet does.
const CALLER_LIFE: Duration = Duration::from_secs(30);

/// The results that the workloads counted.
#[derive(Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Tokens that a target accepted, by kid.
    pub(super) taken: BTreeMap<String, u64>,
    /// Tokens that Keyferry issued and a target refused with 401.
    pub(super) refused: Vec<String>,
    /// Exchanges that were asked to retry later, by reason.
    pub(super) told_to_wait: BTreeMap<String, u64>,
}

impl Tally {
    fn with<R>(&self, change: impl FnOnce(&mut Counts) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Takes the counts so far and resets them.
    pub(super) fn take(&self) -> Counts {
        self.with(std::mem::take)
    }

    /// How many exchanges were refused because a key was not yet active.
    pub(super) fn awaiting_activation(&self) -> u64 {
        self.with(|counts| {
            counts
                .told_to_wait
                .iter()
                .filter(|(reason, _)| reason.contains("KeySettling"))
                .map(|(_, count)| count)
                .sum()
        })
    }

    /// How many tokens of a key were accepted.
    pub(super) fn taken(&self, kid: &str) -> u64 {
        self.with(|counts| counts.taken.get(kid).copied().unwrap_or(0))
    }
}

/// A workload with the ServiceAccount `account`. It requests a token of each target and uses it at
/// once, until it is dropped.
pub(super) async fn work(stage: Arc<Stage>, account: String, tally: Arc<Tally>) -> TestResult {
    let judges = stage
        .targets
        .iter()
        .map(|target| Judge::of(target))
        .collect::<Result<Vec<_>, TestError>>()?;
    let mut caller: Option<(String, Instant)> = None;
    loop {
        tokio::time::sleep(REQUEST_INTERVAL).await;
        if caller
            .as_ref()
            .is_none_or(|(_, since)| since.elapsed() > CALLER_LIFE)
        {
            // The hub may be restarting.
            let Ok(token) = caller_token(&stage.hub, TENANT, &account).await else {
                continue;
            };
            caller = Some((token, Instant::now()));
        }
        let Some((token, _)) = &caller else { continue };
        for (index, judge) in judges.iter().enumerate() {
            let answer = stage
                .broker
                .exchange(token, &format!("{TENANT}/{account}-{index}"))
                .await?;
            if answer.status != 200 {
                let body = answer.json()?;
                let reason = format!(
                    "{} {} {}",
                    answer.status,
                    body["error"],
                    body["error_description"].as_str().unwrap_or_default()
                );
                let reason = reason.split(':').next().unwrap_or_default().to_owned();
                tally.with(|counts| *counts.told_to_wait.entry(reason).or_default() += 1);
                continue;
            }
            let (bound, at) = (answer.token()?, Instant::now());
            let (kid, status) = (kid(&bound)?, judge.status(&bound).await?);
            tally.with(|counts| match status {
                201 => *counts.taken.entry(kid).or_default() += 1,
                status => counts.refused.push(format!(
                    "{account}-{index}: {status} for a token of {kid}, {:?} after it \
                        was issued",
                    at.elapsed()
                )),
            });
        }
    }
}

/// Sends each target tokens of unknown keys repeatedly, so that its copy of the keys is always
/// fresh when a new key arrives.
pub(super) async fn disturb(
    stage: Arc<Stage>,
    issuer: String,
    audiences: Vec<String>,
) -> TestResult {
    let judges = stage
        .targets
        .iter()
        .map(|target| Judge::of(target))
        .collect::<Result<Vec<_>, TestError>>()?;
    let mut number = 0_u64;
    loop {
        for (judge, audience) in judges.iter().zip(&audiences) {
            number += 1;
            judge.status(&bogus(&issuer, audience, number)).await?;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn bogus(issuer: &str, audience: &str, number: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "iss": issuer, "aud": [audience], "sub": format!("system:serviceaccount:{TENANT}:reconciler"),
        "iat": now, "nbf": now, "exp": now + 600,
    });
    format!(
        "{}.{}.{}",
        encode(json!({ "alg": "RS256", "kid": format!("bogus-{number}") })),
        encode(claims),
        URL_SAFE_NO_PAD.encode([7; 256])
    )
}
