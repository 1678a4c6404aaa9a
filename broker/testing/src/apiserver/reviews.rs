//! The reviews of every server: SelfSubjectReview, TokenReview, SelfSubjectAccessReview and
//! SubjectAccessReview.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::index::ApiResource;
use super::policy::{Decision, ReviewedToken, ServerPolicy};
use crate::identity::UserInfo;
use crate::json_body;
use crate::status::ApiError;
use keyferry_kube_rbac::{Attributes, ResourceRequest};

const AUTHENTICATION: &str = "authentication.k8s.io/v1";
pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io/v1";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

pub(crate) type Reviewed = Result<(StatusCode, Json<Value>), ApiError>;

/// The reviews, as the server's discovery documents list them.
pub(crate) const SERVED: &[ApiResource] = &[
    ApiResource::review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    ApiResource::review(AUTHENTICATION, "tokenreviews", "TokenReview"),
    ApiResource::review(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
    ),
    ApiResource::review(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
];

pub(crate) fn routes<P: ServerPolicy>() -> Router<Arc<P>> {
    Router::new()
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(review_self),
        )
        .route(TOKEN_REVIEWS, post(review_token::<P>))
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            post(review_own_access::<P>),
        )
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(review_access::<P>),
        )
}

async fn review_self(Extension(user): Extension<UserInfo>) -> (StatusCode, Json<Value>) {
    let status = json!({"userInfo": user});
    created(AUTHENTICATION, "SelfSubjectReview", &status)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenSpec {
    token: String,
    audiences: Option<Vec<String>>,
}

async fn review_token<P: ServerPolicy>(
    State(policy): State<Arc<P>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "TokenReview";
    let TokenSpec { token, audiences } = read_spec(&headers, &body, kind)?;
    let audiences = audiences.unwrap_or_default();
    let outcome = policy.review_token(&token, &audiences).await;
    policy.record(
        "REVIEW",
        TOKEN_REVIEWS,
        outcome.as_ref().map(|reviewed| &reviewed.user),
    );
    let status = match outcome {
        Ok(ReviewedToken { user, audiences }) => {
            json!({"authenticated": true, "user": user, "audiences": audiences})
        }
        Err(refusal) => json!({"user": {}, "error": refusal.to_string()}),
    };
    Ok(created(AUTHENTICATION, kind, &status))
}

#[derive(Deserialize)]
struct Review<S> {
    spec: S,
}

/// What an access review asks about: exactly one of the two.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Question {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PathAttributes {
    verb: String,
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubjectSpec {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    question: Question,
}

async fn review_own_access<P: ServerPolicy>(
    State(policy): State<Arc<P>>,
    Extension(user): Extension<UserInfo>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SelfSubjectAccessReview";
    let question: Question = read_spec(&headers, &body, kind)?;
    let status = access_status(&*policy, &user, question, kind)?;
    Ok(created(AUTHORIZATION, kind, &status))
}

async fn review_access<P: ServerPolicy>(
    State(policy): State<Arc<P>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SubjectAccessReview";
    let spec: SubjectSpec = read_spec(&headers, &body, kind)?;
    if spec.user.is_empty() && spec.groups.is_empty() {
        let fault = "spec.user: Invalid value: \"\": at least one of user or group must be \
                     specified";
        return Err(invalid(kind, fault));
    }
    let user = UserInfo {
        username: spec.user,
        uid: spec.uid,
        groups: spec.groups,
        extra: spec.extra,
    };
    let status = access_status(&*policy, &user, spec.question, kind)?;
    Ok(created(AUTHORIZATION, kind, &status))
}

fn access_status<P: ServerPolicy>(
    policy: &P,
    user: &UserInfo,
    question: Question,
    kind: &str,
) -> Result<Value, ApiError> {
    let attributes = match (
        question.resource_attributes,
        question.non_resource_attributes,
    ) {
        (Some(it), None) => Attributes::resource(
            &it.verb,
            ResourceRequest {
                group: it.group,
                resource: it.resource,
                subresource: it.subresource,
                namespace: it.namespace,
                name: it.name,
            },
        ),
        (None, Some(it)) => Attributes::path(&it.verb, &it.path),
        (Some(_), Some(_)) => {
            let fault = "spec.nonResourceAttributes: Invalid value: cannot be specified in \
                         combination with resourceAttributes";
            return Err(invalid(kind, fault));
        }
        (None, None) => {
            let fault = "spec.resourceAttributes: Invalid value: exactly one of \
                         nonResourceAttributes or resourceAttributes must be specified";
            return Err(invalid(kind, fault));
        }
    };
    let (allowed, reason) = match policy.authorize(user, &attributes) {
        Decision::Allowed(reason) => (true, reason),
        Decision::NotAllowed(reason) => (false, reason),
    };
    Ok(match reason.as_str() {
        "" => json!({"allowed": allowed}),
        reason => json!({"allowed": allowed, "reason": reason}),
    })
}

pub(crate) fn read_spec<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
    kind: &str,
) -> Result<T, ApiError> {
    json_body::read::<Review<T>>(headers, body, kind).map(|review| review.spec)
}

fn invalid(kind: &str, fault: &str) -> ApiError {
    ApiError::invalid(format!(
        "{kind}.authorization.k8s.io \"\" is invalid: {fault}"
    ))
}

/// A review as it is answered. A real answer repeats the spec; no client needs it, and that of a
/// TokenReview is a secret, so it is omitted.
pub(crate) fn created(api_version: &str, kind: &str, status: &Value) -> (StatusCode, Json<Value>) {
    let review = json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {"creationTimestamp": null},
        "spec": {},
        "status": status,
    });
    (StatusCode::CREATED, Json(review))
}
