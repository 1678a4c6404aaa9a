//! A caller who may not use a target gets the same response, whether it is absent, forbidden,
//! suspended or broken.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{World, caller_token, exchange_form, token_requests};
use serde_json::json;

use super::surfaces::{ask, denied, granted, nothing_minted, observable_response};

pub(crate) async fn a_denial_says_the_same_whatever_the_cause(world: Arc<World>) -> TestResult {
    let (hub, namespace) = (world.hub(), "allowed-name");
    let stranger = caller_token(hub, "strangers", "owner").await?;
    let own = caller_token(hub, namespace, "owner").await?;
    // Absent: the access, its namespace, its target, its ServiceAccount. Forbidden: not allowed,
    // another tenant's.
    let forbidden = ask(&world, &stranger, "allowed-name/mine").await?;
    for (token, access) in [
        (&own, "allowed-name/no-such-access"),
        (&own, "no-such-namespace/no-such-access"),
        (&own, "allowed-name/nowhere"),
        (&own, "allowed-name/nobody"),
        (&own, "allowed-name/others"),
        (&own, "owned/mine"),
        (&stranger, "allowed-name/no-such-access"),
        (&stranger, "strangers/mine"),
    ] {
        denied(&world, token, access, "TargetNotGranted").await?;
        let other = ask(&world, token, access).await?;
        assert_eq!(
            observable_response(&other.exchange),
            observable_response(&forbidden.exchange),
            "{access}"
        );
        assert_eq!(
            observable_response(&other.kubeconfig),
            observable_response(&forbidden.kubeconfig),
            "{access}"
        );
    }
    nothing_minted(hub, namespace)?;
    granted(&world, &own, "allowed-name/mine", "allowed-name/owner").await?;
    assert_eq!(token_requests(hub, namespace)?, 1);
    Ok(())
}

pub(crate) async fn only_who_may_use_a_target_learns_its_state(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let stranger = caller_token(hub, "strangers", "owner").await?;
    let own = caller_token(hub, "allowed-name", "owner").await?;
    let absent = ask(&world, &stranger, "allowed-name/no-such-access").await?;
    for (name, reason) in [
        ("suspended", "TargetSuspended"),
        ("broken", "CertificateAuthorityInvalid"),
    ] {
        let access = format!("allowed-name/{name}");
        denied(&world, &stranger, &access, "TargetNotGranted").await?;
        let forbidden = ask(&world, &stranger, &access).await?;
        assert_eq!(
            observable_response(&forbidden.exchange),
            observable_response(&absent.exchange),
            "{access}"
        );
        assert_eq!(
            observable_response(&forbidden.kubeconfig),
            observable_response(&absent.kubeconfig),
            "{access}"
        );
        let told = ask(&world, &own, &access).await?;
        for answer in [&told.exchange, &told.kubeconfig] {
            assert_eq!(
                (answer.status, &answer.json()?["error"]),
                (503, &json!("target_not_ready")),
                "{}",
                answer.body
            );
            assert!(answer.body.contains(reason), "{}", answer.body);
            assert_eq!(
                world.broker().audit_of(&answer.request_id)?["reason"],
                reason
            );
        }
    }
    // Other request parameters change nothing: only a caller who may use the access learns what
    // would be too much.
    for (access, token) in [
        ("allowed-name/mine", &stranger),
        ("allowed-name/no-such-access", &own),
        ("allowed-name/others", &own),
    ] {
        let mut form = exchange_form(token, access);
        form.push(("min_ttl", "999999".to_owned()));
        assert_eq!(
            observable_response(&world.broker().post_form(&form).await?),
            observable_response(&absent.exchange),
            "{access}"
        );
    }
    let mut form = exchange_form(&own, "allowed-name/mine");
    form.push(("min_ttl", "999999".to_owned()));
    let told = world.broker().post_form(&form).await?;
    assert_eq!(
        (told.status, &told.json()?["error"]),
        (400, &json!("invalid_request")),
        "{}",
        told.body
    );
    assert!(told.body.contains("min_ttl"), "{}", told.body);
    Ok(())
}
