//! TokenRequest (authentication.k8s.io/v1), for exactly one audience. Every token that Keyferry asks for, server and commands, is asked
//! for here.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_core::audience::Audience;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::service_account::{ServiceAccount, Uid};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::client::HubClient;
use crate::ports::HubError;

/// A TokenRequest. Its audience cannot be left out: without one the hub would issue a credential of its own API.
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
            metadata: Metadata { name, namespace, uid: self.uid.map(Uid::as_str) },
            spec: Spec { audiences: [self.audience.as_str()], expiration_seconds: self.lifetime.as_secs() },
        };
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer: Answer = client.create(&path, &request, "TokenRequest").await?;
        Ok(MintAnswer { token: answer.status.token, expires_at: answer.status.expiration_timestamp })
    }
}

// Written out rather than taken from the library: there the audiences are optional and the token prints itself.
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
    // A hub from 1.34 on answers 409 when the live ServiceAccount has another UID; an older one ignores it.
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
