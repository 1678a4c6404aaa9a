//! Asks the hub about itself: which audiences it accepts, and which user this client is there.

use futures::future::BoxFuture;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::self_subject_review::{self, SelfSubjectReview};

use super::client::HubClient;
use super::token_request;
use crate::ports::{HubError, HubFacts};

/// Reads the facts of one hub.
pub struct KubeHubFacts {
    client: HubClient,
    canary: ServiceAccount,
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
            let review: SelfSubjectReview = self
                .client
                .create(
                    self_subject_review::REVIEW_PATH,
                    &self_subject_review::review_request(),
                    self_subject_review::REVIEW_KIND,
                )
                .await?;
            Ok(review.status.user_info.username)
        })
    }
}
