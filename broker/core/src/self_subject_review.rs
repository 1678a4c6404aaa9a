//! The SelfSubjectReview of Kubernetes: asks an apiserver which user a request is.

use serde::Deserialize;
use serde_json::{Value, json};

/// The kind of the object.
pub const REVIEW_KIND: &str = "SelfSubjectReview";
/// Where it is created.
pub const REVIEW_PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Returns the object to send.
#[must_use]
pub fn review_request() -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": REVIEW_KIND })
}

/// The answer.
#[derive(Clone, Debug, Deserialize)]
pub struct SelfSubjectReview {
    /// The result.
    pub status: SelfSubjectReviewStatus,
}

/// The result of a review.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfSubjectReviewStatus {
    /// Which user the request is.
    pub user_info: UserInfo,
}

/// The user of a request, without `extra`.
#[derive(Clone, Debug, Deserialize)]
pub struct UserInfo {
    /// The name; every user has one.
    pub username: String,
    /// The uid; a user of a certificate has none.
    #[serde(default)]
    pub uid: String,
    /// The groups.
    #[serde(default)]
    pub groups: Vec<String>,
}
