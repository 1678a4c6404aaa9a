//! The token with which Keyferry authenticates to the hub.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Answer, CALLER_AUDIENCE, caller_token, claims};
use serde_json::{Value, json};

use super::stage::{Stage, owner_and_deployer, reason, two_targets};

pub(crate) async fn keyferrys_own_token_expires_and_is_renewed(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "own-token");
    owner_and_deployer(hub, namespace).await?;
    let broker = stage
        .start_broker(hub, two_targets(&stage, namespace, hub, namespace))
        .await?;
    // A caller that was never seen before requires a call to the hub each time.
    let ask = || async {
        let own = caller_token(hub, namespace, "owner").await?;
        broker.exchange(&own, "own-token/held").await
    };
    let owner_token = caller_token(hub, namespace, "owner").await?;
    broker
        .exchange_in_time(&owner_token, "own-token/held")
        .await?;
    broker.kubeconfig().expire_token().await?;
    // Keyferry re-reads the token once a minute, as client-go does. Until then, the token that it
    // read before is valid.
    let refused = until(Duration::from_secs(70), |answer| answer.status != 200, &ask).await?;
    let body: Value = refused.json()?;
    assert_eq!(
        (refused.status, &body["error"]),
        (503, &json!("temporarily_unavailable")),
        "{body}"
    );
    assert_eq!(reason(&broker, &refused)?, "ReviewForbidden");
    let document = broker
        .http()
        .get(format!("{}/openid/v1/jwks", broker.discovery_url()))
        .send()
        .await?;
    assert_eq!(document.status().as_u16(), 200, "what is published stays");

    broker.kubeconfig().rewrite_token(3600).await?;
    until(Duration::from_secs(70), |answer| answer.status == 200, &ask).await?;
    // It mints again, for old callers too, once it has re-read the key journal: 2 s between tries.
    let again = async || {
        let answer = broker.exchange(&owner_token, "own-token/fresh").await?;
        assert!(
            answer.status == 200 || reason(&broker, &answer)? == "KeyRecordUnread",
            "{}",
            answer.body
        );
        Ok(answer)
    };
    until(
        Duration::from_secs(20),
        |answer| answer.status == 200,
        again,
    )
    .await?;
    assert_eq!(claims(&owner_token)?["aud"], json!([CALLER_AUDIENCE]));
    Ok(())
}

async fn until<F: Future<Output = Result<Answer, TestError>>>(
    limit: Duration,
    wanted: impl Fn(&Answer) -> bool,
    ask: impl Fn() -> F,
) -> Result<Answer, TestError> {
    let started = Instant::now();
    loop {
        let answer = ask().await?;
        if wanted(&answer) {
            return Ok(answer);
        }
        if started.elapsed() > limit {
            return Err(format!("still {} {} after {limit:?}", answer.status, answer.body).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
