//! The routes of the target.

use std::sync::Arc;

use axum::middleware;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{TargetState, filters, reviews};
use crate::api_index::{self, ApiResource};
use crate::status::ApiError;

pub(super) fn router(target: Arc<TargetState>) -> Router {
    Router::new()
        .merge(api_index::routes(SERVED, target.options.minor))
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        // client-go's probe for flow control; axum answers HEAD by the same route.
        .route("/livez/ping", get(async || "ok"))
        .route("/api/v1/namespaces", get(namespaces))
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(reviews::who_am_i),
        )
        .route(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            post(reviews::token),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            post(reviews::own_access),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            post(reviews::own_rules),
        )
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(reviews::access_of_a_user),
        )
        .fallback(async || ApiError::no_such_path())
        .layer(middleware::from_fn_with_state(
            Arc::clone(&target),
            filters::admit,
        ))
        .with_state(target)
}

async fn namespaces() -> Json<Value> {
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
const fn named(
    group_version: &'static str,
    name: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
) -> ApiResource {
    ApiResource {
        group_version,
        name,
        kind,
        short_names,
        namespaced: true,
        verbs: &[],
    }
}

const SERVED: &[ApiResource] = &[
    named("v1", "pods", "Pod", &["po"]),
    named("v1", "configmaps", "ConfigMap", &["cm"]),
    named("v1", "secrets", "Secret", &[]),
    named("v1", "services", "Service", &["svc"]),
    named("v1", "serviceaccounts", "ServiceAccount", &["sa"]),
    named("apps/v1", "deployments", "Deployment", &["deploy"]),
    ApiResource {
        group_version: "v1",
        name: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["list"],
    },
    ApiResource {
        group_version: "authentication.k8s.io/v1",
        name: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
    ApiResource {
        group_version: "authentication.k8s.io/v1",
        name: "tokenreviews",
        kind: "TokenReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
    ApiResource {
        group_version: "authorization.k8s.io/v1",
        name: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
    ApiResource {
        group_version: "authorization.k8s.io/v1",
        name: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
    ApiResource {
        group_version: "authorization.k8s.io/v1",
        name: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
];
