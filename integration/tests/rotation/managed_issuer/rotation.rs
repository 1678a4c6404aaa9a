//! Two rotations, one by hand and one by schedule, while fresh tokens are used all the time. The
//! verifiers keep their copy of the keys for as long as they can.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::try_join_all;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::caller_token;
use serde_json::{Value, json};

use super::stage::{ACCOUNTS, LOAD, Stage, TARGETS, account, secret_path, whoami};

pub(super) async fn rotations_under_load_lose_no_token(stage: Arc<Stage>) -> TestResult {
    let stop = Arc::new(AtomicBool::new(false));
    let loads =
        [0, 1].map(|index| tokio::spawn(load(Arc::clone(&stage), index, Arc::clone(&stop))));
    let outcome = rotate_twice(&stage).await;
    // The verifiers that have not seen the last key yet see it now.
    tokio::time::sleep(Duration::from_secs(8)).await;
    stop.store(true, Ordering::Relaxed);
    let loads = try_join_all(loads).await?;
    outcome?;
    for (target, load) in TARGETS.into_iter().zip(loads) {
        let Load { kids, used, fresh } = load?;
        assert!(
            kids.len() == 3,
            "{target} met tokens of {} keys",
            kids.len()
        );
        assert!(
            used > 2 * fresh && fresh > 50,
            "{target}: {used} uses of {fresh} tokens are too few to tell"
        );
    }
    Ok(())
}

async fn rotate_twice(stage: &Stage) -> TestResult {
    let kubeconfig = stage.hub.admin_kubeconfig().display().to_string();
    let first = try_join_all(TARGETS.map(|target| stage.stored(target))).await?;
    let mut before = first.clone();
    for round in 0..2 {
        for target in TARGETS {
            if (round, target) == (1, TARGETS[1]) {
                let_the_schedule_come(stage, target).await?;
                continue;
            }
            let said = stage
                .binary
                .run(
                    &[
                        "keys",
                        "rotate",
                        "--target",
                        target,
                        "--kubeconfig",
                        &kubeconfig,
                    ],
                    &[],
                )
                .await?;
            assert_eq!(
                said.status.code(),
                Some(0),
                "{}",
                String::from_utf8_lossy(&said.stderr)
            );
        }
        for (index, target) in TARGETS.into_iter().enumerate() {
            before[index] = until_rotated(stage, target, &before[index]).await?;
        }
    }
    for (index, target) in TARGETS.into_iter().enumerate() {
        let previous: Vec<&Value> = before[index]["previous"]
            .as_array()
            .ok_or("previous is a list")?
            .iter()
            .collect();
        assert_eq!(previous.len(), 2, "{target}");
        assert!(previous.iter().all(|key| key["privateKey"].is_null()));
        let published = stage
            .broker
            .http()
            .get(format!("{}/openid/v1/jwks", stage.issuer(target)))
            .send()
            .await?
            .text()
            .await?;
        assert!(
            published.contains(first[index]["current"]["kid"].as_str().unwrap_or("?")),
            "the first key's tokens are still good"
        );
    }
    Ok(())
}

/// Moves back the time since which the current key has signed, as if a month had passed.
async fn let_the_schedule_come(stage: &Stage, target: &str) -> TestResult {
    let mut document = stage.stored(target).await?;
    document["current"]["signsSince"] = json!("2020-01-01T00:00:00Z");
    let data = base64::engine::general_purpose::STANDARD.encode(document.to_string());
    stage
        .hub
        .admin()
        .patch(
            &secret_path(target),
            &json!({ "data": { "keys.json": data } }),
        )
        .await?;
    Ok(())
}

/// Waits until the next key is the current one, which may include its activation delay.
async fn until_rotated(stage: &Stage, target: &str, before: &Value) -> Result<Value, TestError> {
    let limit = Instant::now() + Duration::from_secs(150);
    loop {
        let now = stage.stored(target).await?;
        if now["current"]["kid"] == before["next"]["kid"] {
            assert_ne!(now["next"]["kid"], before["next"]["kid"]);
            return Ok(now);
        }
        if Instant::now() > limit {
            return Err(format!("{target} was not rotated in time").into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

struct Load {
    kids: BTreeSet<String>,
    used: usize,
    fresh: usize,
}

/// Signs one fresh token each second and uses it at once. In between, it uses all earlier tokens in
/// turn, and made-up tokens that make the target re-read the keys. The target then keeps its copy
/// for as long as it can.
async fn load(stage: Arc<Stage>, index: usize, stop: Arc<AtomicBool>) -> Result<Load, TestError> {
    let (plane, target) = (&stage.targets[index], TARGETS[index]);
    let mut load = Load {
        kids: BTreeSet::new(),
        used: 0,
        fresh: 0,
    };
    let mut tokens: Vec<String> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if load.fresh < ACCOUNTS {
            let name = account(load.fresh);
            let caller = caller_token(&stage.hub, LOAD, &name).await?;
            let answer = stage
                .broker
                .exchange(&caller, &format!("{LOAD}/{target}-{name}"))
                .await?;
            let token = answer
                .token()
                .map_err(|error| format!("{target} {name}: {error}"))?;
            let header: Value = serde_json::from_slice(
                &URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap_or_default())?,
            )?;
            load.kids
                .insert(header["kid"].as_str().unwrap_or_default().to_owned());
            tokens.push(token);
            load.fresh += 1;
        }
        let last = tokens.len().saturating_sub(1);
        for which in [
            last,
            load.used % tokens.len().max(1),
            (load.used * 7) % tokens.len().max(1),
        ] {
            let token = tokens.get(which).ok_or("there is a token")?;
            whoami(plane, token)
                .await
                .map_err(|error| format!("{target}, token {which} of {}: {error}", tokens.len()))?;
            load.used += 1;
        }
        if load.fresh.is_multiple_of(2) {
            let made_up = made_up(tokens.first().ok_or("there is a token")?)?;
            assert_eq!(
                whoami(plane, &made_up)
                    .await
                    .err()
                    .and_then(|error| error.status()),
                Some(401)
            );
        }
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    Ok(load)
}

/// A token with an unknown `kid`.
fn made_up(token: &str) -> Result<String, TestError> {
    let (_, rest) = token.split_once('.').ok_or("a token has dots")?;
    let nanos = Instant::now().elapsed().as_nanos()
        + std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_nanos();
    let header = json!({ "alg": "ES256", "kid": format!("made-up-{nanos}") });
    Ok(format!(
        "{}.{rest}",
        URL_SAFE_NO_PAD.encode(header.to_string())
    ))
}
