//! SelfSubjectAccessReview (authorization.k8s.io/v1): what Keyferry's own account may do.

use keyferry_api::name::Namespace;
use serde_json::json;

use super::access_review::AccessReviewResponse;
use super::client::HubClient;
use crate::ports::HubError;

/// Whether Keyferry's account may mint for every ServiceAccount of a namespace, or of the hub. That
/// is more than a configuration file should be trusted with. A Role with `resourceNames` gives no.
///
/// # Errors
/// [`HubError`].
pub async fn may_mint_for_all(
    client: &HubClient,
    namespace: Option<&Namespace>,
) -> Result<bool, HubError> {
    let namespace = namespace.map(Namespace::as_str).unwrap_or_default();
    let attributes = json!({
        "verb": "create", "group": "", "resource": "serviceaccounts", "subresource": "token", "namespace": namespace,
    });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer: AccessReviewResponse = client
        .create(path, &review, "SelfSubjectAccessReview")
        .await?;
    Ok(answer.status.allowed)
}
