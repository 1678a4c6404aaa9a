//! TokenRequest of authentication.k8s.io/v1.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claims::{self, TokenSpec};
use super::object::{Object, Resource, whole_seconds};
use super::policy::HubPolicy;
use crate::json_body;
use crate::status::ApiError;

/// The default, minimum and maximum of `spec.expirationSeconds`.
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

pub(super) async fn create(
    State(hub): State<Arc<HubPolicy>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let request: TokenRequest = json_body::read(&headers, &body, "TokenRequest")?;
    let account = check(&hub, &namespace, &name, &request)?;
    issue_token(&hub, &account, &request.spec)
}

#[derive(Deserialize)]
struct TokenRequest {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<Value>,
}

/// The checks in the order of kube-apiserver; returns the live ServiceAccount.
fn check(
    hub: &HubPolicy,
    namespace: &str,
    name: &str,
    request: &TokenRequest,
) -> Result<Object, ApiError> {
    if hub
        .objects
        .get(Resource::Namespaces, "", namespace)
        .is_none()
    {
        return Err(ApiError::not_found("namespaces", namespace));
    }
    let differs = |given: &Option<String>, path: &str| {
        given
            .as_deref()
            .is_some_and(|given| !given.is_empty() && given != path)
    };
    if differs(&request.metadata.name, name) || differs(&request.metadata.namespace, namespace) {
        return Err(invalid("metadata", "must match the name in the URL"));
    }
    let account = hub
        .objects
        .get(Resource::ServiceAccounts, namespace, name)
        .ok_or_else(|| ApiError::not_found("serviceaccounts", name))?;
    if hub.checks_uid && differs(&request.metadata.uid, &account.uid) {
        return Err(ApiError::conflict(format!(
            "Operation cannot be fulfilled on serviceaccounts {name:?}: \
             the UID in the token request does not match the UID of the service account"
        )));
    }
    match request.spec.expiration_seconds {
        Some(seconds) if seconds < LEAST_SECONDS => Err(invalid(
            &format!("spec.expirationSeconds: Invalid value: {seconds}"),
            "may not specify a duration less than 10 minutes",
        )),
        Some(seconds) if seconds > MOST_SECONDS => Err(invalid(
            &format!("spec.expirationSeconds: Invalid value: {seconds}"),
            "may not specify a duration larger than 2^32 seconds",
        )),
        _ if request.spec.bound_object_ref.is_some() => Err(ApiError::bad_request(
            "the embedded hub binds no token to an object",
        )),
        _ => Ok(account),
    }
}

fn issue_token(hub: &HubPolicy, account: &Object, spec: &Spec) -> Result<Response, ApiError> {
    let asked = spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
    let seconds = hub.max_token_seconds.map_or(asked, |most| asked.min(most));
    let audiences = match &spec.audiences {
        Some(audiences) if !audiences.is_empty() => audiences.clone(),
        _ => vec![hub.issuer.clone()],
    };
    let now = hub.now();
    let token = claims::sign(
        hub,
        &TokenSpec {
            namespace: &account.namespace,
            name: &account.name,
            uid: &account.uid,
            audiences: &audiences,
            seconds,
            pod: None,
        },
    )
    .map_err(|_| ApiError::internal())?;
    let body = Json(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "uid": account.uid,
            "creationTimestamp": whole_seconds(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": null,
        },
        "status": {
            "token": token,
            "expirationTimestamp": whole_seconds(claims::expiry(now, seconds)),
        },
    }));
    if seconds < asked {
        let warning = format!(
            "299 - \"requested expiration of {asked} seconds shortened to {seconds} seconds\""
        );
        return Ok((StatusCode::CREATED, [(header::WARNING, warning)], body).into_response());
    }
    Ok((StatusCode::CREATED, body).into_response())
}

fn invalid(field: &str, why: &str) -> ApiError {
    ApiError::invalid(format!(
        "TokenRequest.authentication.k8s.io \"\" is invalid: {field}: {why}"
    ))
}
