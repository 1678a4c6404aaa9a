//! Callers without a valid proof of their identity.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{World, caller_token, token_requests};
use serde_json::json;

use super::bad_tokens::bad_tokens;
use super::surfaces::{denied, granted, nothing_minted};

pub(crate) async fn tokens_that_are_no_caller_tokens(world: Arc<World>) -> TestResult {
    let (hub, access) = (world.hub(), "bad-tokens/mine");
    let good = caller_token(hub, "bad-tokens", "owner").await?;
    for (what, token, reason) in bad_tokens(&world, &good).await? {
        denied(&world, &token, access, reason)
            .await
            .map_err(|error| format!("{what}: {error}"))?;
        // A bad token reveals nothing about accesses either.
        denied(&world, &token, "bad-tokens/no-such-access", reason)
            .await
            .map_err(|error| format!("{what}: {error}"))?;
    }
    nothing_minted(hub, "bad-tokens")?;
    granted(&world, &good, access, "bad-tokens/owner").await?;
    assert_eq!(token_requests(hub, "bad-tokens")?, 1);
    Ok(())
}

pub(crate) async fn requests_without_a_token(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let empty = broker.exchange("", "bad-tokens/mine").await?;
    assert_eq!(
        (empty.status, &empty.json()?["error"]),
        (400, &json!("invalid_request"))
    );
    let url = format!(
        "{}/v1/namespaces/bad-tokens/accesses/mine/kubeconfig",
        broker.api_url()
    );
    for (authorization, reason) in [
        (None, "CallerMissing"),
        (Some("Bearer"), "CallerMalformed"),
        (Some("Bearer "), "CallerMalformed"),
        (Some("Basic a2V5ZmVycnk6a2V5ZmVycnk="), "CallerMalformed"),
    ] {
        let mut request = broker.http().get(&url);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send().await?;
        assert_eq!(response.status().as_u16(), 401);
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let challenge = if authorization.is_none() {
            "Bearer"
        } else {
            "Bearer error=\"invalid_token\""
        };
        assert_eq!(
            header("www-authenticate"),
            challenge,
            "RFC 6750 section 3: no error code where no token was sent"
        );
        let record = broker.audit_of(&header("x-request-id"))?;
        assert_eq!(
            (&record["decision"], &record["reason"]),
            (&json!("denied"), &json!(reason)),
            "{record}"
        );
    }
    let record = broker.audit_of(&empty.request_id)?;
    assert_eq!(
        (&record["decision"], &record["reason"]),
        (&json!("denied"), &json!("RequestInvalid")),
        "{record}"
    );
    Ok(())
}

pub(crate) async fn a_token_that_was_handed_out_is_no_caller_token(
    world: Arc<World>,
) -> TestResult {
    let own = caller_token(world.hub(), "minted", "owner").await?;
    let handed_out = granted(&world, &own, "minted/mine", "minted/owner").await?;
    denied(&world, &handed_out, "minted/mine", "CallerAudienceMismatch").await
}
