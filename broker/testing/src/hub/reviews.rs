//! The reviews: TokenReview, SelfSubjectReview, SubjectAccessReview, SelfSubjectAccessReview.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::access::Wanted;
use super::callers::{Caller, granted};
use super::state::HubState;
use super::verify;
use crate::identity::UserInfo;
use crate::json_body;
use crate::status::ApiError;

type Reviewed = Result<(StatusCode, Json<Value>), ApiError>;

pub(super) async fn token(
    State(hub): State<Arc<HubState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let caller = Caller::of(&hub, &headers)?;
    caller.must(&hub, &creating("authentication.k8s.io", "tokenreviews"))?;
    let spec: TokenReviewSpec = spec_of(&headers, &body)?;
    let audiences = spec.audiences.unwrap_or_default();
    let status = match verify::token(&hub, &spec.token, &audiences) {
        Ok(verified) => json!({
            "authenticated": true,
            "user": verified.user,
            "audiences": verified.audiences,
        }),
        Err(refusal) => json!({"user": {}, "error": refusal.to_string()}),
    };
    // A real answer repeats the token in its spec; no client needs it, so it is omitted.
    Ok(created("authentication.k8s.io/v1", "TokenReview", &status))
}

pub(super) async fn myself(State(hub): State<Arc<HubState>>, headers: HeaderMap) -> Reviewed {
    let caller = Caller::of(&hub, &headers)?;
    let status = json!({"userInfo": caller.user});
    Ok(created(
        "authentication.k8s.io/v1",
        "SelfSubjectReview",
        &status,
    ))
}

pub(super) async fn access(
    State(hub): State<Arc<HubState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let caller = Caller::of(&hub, &headers)?;
    caller.must(
        &hub,
        &creating("authorization.k8s.io", "subjectaccessreviews"),
    )?;
    let spec: AccessReviewSpec = spec_of(&headers, &body)?;
    let user = UserInfo {
        username: spec.user.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        ..UserInfo::default()
    };
    let allowed = spec
        .wanted()
        .is_some_and(|wanted| granted(&hub, &user, &wanted));
    Ok(decision("SubjectAccessReview", allowed))
}

pub(super) async fn my_access(
    State(hub): State<Arc<HubState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let caller = Caller::of(&hub, &headers)?;
    let spec: AccessReviewSpec = spec_of(&headers, &body)?;
    let allowed = spec
        .wanted()
        .is_some_and(|wanted| caller.may(&hub, &wanted));
    Ok(decision("SelfSubjectAccessReview", allowed))
}

#[derive(Deserialize)]
struct Review<S> {
    spec: S,
}

#[derive(Deserialize)]
struct TokenReviewSpec {
    #[serde(default)]
    token: String,
    audiences: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewSpec {
    user: Option<String>,
    groups: Option<Vec<String>>,
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
}

impl AccessReviewSpec {
    /// What the review asks for: exactly one of a resource and a path.
    fn wanted(self) -> Option<Wanted> {
        match (self.resource_attributes, self.non_resource_attributes) {
            (Some(resource), None) => Some(resource.into()),
            (None, Some(NonResourceAttributes { path, verb })) => Some(Wanted {
                verb,
                resource: path,
                ..Wanted::default()
            }),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

impl From<ResourceAttributes> for Wanted {
    fn from(attributes: ResourceAttributes) -> Self {
        let resource = match attributes.subresource.as_str() {
            "" => attributes.resource,
            subresource => format!("{}/{subresource}", attributes.resource),
        };
        Self {
            verb: attributes.verb,
            api_group: attributes.group,
            resource,
            namespace: attributes.namespace,
            name: attributes.name,
        }
    }
}

fn spec_of<S: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<S, ApiError> {
    json_body::read::<Review<S>>(headers, body, "such review").map(|review| review.spec)
}

fn decision(kind: &str, allowed: bool) -> (StatusCode, Json<Value>) {
    let reason = if allowed { "granted" } else { "" };
    let status = json!({"allowed": allowed, "reason": reason});
    created("authorization.k8s.io/v1", kind, &status)
}

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

fn creating(api_group: &str, resource: &str) -> Wanted {
    Wanted {
        verb: "create".to_owned(),
        api_group: api_group.to_owned(),
        resource: resource.to_owned(),
        ..Wanted::default()
    }
}
