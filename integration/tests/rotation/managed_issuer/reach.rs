//! The main use of managed issuers, on both minor versions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, TENANT, caller_token, claims, token_requests};
use serde_json::json;

use super::stage::{Stage, TARGETS, audience, whoami};

pub(super) async fn a_tenant_reaches_each_target_with_its_managed_issuer(
    stage: Arc<Stage>,
) -> TestResult {
    let caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    for (index, target) in TARGETS.into_iter().enumerate() {
        let answer = stage
            .broker
            .exchange(&caller, &format!("{TENANT}/{target}"))
            .await?;
        let token = answer.token()?;
        let claims = claims(&token)?;
        assert_eq!(
            (&claims["iss"], &claims["aud"]),
            (&json!(stage.issuer(target)), &json!([audience(target)]))
        );
        let user = whoami(&stage.targets[index], &token).await?;
        assert_eq!(
            user["username"],
            "hub:system:serviceaccount:tenant-a:reconciler"
        );
        let record = stage.broker.audit_of(&answer.request_id)?;
        assert_eq!(
            (&record["decision"], &record["tokenId"]),
            (&json!("granted"), &claims["jti"])
        );
        for elsewhere in [&stage.targets[1 - index], &*stage.hub] {
            let refused = whoami(elsewhere, &token)
                .await
                .err()
                .and_then(|error| error.status());
            assert_eq!(
                refused,
                Some(401),
                "{} takes a token for {target}",
                elsewhere.name()
            );
        }
        // A stored key is published within ten seconds, and another test may be rotating keys now.
        let stored = stage.stored(target).await?;
        let kids =
            ["current", "next"].map(|role| stored[role]["kid"].as_str().unwrap_or("?").to_owned());
        let since = Instant::now();
        loop {
            let documents = stage
                .broker
                .http()
                .get(format!("{}/openid/v1/jwks", stage.issuer(target)))
                .send()
                .await?;
            let published = documents.text().await?;
            if kids.iter().all(|kid| published.contains(kid)) {
                break;
            }
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "{kids:?} are not all published: {published}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    assert!(
        token_requests(&stage.hub, TENANT)? >= TARGETS.len(),
        "the hub was asked for its consent, by its own audit log"
    );
    assert!(!std::fs::read_to_string(stage.broker.process().log())?.contains("privateKey"));
    Ok(())
}
