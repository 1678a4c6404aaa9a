//! The main use on real clusters: a tenant's workload reaches its target with a token from
//! Keyferry, and no other target.

mod trace;

use std::sync::Arc;

use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{BoxedSuite, Suite, TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, AUDIENCE_B, TENANT, World, caller_token};
use serde_json::{Value, json};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .test(
            "a_tenant_reaches_its_target_and_no_other",
            a_tenant_reaches_its_target_and_no_other,
        )
        .test(
            "the_audit_record_joins_the_logs",
            the_audit_record_joins_the_logs,
        )
        .test(
            "tokens_are_traced_through_the_logs",
            trace::tokens_are_traced_through_the_logs,
        )
        .boxed()
}

async fn whoami(client: &RestClient) -> Result<Value, TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    Ok(client
        .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await?["status"]["userInfo"]
        .take())
}

async fn a_tenant_reaches_its_target_and_no_other(world: Arc<World>) -> TestResult {
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let answer = world.broker().exchange(&caller, "tenant-a/a").await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = answer.json()?;
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(
        body["issued_token_type"],
        "urn:ietf:params:oauth:token-type:jwt"
    );
    let expires_in = body["expires_in"]
        .as_u64()
        .ok_or("expires_in is no number")?;
    assert!(
        (3500..=3540).contains(&expires_in),
        "an hour less the margin: {expires_in}"
    );
    let token = answer.token()?;

    let user = whoami(&world.target_a().as_bearer(&token)?).await?;
    assert_eq!(
        user["username"],
        "hub:system:serviceaccount:tenant-a:reconciler"
    );
    assert_eq!(user["groups"], json!(["system:authenticated"]));

    let refused = whoami(&world.target_b().as_bearer(&token)?)
        .await
        .err()
        .ok_or("the second target accepts the token")?;
    assert!(refused.to_string().contains("401"), "{refused}");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let review = world
        .target_b()
        .admin()
        .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await?;
    let cause = review["status"]["error"].as_str().unwrap_or_default();
    assert!(
        cause.contains(AUDIENCE_B) && cause.contains(AUDIENCE_A),
        "the cause is the audience alone: {cause}"
    );

    let refused = whoami(&world.hub().as_bearer(&token)?)
        .await
        .err()
        .ok_or("the hub accepts the token")?;
    assert!(refused.to_string().contains("401"), "{refused}");
    Ok(())
}

async fn the_audit_record_joins_the_logs(world: Arc<World>) -> TestResult {
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let answer = world.broker().exchange(&caller, "tenant-a/a").await?;
    let token = answer.token()?;
    let record = world.broker().audit_of(&answer.request_id)?;
    assert_eq!(record["decision"], "granted");
    assert_eq!(record["serviceAccount"], "tenant-a/reconciler");
    assert_eq!(record["audience"], AUDIENCE_A);
    let user = whoami(&world.target_a().as_bearer(&token)?).await?;
    let seen_by_target = user["extra"]["authentication.kubernetes.io/credential-id"][0]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        seen_by_target,
        format!("JTI={}", record["tokenId"].as_str().unwrap_or_default())
    );
    assert!(
        !std::fs::read_to_string(world.broker().process().log())?.contains(&token),
        "the token is logged"
    );
    assert!(
        !world
            .broker()
            .audit()?
            .iter()
            .any(|record| record.to_string().contains(&token)),
        "the token is in the audit log"
    );
    Ok(())
}
