//! A key set whose Secret an admin deletes because a key was stolen.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, caller_token};
use serde_json::Value;

use super::stage::{REVOKED, Stage, secret_path, whoami};

/// The documented limit is ten seconds.
const GONE: Duration = Duration::from_secs(15);
/// The activation delay of a set is 120 s. The rest is for noticing that it is missing, and for a
/// busy machine.
const SIGNS_AGAIN: Duration = Duration::from_secs(160);

pub(super) async fn a_deleted_key_set_is_revoked(stage: Arc<Stage>) -> TestResult {
    let caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    let access = format!("{TENANT}/{REVOKED}");
    let stolen = stage.broker.exchange(&caller, &access).await?.token()?;
    whoami(&stage.revoked, &stolen).await?;
    let before = kids(&stage.stored(REVOKED).await?)?;

    stage.hub.admin().delete(&secret_path(REVOKED)).await?;
    let deleted = Instant::now();
    loop {
        let published = published(&stage).await?;
        if before.iter().all(|kid| !published.contains(kid)) {
            break;
        }
        assert!(
            deleted.elapsed() < GONE,
            "keys of the deleted set are still published: {published}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let fresh = kids(&stage.stored(REVOKED).await?)?;
    assert!(fresh.iter().all(|kid| !before.contains(kid)), "{fresh:?}");
    let answer = stage.broker.exchange(&caller, &access).await?;
    assert!(
        answer.status == 503 && answer.body.contains("IssuerKeysSettling"),
        "{} {}",
        answer.status,
        answer.body
    );

    // The target forgets the stolen key when it restarts.
    stage.revoked.restart().await?;
    assert_eq!(
        whoami(&stage.revoked, &stolen)
            .await
            .err()
            .and_then(|error| error.status()),
        Some(401)
    );
    let renewed_answer = loop {
        // The caller's token lives for ten minutes.
        let answer = stage.broker.exchange(&caller, &access).await?;
        if answer.status == 200 {
            break answer.token()?;
        }
        assert!(
            deleted.elapsed() < SIGNS_AGAIN && answer.body.contains("IssuerKeysSettling"),
            "{} {}",
            answer.status,
            answer.body
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert!(
        deleted.elapsed() >= Duration::from_secs(120),
        "the new set signed {:?} after the old one was deleted",
        deleted.elapsed()
    );
    whoami(&stage.revoked, &renewed_answer).await?;
    assert_eq!(
        whoami(&stage.revoked, &stolen)
            .await
            .err()
            .and_then(|error| error.status()),
        Some(401),
        "and by the new keys too"
    );
    Ok(())
}

async fn published(stage: &Stage) -> Result<String, TestError> {
    Ok(stage
        .broker
        .http()
        .get(format!("{}/openid/v1/jwks", stage.issuer(REVOKED)))
        .send()
        .await?
        .text()
        .await?)
}

fn kids(set: &Value) -> Result<[String; 2], TestError> {
    let kid = |role: &str| {
        set[role]["kid"]
            .as_str()
            .map(str::to_owned)
            .ok_or("a key has a kid")
    };
    Ok([kid("current")?, kid("next")?])
}
