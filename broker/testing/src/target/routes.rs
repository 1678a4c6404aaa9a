//! The routes of the target.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::verify::{self, Refusal};
use super::{Outcome, SeenRequest, TargetState};
use crate::api_index::{self, ApiResource};
use crate::identity::{AUTHENTICATED, UserInfo, bearer};
use crate::json_body;
use crate::locked;
use crate::status::ApiError;

pub(super) fn router(target: Arc<TargetState>) -> Router {
    Router::new()
        .merge(api_index::routes(SERVED))
        .route("/api/v1/namespaces", get(namespaces))
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(who_am_i),
        )
        .route(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            post(review_token),
        )
        .fallback(async || ApiError::no_such_path())
        .layer(middleware::from_fn_with_state(
            Arc::clone(&target),
            authenticate,
        ))
        .with_state(target)
}

/// Middleware: refuses a bad token everywhere, and a missing token everywhere except at `/version`
/// and `/readyz`. Logs the outcome, and passes the `UserInfo` to the handler.
async fn authenticate(
    State(target): State<Arc<TargetState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let Some(token) = bearer(request.headers()).map(str::to_owned) else {
        if ["/version", "/readyz"].contains(&path.as_str()) {
            return next.run(request).await;
        }
        return ApiError::unauthorized().into_response();
    };
    let judged = judge(&target, &token).await;
    target.log(request.method().as_str(), &path, &judged);
    match judged {
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(_) => ApiError::unauthorized().into_response(),
    }
}

async fn judge(target: &TargetState, token: &str) -> Result<UserInfo, Refusal> {
    let admin = target.admin_token.expose_secret();
    if verify_slices_are_equal(token.as_bytes(), admin.as_bytes()).is_ok() {
        return Ok(UserInfo {
            username: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        });
    }
    verify::token(target, token).await
}

impl TargetState {
    fn log(&self, method: &str, path: &str, judged: &Result<UserInfo, Refusal>) {
        let outcome = match judged {
            Ok(user) => Outcome::Accepted {
                user: user.username.clone(),
            },
            Err(refusal) => Outcome::Rejected {
                cause: refusal.to_string(),
            },
        };
        locked(&self.seen).push(SeenRequest {
            at: self.now(),
            method: method.to_owned(),
            path: path.to_owned(),
            outcome,
        });
    }
}

async fn who_am_i(Extension(user): Extension<UserInfo>) -> (StatusCode, Json<Value>) {
    created("SelfSubjectReview", &json!({"userInfo": user}))
}

/// Reviews a token. The API audience of a target is its own URL: the audience of the JWT
/// authenticator is no API audience.
async fn review_token(
    State(target): State<Arc<TargetState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), ApiError> {
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
    Ok(created("TokenReview", &status))
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

fn created(kind: &str, status: &Value) -> (StatusCode, Json<Value>) {
    let review = json!({
        "kind": kind,
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": null},
        "spec": {},
        "status": status,
    });
    (StatusCode::CREATED, Json(review))
}

const SERVED: &[ApiResource] = &[
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
];
