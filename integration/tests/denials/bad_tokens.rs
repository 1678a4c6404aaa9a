//! Real or nearly real tokens that are not caller tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use keyferry_integration::wait::until;
use keyferry_integration::world::{AUDIENCE_A, CALLER_AUDIENCE, World, caller_token, claims};
use serde_json::{Value, json};

pub(crate) async fn bad_tokens(
    world: &World,
    good: &str,
) -> Result<Vec<(&'static str, String, &'static str)>, TestError> {
    let (hub, old_hub) = (world.hub(), world.old_hub());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let managed_issuer = "https://hub.keyferry.test";
    let expired = hub.sign_again(good, |claims| {
        claims["iat"] = json!(now - 700);
        claims["nbf"] = json!(now - 700);
        claims["exp"] = json!(now - 1);
    });
    old_hub
        .create_namespace_with_service_account("bad-tokens", "owner")
        .await?;
    let others = caller_token(old_hub, "bad-tokens", "owner").await?;
    let posing = old_hub
        .sign_again(&others, |claims| claims["iss"] = json!(managed_issuer))
        .await?;
    // A stolen signing key alone does not make a caller, because the hub does not know this UID.
    let invented = hub.sign_again(good, |claims| {
        claims["kubernetes.io"]["serviceaccount"]["uid"] =
            json!("00000000-0000-4000-8000-000000000000")
    });
    let renamed = with_claims(good, |claims| {
        claims["sub"] = json!("system:serviceaccount:tenant-a:reconciler")
    })?;
    let longer = with_claims(good, |claims| claims["exp"] = json!(now + 86_400))?;
    Ok(vec![
        (
            "for the hub",
            for_audiences(hub, &[]).await?,
            "CallerAudienceMismatch",
        ),
        (
            "for a target",
            for_audiences(hub, &[AUDIENCE_A]).await?,
            "CallerAudienceMismatch",
        ),
        (
            "for Keyferry and the hub",
            for_audiences(hub, &[CALLER_AUDIENCE, managed_issuer]).await?,
            "CallerAudienceMismatch",
        ),
        (
            "for the hub and Keyferry",
            for_audiences(hub, &[managed_issuer, CALLER_AUDIENCE]).await?,
            "CallerAudienceMismatch",
        ),
        (
            "for almost Keyferry",
            for_audiences(hub, &["keyferry.dev."]).await?,
            "CallerAudienceMismatch",
        ),
        ("expired", expired.await?, "CallerExpired"),
        ("another hub's", others, "CallerIssuerMismatch"),
        ("another hub's under our issuer", posing, "CallerRejected"),
        (
            "of a UID that is not there",
            invented.await?,
            "CallerRejected",
        ),
        (
            "another subject under an old signature",
            renamed,
            "CallerMalformed",
        ),
        (
            "a longer life under an old signature",
            longer,
            "CallerRejected",
        ),
        (
            "without its signature",
            format!("{}.", good.rsplit_once('.').ok_or("no token")?.0),
            "CallerMalformed",
        ),
        ("unsigned", unsigned(good)?, "CallerMalformed"),
        (
            "a legacy Secret's",
            legacy_token(hub, "bad-tokens", "owner").await?,
            "CallerMalformed",
        ),
        ("garbage", "garbage".to_owned(), "CallerMalformed"),
        (
            "garbage in three parts",
            "a.b.c".to_owned(),
            "CallerMalformed",
        ),
        ("a thousand dots", ".".repeat(1000), "CallerMalformed"),
        ("two tokens", format!("{good} {good}"), "CallerMalformed"),
    ])
}

async fn for_audiences(hub: &ControlPlane, audiences: &[&str]) -> Result<String, TestError> {
    Ok(hub
        .token_request("bad-tokens", "owner", audiences, 600)
        .await?
        .token)
}

/// The token with other claims under its old signature.
fn with_claims(token: &str, edit: impl FnOnce(&mut Value)) -> Result<String, TestError> {
    let mut parts = token.split('.');
    let (Some(header), Some(_), Some(signature)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err("no token".into());
    };
    let mut claims = claims(token)?;
    edit(&mut claims);
    Ok(format!(
        "{header}.{}.{signature}",
        URL_SAFE_NO_PAD.encode(claims.to_string())
    ))
}

/// An unsecured JWT, RFC 7519 section 6.
fn unsigned(token: &str) -> Result<String, TestError> {
    let claims = token.split('.').nth(1).ok_or("no token")?;
    Ok(format!(
        "{}.{claims}.",
        URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}")
    ))
}

/// The token of a Secret of type kubernetes.io/service-account-token, which the controller manager
/// fills: no expiry, no audience.
async fn legacy_token(
    hub: &ControlPlane,
    namespace: &str,
    account: &str,
) -> Result<String, TestError> {
    let path = format!("/api/v1/namespaces/{namespace}/secrets/legacy");
    let annotations = json!({ "kubernetes.io/service-account.name": account });
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "legacy", "annotations": annotations },
    });
    hub.admin().apply(&path, &secret).await?;
    until(
        "the Secret has its token",
        Duration::from_secs(20),
        || async { Ok(hub.admin().get(&path).await?["data"]["token"].is_string()) },
    )
    .await?;
    let data = hub.admin().get(&path).await?["data"]["token"].take();
    let token = String::from_utf8(STANDARD.decode(data.as_str().unwrap_or_default())?)?;
    // The hub itself accepts it: it is a credential, but not one for Keyferry.
    hub.as_bearer(&token)?.get("/version").await?;
    Ok(token)
}
