//! An attacker who may write Secrets in Keyferry's namespace, but cannot make the seal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Ground, caller_token};
use serde_json::{Value, json};

use super::stage::{Judge, Stage, TENANT, published};

const SECRET: &str = "/api/v1/namespaces/keyferry-record/secrets/keyferry-keys";
/// Two rounds of ten seconds, and some room.
const NOTICED: Duration = Duration::from_secs(25);

pub(super) async fn forged(ground: Arc<Ground>) -> TestResult {
    let stage = Stage::start(&ground, "record", 30, &["reconciler".to_owned()], |spec| {
        spec
    })
    .await?;
    let stranger = ground
        .control_plane(ControlPlaneSpec::named("record-stranger"))
        .await?;
    let rogue = stranger.admin().get("/openid/v1/jwks").await?["keys"][0].clone();
    let caller = caller_token(&stage.hub, TENANT, "reconciler").await?;
    let good = stage
        .broker
        .exchange_in_time(&caller, &format!("{TENANT}/reconciler-0"))
        .await?
        .token()?;
    let before = published(&stage.broker).await?;
    let genuine = stage.hub.admin().get(SECRET).await?;
    let journal = journal_of(&genuine)?;

    let mut with_rogue = journal.clone();
    let mut record = with_rogue["keys"][0].clone();
    record["jwk"] = rogue;
    with_rogue["keys"]
        .as_array_mut()
        .ok_or("no keys")?
        .push(record);
    let mut dated_back = journal.clone();
    dated_back["keys"][0]["publishedAt"] = json!("2020-01-01T00:00:00Z");
    for (what, forged) in [("a rogue key", with_rogue), ("another time", dated_back)] {
        put(&stage, &forged.to_string()).await?;
        until_told(&stage, "its seal is missing or wrong", what).await?;
        until_fixed(&stage, &journal, what).await?;
        assert_eq!(published(&stage.broker).await?, before, "{what}");
    }
    put(&stage, "{").await?;
    until_fixed(&stage, &journal, "half a document").await?;
    stage.hub.admin().delete(SECRET).await?;
    until_told(&stage, "it is gone", "deleted").await?;
    until_fixed(&stage, &journal, "deleted").await?;

    // A genuine older key journal with its seal, as a backup would restore it.
    stage
        .hub
        .admin()
        .patch(SECRET, &json!({ "data": genuine["data"] }))
        .await?;
    until_told(&stage, "an older one", "restored").await?;
    until_fixed(&stage, &journal, "restored").await?;
    assert_eq!(published(&stage.broker).await?, before);

    for target in &stage.targets {
        let forged = stranger
            .sign_again(&good, |claims| claims["jti"] = json!("forged"))
            .await?;
        assert_eq!(
            Judge::of(target)?.status(&forged).await?,
            401,
            "{}",
            target.name()
        );
    }
    // None of it affected any caller.
    let after = stage
        .broker
        .exchange(&caller, &format!("{TENANT}/reconciler-1"))
        .await?
        .token()?;
    let second = stage.targets.get(1).ok_or("no second target")?;
    assert_eq!(Judge::of(second)?.status(&after).await?, 201);
    Ok(())
}

pub(super) fn journal_of(secret: &Value) -> Result<Value, TestError> {
    let text = secret["data"]["journal.json"]
        .as_str()
        .ok_or("the Secret holds no record")?;
    Ok(serde_json::from_slice(&STANDARD.decode(text)?)?)
}

async fn put(stage: &Stage, text: &str) -> TestResult {
    stage
        .hub
        .admin()
        .patch(
            SECRET,
            &json!({ "data": { "journal.json": STANDARD.encode(text) } }),
        )
        .await?;
    Ok(())
}

async fn until_told(stage: &Stage, what: &str, case: &str) -> TestResult {
    let limit = Instant::now() + NOTICED;
    while !stage
        .broker
        .log()?
        .lines()
        .any(|line| line.contains("KeyRecordTampered") && line.contains(what))
    {
        if Instant::now() > limit {
            return Err(format!("{case}: the alarm {what:?} was not raised").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Waits until the journal is rewritten, with a higher number and the same keys.
async fn until_fixed(stage: &Stage, journal: &Value, case: &str) -> TestResult {
    let limit = Instant::now() + NOTICED;
    loop {
        let found = stage
            .hub
            .admin()
            .get(SECRET)
            .await
            .ok()
            .and_then(|secret| journal_of(&secret).ok());
        let same = |found: &Value| {
            let (found, expected) = (&found["keys"], &journal["keys"]);
            found.as_array().map(Vec::len) == expected.as_array().map(Vec::len)
                && found[0]["jwk"] == expected[0]["jwk"]
                && found[0]["publishedAt"] == expected[0]["publishedAt"]
        };
        if found.as_ref().is_some_and(|found| {
            found["sequence"].as_u64() > journal["sequence"].as_u64() && same(found)
        }) {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("{case}: the record was not written again: {found:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
