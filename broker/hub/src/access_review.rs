//! SubjectAccessReview (authorization.k8s.io/v1): whether the hub's own RBAC lets this caller mint
//! for that ServiceAccount, or lets this user read a path of ours.

use std::collections::BTreeMap;

use keyferry_api::service_account::ServiceAccount;
use keyferry_core::caller::ReviewedUser;
use serde::{Deserialize, Serialize};

use super::client::HubClient;
use crate::ports::HubError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubjectAccessReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

// The user is sent whole. Without the groups, the review would miss rights that are granted to a
// group.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    user: &'a str,
    uid: &'a str,
    groups: &'a [String],
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    question: Question<'a>,
}

#[derive(Serialize)]
enum Question<'a> {
    #[serde(rename = "resourceAttributes")]
    Resource(ResourceAttributes<'a>),
    #[serde(rename = "nonResourceAttributes")]
    Path { path: &'a str, verb: &'static str },
}

#[derive(Serialize)]
struct ResourceAttributes<'a> {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'a str,
    name: &'a str,
}

/// The response to a SubjectAccessReview or a SelfSubjectAccessReview.
#[derive(Deserialize)]
pub(super) struct AccessReviewResponse {
    #[serde(default)]
    pub(super) status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AccessReviewStatus {
    pub(super) allowed: bool,
    denied: bool,
}

/// Asks the hub whether the user may create tokens for a ServiceAccount. True only for `allowed`
/// without `denied`.
///
/// # Errors
/// [`HubError`].
pub(super) async fn create_access_review(
    client: &HubClient,
    user: &ReviewedUser,
    account: &ServiceAccount,
) -> Result<bool, HubError> {
    let question = Question::Resource(ResourceAttributes {
        verb: "create",
        group: "",
        version: "v1",
        resource: "serviceaccounts",
        subresource: "token",
        namespace: account.namespace.as_str(),
        name: account.name.as_str(),
    });
    ask_access(client, user, question).await
}

/// Asks the hub whether the user may `get` a path. True only for `allowed` without `denied`.
///
/// # Errors
/// [`HubError`].
pub(super) async fn of_path(
    client: &HubClient,
    user: &ReviewedUser,
    path: &str,
) -> Result<bool, HubError> {
    ask_access(client, user, Question::Path { path, verb: "get" }).await
}

async fn ask_access(
    client: &HubClient,
    user: &ReviewedUser,
    question: Question<'_>,
) -> Result<bool, HubError> {
    let review = SubjectAccessReview {
        api_version: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: Spec {
            user: &user.username,
            uid: &user.uid,
            groups: &user.groups,
            extra: &user.extra,
            question,
        },
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer: AccessReviewResponse = client.create(path, &review, "SubjectAccessReview").await?;
    Ok(answer.status.allowed && !answer.status.denied)
}
