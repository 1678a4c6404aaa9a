//! The hub answers a TokenRequest with a token for another ServiceAccount than the requested one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{World, make_tenant};
use serde_json::{Value, json};

use super::setup::{ACCOUNT, Behind, GRANTED_WITHIN, token_path};

const CACHED_TOKENS_METRIC: &str = "keyferry_cached_tokens";

pub(super) async fn is_dropped(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "mismatch", 300, &["one", "two"]).await?;
    make_tenant(&behind.hub, "mismatch", &[ACCOUNT, "stranger"]).await?;

    // A real token of the hub that is right in everything except its owner.
    let minted = behind
        .hub
        .token_request(
            "mismatch",
            "stranger",
            &["https://mismatch-one.keyferry.test"],
            3600,
        )
        .await?;
    let answer = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "status": { "token": minted.token, "expirationTimestamp": minted.expires },
    });
    let body = answer.to_string().into_bytes();
    let swapped = Fault::ReplaceBody {
        body,
        content_type: HeaderValue::from_static("application/json"),
    };
    nothing_is_handed_out(&behind, "one", swapped, "MintMismatch", &minted.token).await?;
    // The metric is updated every two seconds. Each exchange makes the cache count again.
    let caller = behind.fresh_caller().await?;
    let told = Instant::now();
    while behind.broker.metric(CACHED_TOKENS_METRIC).await? < 1.0 {
        assert!(
            told.elapsed() < Duration::from_secs(20),
            "the token for the first target is not counted"
        );
        assert_eq!(behind.exchange(&caller, "one").await?.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // The request goes to another ServiceAccount: kube-apiserver compares the name that Keyferry
    // writes into the object with the path.
    let sent_elsewhere = Fault::RewritePath {
        from: token_path(ACCOUNT),
        to: token_path("stranger"),
    };
    nothing_is_handed_out(&behind, "two", sent_elsewhere, "MintFailed", "eyJ").await
}

async fn nothing_is_handed_out(
    behind: &Behind,
    target: &str,
    fault: Fault,
    reason: &str,
    secret: &str,
) -> TestResult {
    let caller = behind.fresh_caller().await?;
    let (held, requests) = (
        behind.broker.metric(CACHED_TOKENS_METRIC).await?,
        behind.token_requests(),
    );
    let rule = behind
        .proxy
        .add(Rule::on(Method::POST, &token_path(ACCOUNT), fault));
    let answer = behind.exchange(&caller, target).await?;
    assert_eq!(answer.status, 503, "{reason}: {}", answer.body);
    assert!(
        answer.body.contains(reason) && !answer.body.contains(secret),
        "{}",
        answer.body
    );
    assert!(
        !behind.broker.log()?.contains(secret),
        "{reason}: the token is in the log"
    );
    let record = behind.broker.audit_of(&answer.request_id)?;
    assert_eq!(
        (&record["decision"], &record["reason"]),
        (&Value::from("failed"), &Value::from(reason))
    );
    assert!(
        record.get("tokenId").is_none_or(Value::is_null),
        "a token is recorded as issued: {record}"
    );
    assert_eq!(behind.broker.metric(CACHED_TOKENS_METRIC).await?, held);
    assert_eq!(behind.token_requests() - requests, 1);

    behind.proxy.remove(rule);
    let answer = behind
        .until_granted(&caller, target, GRANTED_WITHIN)
        .await?;
    let record = behind.broker.audit_of(&answer.request_id)?;
    assert_eq!(
        (&record["cache"], &record["serviceAccount"]),
        (&json!("miss"), &json!("mismatch/runner")),
        "nothing was kept"
    );
    assert_eq!(behind.token_requests() - requests, 2);
    Ok(())
}
