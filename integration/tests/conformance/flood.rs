//! Sends tokens with made-up kids to targets. Each one may make a verifier fetch the keys from
//! Keyferry, but none may make Keyferry request them from the hub.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::try_join_all;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, AUDIENCE_B, TENANT, World};
use serde_json::json;

use super::setup::{KEYS, document};

/// The number of tokens for each target.
const TOKENS: usize = 200;

pub(super) async fn of_unknown_kids_at_targets(world: Arc<World>) -> TestResult {
    let (started, before) = (Instant::now(), readings(&world)?);
    let (a, b) = (
        flood(&world, world.target_a(), AUDIENCE_A),
        flood(&world, world.target_b(), AUDIENCE_B),
    );
    let verifiers = async {
        // What a verifier that fetches the keys for every unknown kid would do.
        for _ in 0..TOKENS {
            document(world.broker(), KEYS).await?;
        }
        Ok(())
    };
    let (a, b, ()) = tokio::try_join!(a, b, verifiers)?;
    eprintln!("{TOKENS} tokens at each of two targets in {a:?} and {b:?}");
    // An audit record is written a moment after its response.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (made, own) = (
        readings(&world)? - before,
        started.elapsed().as_secs() / 15 + 1,
    );
    assert!(
        made as u64 <= own,
        "the hub was read {made} times in {:?}; without a flood it would be {own} at most",
        started.elapsed()
    );
    for (target, audience) in [
        (world.target_a(), AUDIENCE_A),
        (world.target_b(), AUDIENCE_B),
    ] {
        let token = world
            .hub()
            .token_request(TENANT, ACCOUNT, &[audience], 600)
            .await?
            .token;
        assert_eq!(
            status_of_secrets_read(target, &token).await?,
            403,
            "a good token is still one: known, without rights"
        );
    }
    Ok(())
}

async fn flood(
    world: &World,
    target: &ControlPlane,
    audience: &str,
) -> Result<Duration, TestError> {
    let good = world
        .hub()
        .token_request(TENANT, ACCOUNT, &[audience], 600)
        .await?
        .token;
    let started = Instant::now();
    for ten in 0..TOKENS / 10 {
        let tokens = (0..10)
            .map(|one| with_kid(&good, &format!("bogus-{ten}-{one}")))
            .collect::<Result<Vec<_>, _>>()?;
        for status in try_join_all(
            tokens
                .iter()
                .map(|token| status_of_secrets_read(target, token)),
        )
        .await?
        {
            assert_eq!(status, 401);
        }
    }
    Ok(started.elapsed())
}

async fn status_of_secrets_read(target: &ControlPlane, token: &str) -> Result<u16, TestError> {
    match target
        .as_bearer(token)?
        .get("/api/v1/namespaces/default/secrets")
        .await
    {
        Ok(_) => Ok(200),
        Err(error) => error.status().ok_or_else(|| error.into()),
    }
}

/// The token under another kid. Issuer, audience and times are valid, so a verifier searches for
/// the key.
fn with_kid(token: &str, kid: &str) -> Result<String, TestError> {
    let (_, rest) = token.split_once('.').ok_or("this is no token")?;
    Ok(format!(
        "{}.{rest}",
        URL_SAFE_NO_PAD.encode(json!({ "alg": "RS256", "kid": kid }).to_string())
    ))
}

/// How often Keyferry has read the hub's keys.
fn readings(world: &World) -> Result<usize, TestError> {
    let ours = |event: &serde_json::Value| {
        event["requestURI"] == KEYS
            && event["stage"] == "ResponseComplete"
            && event["user"]["username"] == "system:serviceaccount:keyferry-system:keyferry"
    };
    Ok(world
        .hub()
        .audit_events()?
        .iter()
        .filter(|event| ours(event))
        .count())
}
