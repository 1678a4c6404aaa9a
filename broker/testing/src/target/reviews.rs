//! The reviews: SelfSubjectReview, TokenReview, SelfSubjectAccessReview, SelfSubjectRulesReview and
//! SubjectAccessReview.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TargetState;
use super::filters::judge;
use super::rbac::Decision;
use super::request_attributes::{RequestAttributes, RequestObject, ResourcePath};
use super::verify::Refusal;
use crate::identity::UserInfo;
use crate::json_body;
use crate::status::ApiError;

const AUTHENTICATION: &str = "authentication.k8s.io/v1";
const AUTHORIZATION: &str = "authorization.k8s.io/v1";

type Reviewed = Result<(StatusCode, Json<Value>), ApiError>;

pub(super) async fn who_am_i(Extension(user): Extension<UserInfo>) -> (StatusCode, Json<Value>) {
    created(
        AUTHENTICATION,
        "SelfSubjectReview",
        &json!({"userInfo": user}),
    )
}

/// Reviews a token. The API audience of a target is its own URL; the audience of the JWT
/// authenticator is not one.
pub(super) async fn token(
    State(target): State<Arc<TargetState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let review: Value = json_body::read(&headers, &body, "TokenReview")?;
    let token = review.pointer("/spec/token").and_then(Value::as_str);
    let token = token.unwrap_or_default();
    let asked = review.pointer("/spec/audiences").and_then(Value::as_array);
    let asks_other = asked.is_some_and(|asked| {
        !asked.is_empty() && !asked.iter().any(|audience| *audience == target.url)
    });
    let judged = if asks_other {
        Err(Refusal::Unclaimed)
    } else {
        judge(&target, token).await
    };
    target.log(
        "REVIEW",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        &judged,
    );
    let status = match judged {
        Ok(user) => json!({"authenticated": true, "user": user, "audiences": [target.url]}),
        Err(refusal) => json!({"user": {}, "error": refusal.to_string()}),
    };
    Ok(created(AUTHENTICATION, "TokenReview", &status))
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

pub(super) async fn own_access(
    State(target): State<Arc<TargetState>>,
    Extension(user): Extension<UserInfo>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SelfSubjectAccessReview";
    let question: Question = spec(&headers, &body, kind)?;
    let status = access_status(&target, &user, question, kind)?;
    Ok(created(AUTHORIZATION, kind, &status))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RulesSpec {
    namespace: String,
}

pub(super) async fn own_rules(
    State(target): State<Arc<TargetState>>,
    Extension(user): Extension<UserInfo>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SelfSubjectRulesReview";
    let RulesSpec { namespace } = spec(&headers, &body, kind)?;
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rbac = target.rbac();
    let (rules, faults) = rbac.rules_for(&user, &namespace);
    let resources: Vec<Value> = rules.iter().filter_map(|it| it.resource_rule()).collect();
    let paths: Vec<Value> = rules.iter().filter_map(|it| it.path_rule()).collect();
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": false,
    });
    if !faults.is_empty() {
        status["evaluationError"] = json!(faults);
    }
    Ok(created(AUTHORIZATION, kind, &status))
}

pub(super) async fn access_of_a_user(
    State(target): State<Arc<TargetState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SubjectAccessReview";
    let spec: SubjectSpec = spec(&headers, &body, kind)?;
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
    let status = access_status(&target, &user, spec.question, kind)?;
    Ok(created(AUTHORIZATION, kind, &status))
}

fn access_status(
    target: &TargetState,
    user: &UserInfo,
    question: Question,
    kind: &str,
) -> Result<Value, ApiError> {
    let attributes = match (
        question.resource_attributes,
        question.non_resource_attributes,
    ) {
        (Some(it), None) => RequestAttributes::on(
            it.verb,
            ResourcePath {
                group: it.group,
                resource: it.resource,
                subresource: it.subresource,
                namespace: it.namespace,
                name: it.name,
            },
        ),
        (None, Some(it)) => RequestAttributes {
            verb: it.verb,
            object: RequestObject::Path(it.path),
        },
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
    let (allowed, reason) = match target.rbac().decide(user, &attributes) {
        Decision::Allowed(reason) => (true, reason),
        Decision::NotAllowed(reason) => (false, reason),
    };
    Ok(match reason.as_str() {
        "" => json!({"allowed": allowed}),
        reason => json!({"allowed": allowed, "reason": reason}),
    })
}

fn spec<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8], kind: &str) -> Result<T, ApiError> {
    json_body::read::<Review<T>>(headers, body, kind).map(|review| review.spec)
}

fn invalid(kind: &str, fault: &str) -> ApiError {
    ApiError::invalid(format!(
        "{kind}.authorization.k8s.io \"\" is invalid: {fault}"
    ))
}

/// A review as it is answered. A real answer repeats the spec; no client needs it, and that of a
/// TokenReview is a secret, so it is omitted.
fn created(api_version: &str, kind: &str, status: &Value) -> (StatusCode, Json<Value>) {
    let review = json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {"creationTimestamp": null},
        "spec": {},
        "status": status,
    });
    (StatusCode::CREATED, Json(review))
}
