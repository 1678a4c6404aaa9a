//! Asks the hub about itself: which audiences it accepts, and which user this client is there.

use futures::future::BoxFuture;
use keyferry_api::service_account::ServiceAccount;
use serde::Deserialize;
use serde_json::json;

use super::client::HubClient;
use super::token_request;
use crate::ports::{HubError, HubFacts};

/// Reads the facts of one hub.
pub struct KubeHubFacts {
    client: HubClient,
    canary: ServiceAccount,
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
    /// Creates the reader. `canary` is a ServiceAccount without rights, whose tokens reveal the
    /// hub's audiences.
    pub fn new(client: HubClient, canary: ServiceAccount) -> Self {
        Self { client, canary }
    }
}

impl HubFacts for KubeHubFacts {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        Box::pin(async move {
            Ok(token_request::own_audiences(&self.client, &self.canary)
                .await?
                .audiences)
        })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        Box::pin(async move {
            let request =
                json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let review: Review = self
                .client
                .create(path, &request, "SelfSubjectReview")
                .await?;
            Ok(review.status.user_info.username)
        })
    }
}
