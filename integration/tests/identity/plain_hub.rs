//! A hub with the default issuer of every cluster, and with its own audiences.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{
    ACCOUNT, Access, BrokerSpec, TENANT, Target, caller_token, claims, token_requests,
};
use serde_json::json;

use super::stage::{
    AUDIENCE_OF_HUB, CLUSTER_DEFAULT, NOT_GRANTED, Stage, owner_and_deployer, reason,
};

pub(crate) async fn an_issuer_that_targets_must_refuse(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.plain_hub;
    let mut spec = BrokerSpec::of_hub("collision", hub);
    for (name, issuer) in [
        ("unstated", ""),
        ("same", CLUSTER_DEFAULT),
        ("stated", "https://target-a.keyferry.test"),
    ] {
        spec = spec
            .with_target(target_with_issuer(&stage, name, issuer))
            .with_access(Access::of(TENANT, name, name, ACCOUNT));
    }
    hub.create_service_account(TENANT, "passer-by").await?;
    let broker = stage.start_broker(hub, spec).await?;
    let own = caller_token(hub, TENANT, ACCOUNT).await?;
    let other = caller_token(hub, TENANT, "passer-by").await?;
    let minted = token_requests(hub, TENANT)?;
    for name in ["unstated", "same"] {
        let answer = broker.exchange(&own, &format!("{TENANT}/{name}")).await?;
        assert_eq!(
            (answer.status, &answer.json()?["error"]),
            (503, &json!("target_not_ready")),
            "{}",
            answer.body
        );
        let description = answer.json()?["error_description"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        for part in [
            "IssuerCollision",
            CLUSTER_DEFAULT,
            "--service-account-issuer first",
            "keep the old one second",
        ] {
            assert!(
                description.contains(part),
                "{part:?} is not in {description:?}"
            );
        }
        assert_eq!(reason(&broker, &answer)?, "IssuerCollision");
        assert_eq!(broker.kubeconfig_of(&own, TENANT, name).await?.status, 503);
        let denied = broker.exchange(&other, &format!("{TENANT}/{name}")).await?;
        assert_eq!((denied.status, denied.body.as_str()), (400, NOT_GRANTED));
    }
    assert_eq!(token_requests(hub, TENANT)?, minted);
    let token = broker
        .exchange_in_time(&own, &format!("{TENANT}/stated"))
        .await?
        .token()?;
    assert_eq!(claims(&token)?["iss"], CLUSTER_DEFAULT);
    Ok(())
}

fn target_with_issuer(stage: &Stage, name: &str, issuer: &str) -> Target {
    let further = if issuer.is_empty() {
        String::new()
    } else {
        format!("  targetIssuer: {issuer}\n")
    };
    let target =
        Target::of(stage.target_a(), &format!("https://{name}.plain-hub.test")).named(name);
    Target {
        further,
        ..target.allowing(TENANT, &[ACCOUNT])
    }
}

pub(crate) async fn an_audience_of_the_hub_is_never_minted(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (&stage.plain_hub, "audience");
    owner_and_deployer(hub, namespace).await?;
    let target = |name: &str, audience: &str| {
        let further = "  targetIssuer: https://target-a.keyferry.test\n".to_owned();
        Target {
            further,
            ..Target::of(stage.target_a(), audience)
                .named(name)
                .allowing(namespace, &["owner"])
        }
    };
    let spec = BrokerSpec::of_hub("audience", hub)
        .with_target(target("hubs", AUDIENCE_OF_HUB))
        .with_target(target("issuers", CLUSTER_DEFAULT))
        .with_target(target("good", "https://good.plain-hub.test"))
        .with_access(Access::of(namespace, "hubs", "hubs", "owner"))
        .with_access(Access::of(namespace, "issuers", "issuers", "owner"))
        .with_access(Access::of(namespace, "good", "good", "owner"));
    let broker = stage.start_broker(hub, spec).await?;
    let own = caller_token(hub, namespace, "owner").await?;
    for name in ["hubs", "issuers", "hubs"] {
        let answer = broker
            .exchange(&own, &format!("{namespace}/{name}"))
            .await?;
        assert_eq!(
            (answer.status, &answer.json()?["error"]),
            (503, &json!("target_not_ready")),
            "{}",
            answer.body
        );
        assert_eq!(reason(&broker, &answer)?, "AudienceIsHubs");
        assert!(answer.body.contains("AudienceIsHubs"), "{}", answer.body);
    }
    assert_eq!(
        token_requests(hub, namespace)?,
        0,
        "only the canary tried it"
    );
    broker
        .exchange_in_time(&own, &format!("{namespace}/good"))
        .await?;
    assert_eq!(token_requests(hub, namespace)?, 1);
    Ok(())
}

pub(crate) async fn a_caller_audience_of_the_hub_stops_the_start(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.plain_hub;
    let spec = BrokerSpec::of_hub("caller-audience", hub)
        .with_server_lines(&format!("callerAudience: {AUDIENCE_OF_HUB}\n"));
    let output = stage.refused_start(hub, spec).await?;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("error: ")
            && last.contains("callerAudience")
            && last.contains(AUDIENCE_OF_HUB),
        "{last}"
    );
    assert!(
        last.contains("the hub's own apiserver accepts it") && last.contains("choose another"),
        "{last}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    Ok(())
}
