//! The routes of the target.

use std::sync::Arc;

use axum::middleware;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{TargetPolicy, rules_review};
use crate::apiserver::index::{self, ApiResource};
use crate::apiserver::{admission, reviews};
use crate::status::ApiError;

pub(super) fn router(target: Arc<TargetPolicy>) -> Router {
    Router::new()
        .merge(index::routes(SERVED, target.options.minor))
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        // client-go's probe for flow control; axum answers HEAD by the same route.
        .route("/livez/ping", get(async || "ok"))
        .route("/api/v1/namespaces", get(list_namespaces))
        .merge(reviews::routes())
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            post(rules_review::review_own_rules),
        )
        .fallback(async || ApiError::no_such_path())
        .layer(middleware::from_fn_with_state(
            Arc::clone(&target),
            admission::admit::<TargetPolicy>,
        ))
        .with_state(target)
}

async fn list_namespaces() -> Json<Value> {
    let named = |name: &str| {
        json!({
            "metadata": {
                "name": name,
                "uid": format!("embedded-{name}"),
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    };
    Json(json!({
        "kind": "NamespaceList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "1"},
        "items": [named("default"), named("kube-system"), named("shop")],
    }))
}

/// A resource that the target knows by name, so that access reviews can be about it, but of which it
/// holds no objects.
const fn without_objects(
    group_version: &'static str,
    name: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
) -> ApiResource {
    ApiResource::namespaced(group_version, name, kind, short_names, &[])
}

/// What the target serves beside the reviews of every server.
const SERVED: &[ApiResource] = &[
    without_objects("v1", "pods", "Pod", &["po"]),
    without_objects("v1", "configmaps", "ConfigMap", &["cm"]),
    without_objects("v1", "secrets", "Secret", &[]),
    without_objects("v1", "services", "Service", &["svc"]),
    without_objects("v1", "serviceaccounts", "ServiceAccount", &["sa"]),
    without_objects("apps/v1", "deployments", "Deployment", &["deploy"]),
    ApiResource::namespaces(&["list"]),
    ApiResource::review(
        reviews::AUTHORIZATION,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
    ),
];
