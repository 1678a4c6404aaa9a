//! TokenRequest (authentication.k8s.io/v1), for exactly one audience. Every token that Keyferry
//! asks for, server and commands, is asked for here. Two requests are of another form, and give
//! nobody a token: what the hub fills in where no audience is named, and a dry run by which an
//! admission policy is tried.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keyferry_core::audience::Audience;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::service_account::{ServiceAccount, Uid};
use secrecy::SecretString;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::HubClient;
use crate::ports::HubError;

/// A TokenRequest. Its audience cannot be left out: without one the hub would issue a credential of
/// its own API.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// Whose token.
    pub account: &'a ServiceAccount,
    /// The ServiceAccount's UID, where the caller has seen the object.
    pub uid: Option<&'a Uid>,
    /// The one audience.
    pub audience: &'a Audience,
    /// How long the token is to live.
    pub lifetime: Duration,
}

impl TokenRequest<'_> {
    /// Sends it.
    ///
    /// # Errors
    /// [`HubError`]. The answer still has to be compared with the request.
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
        let answer: Answer = client.create(&path, &request, "TokenRequest").await?;
        Ok(MintAnswer {
            token: answer.status.token,
            expires_at: answer.status.expiration_timestamp,
        })
    }
}

// Written out rather than taken from the library: there the audiences are optional and the token
// prints itself.
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
    // A hub from 1.34 on answers 409 when the live ServiceAccount has another UID; an older one
    // ignores it.
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
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: SecretString,
    expiration_timestamp: Timestamp,
}

/// The shortest life that the API allows, in seconds.
const SHORTEST: i64 = 600;

/// What the hub says of itself in the answer to a TokenRequest without audiences.
#[derive(Clone, Debug)]
pub struct OwnAudiences {
    /// All that it accepts.
    pub audiences: Vec<String>,
    /// Its clock.
    pub now: Timestamp,
}

/// A TokenRequest as it comes back, without its token: what is not read cannot leave.
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

/// Asks for the hub's own audiences. It is the one TokenRequest without an audience: kube-apiserver
/// fills in all of its own (pkg/registry/core/serviceaccount/storage/token.go). `canary` is to be a
/// ServiceAccount without rights, and the token is not read.
///
/// # Errors
/// [`HubError`].
pub async fn own_audiences(
    client: &HubClient,
    canary: &ServiceAccount,
) -> Result<OwnAudiences, HubError> {
    let filled: Filled = client
        .create(&path(canary), &object(&[]), "TokenRequest")
        .await?;
    let now = filled
        .status
        .expiration_timestamp
        .saturating_sub(SignedDuration::from_secs(SHORTEST));
    Ok(OwnAudiences {
        audiences: filled.spec.audiences,
        now: now.map_err(|_| HubError::Unreadable("TokenRequest"))?,
    })
}

/// Whether the hub would grant a token for this audience, or for it and another one. A dry run
/// issues one all the same, which is not read.
///
/// # Errors
/// [`HubError`]: that it would not.
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
    let path = format!("{}?dryRun=All", path(account));
    client
        .create::<_, IgnoredAny>(&path, &object(&audiences), "TokenRequest")
        .await
        .map(drop)
}

fn path(account: &ServiceAccount) -> String {
    format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}/token",
        account.namespace, account.name
    )
}

fn object(audiences: &[&str]) -> Value {
    let spec = json!({ "audiences": audiences, "expirationSeconds": SHORTEST });
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec })
}
