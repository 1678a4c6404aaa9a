//! TokenRequest (authentication.k8s.io/v1): pinned to a UID, for exactly one audience.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_core::audience::Audience;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::service_account::ServiceAccountIdentity;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::client::HubClient;
use crate::ports::HubError;

// Written out rather than taken from the library: there the audiences are optional and the token prints itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequest<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    // A hub from 1.34 on answers 409 when the live ServiceAccount has another UID; an older one ignores it.
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    audiences: [&'a str; 1],
    expiration_seconds: u64,
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: SecretString,
    expiration_timestamp: Timestamp,
}

/// Asks the hub for a token.
///
/// # Errors
/// [`HubError`]. The answer still has to be compared with the request.
pub(super) async fn create(
    client: &HubClient,
    identity: &ServiceAccountIdentity,
    audience: &Audience,
    lifetime: Duration,
) -> Result<MintAnswer, HubError> {
    let (namespace, name) = (identity.account.namespace.as_str(), identity.account.name.as_str());
    let request = TokenRequest {
        api_version: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        metadata: Metadata { name, namespace, uid: identity.uid.as_str() },
        spec: Spec { audiences: [audience.as_str()], expiration_seconds: lifetime.as_secs() },
    };
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let answer: Answer = client.create(&path, &request, "TokenRequest").await?;
    Ok(MintAnswer { token: answer.status.token, expires_at: answer.status.expiration_timestamp })
}
