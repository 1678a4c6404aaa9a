//! TokenRequest (authentication.k8s.io/v1), for exactly one audience. Server and commands request
//! every token here. Two more requests exist, whose tokens are never read: one without an audience,
//! which reveals the hub's own, and a dry run that tries an admission policy.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::audience::Audience;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_keys::bound_token::MintAnswer;
use secrecy::SecretString;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::HubClient;
use crate::ports::HubError;

/// A TokenRequest. The audience is required: without one, the hub would issue a credential for its
/// own API.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The ServiceAccount that the token is for.
    pub account: &'a ServiceAccount,
    /// The ServiceAccount's UID, if the caller has seen the object.
    pub uid: Option<&'a Uid>,
    /// The token's only audience.
    pub audience: &'a Audience,
    /// The requested lifetime of the token.
    pub lifetime: Duration,
}

impl TokenRequest<'_> {
    /// Sends the request.
    ///
    /// # Errors
    /// [`HubError`]. The caller still has to compare the token with the request.
    pub async fn send(self, client: &HubClient) -> Result<MintAnswer, HubError> {
        let (namespace, name) = (self.account.namespace.as_str(), self.account.name.as_str());
        let request = Object {
            api_version: "authentication.k8s.io/v1",
            kind: "TokenRequest",
            metadata: Metadata {
                name,
                namespace,
                uid: self.uid.map(Uid::as_str),
            },
            spec: Spec {
                audiences: [self.audience.as_str()],
                expiration_seconds: self.lifetime.as_secs(),
            },
        };
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer: TokenRequestResponse = client.create(&path, &request, "TokenRequest").await?;
        Ok(MintAnswer {
            token: answer.status.token,
            expires_at: answer.status.expiration_timestamp,
        })
    }
}

// Defined here, because the library's type makes the audiences optional and its token can be
// printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    // From 1.34 on, a hub answers 409 if the live ServiceAccount has another UID. Older hubs ignore
    // it.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    audiences: [&'a str; 1],
    expiration_seconds: u64,
}

#[derive(Deserialize)]
struct TokenRequestResponse {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: SecretString,
    expiration_timestamp: Timestamp,
}

/// The shortest lifetime that the API allows, in seconds.
const MIN_LIFETIME_SECONDS: i64 = 600;

/// Facts about the hub from the response to a TokenRequest without audiences.
#[derive(Clone, Debug)]
pub struct OwnAudiences {
    /// All audiences that the hub accepts.
    pub audiences: Vec<String>,
    /// The time by the hub's clock.
    pub now: Timestamp,
}

/// The response to a TokenRequest without its token: what is never parsed cannot leak.
#[derive(Deserialize)]
struct Filled {
    spec: FilledSpec,
    status: FilledStatus,
}

#[derive(Deserialize)]
struct FilledSpec {
    audiences: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilledStatus {
    expiration_timestamp: Timestamp,
}

/// Asks for the hub's own audiences. This is the only TokenRequest without an audience:
/// kube-apiserver fills in all of its own (pkg/registry/core/serviceaccount/storage/token.go).
/// `canary` must be a ServiceAccount without rights. The token is not read.
///
/// # Errors
/// [`HubError`].
pub async fn own_audiences(
    client: &HubClient,
    canary: &ServiceAccount,
) -> Result<OwnAudiences, HubError> {
    let filled: Filled = client
        .create(&request_path(canary), &request_object(&[]), "TokenRequest")
        .await?;
    let now = filled
        .status
        .expiration_timestamp
        .saturating_sub(SignedDuration::from_secs(MIN_LIFETIME_SECONDS));
    Ok(OwnAudiences {
        audiences: filled.spec.audiences,
        now: now.map_err(|_| HubError::Unreadable("TokenRequest"))?,
    })
}

/// Tests whether the hub would grant a token for this audience, or for it and another one. The hub
/// issues a token even for a dry run; it is not read.
///
/// # Errors
/// [`HubError`]: the hub would not grant it.
pub async fn dry_run(
    client: &HubClient,
    account: &ServiceAccount,
    audience: &Audience,
    beside: Option<&Audience>,
) -> Result<(), HubError> {
    let audiences: Vec<&str> = [Some(audience), beside]
        .into_iter()
        .flatten()
        .map(Audience::as_str)
        .collect();
    let path = format!("{}?dryRun=All", request_path(account));
    client
        .create::<_, IgnoredAny>(&path, &request_object(&audiences), "TokenRequest")
        .await
        .map(drop)
}

fn request_path(account: &ServiceAccount) -> String {
    format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}/token",
        account.namespace, account.name
    )
}

fn request_object(audiences: &[&str]) -> Value {
    let spec = json!({ "audiences": audiences, "expirationSeconds": MIN_LIFETIME_SECONDS });
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec })
}
