//! What the hub says of itself: the audiences that it accepts, and as whom it knows this client.

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use keyferry_core::service_account::ServiceAccount;
use serde::Deserialize;
use serde_json::json;

use super::client::HubClient;
use crate::ports::{HubError, HubFacts};

/// The shortest life that the API allows, in seconds.
const LIFETIME: i64 = 600;

/// Asks one hub.
pub struct KubeHubFacts {
    client: HubClient,
    canary: ServiceAccount,
}

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

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

impl KubeHubFacts {
    /// By way of this client, and with tokens of this rightless ServiceAccount.
    pub fn new(client: HubClient, canary: ServiceAccount) -> KubeHubFacts {
        KubeHubFacts { client, canary }
    }

    /// Asks for the hub's audiences. It is the one TokenRequest without an audience: kube-apiserver fills in all of its own
    /// (pkg/registry/core/serviceaccount/storage/token.go). It is for a ServiceAccount without rights, and the token is not read.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn own_audiences(&self) -> Result<OwnAudiences, HubError> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.canary.namespace, self.canary.name);
        let spec = json!({ "audiences": [], "expirationSeconds": LIFETIME });
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        let filled: Filled = self.client.create(&path, &request, "TokenRequest").await?;
        let now = filled.status.expiration_timestamp.saturating_sub(SignedDuration::from_secs(LIFETIME));
        Ok(OwnAudiences { audiences: filled.spec.audiences, now: now.map_err(|_| HubError::Unreadable("TokenRequest"))? })
    }
}

impl HubFacts for KubeHubFacts {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        Box::pin(async move { Ok(self.own_audiences().await?.audiences) })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        Box::pin(async move {
            let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let review: Review = self.client.create(path, &request, "SelfSubjectReview").await?;
            Ok(review.status.user_info.username)
        })
    }
}
