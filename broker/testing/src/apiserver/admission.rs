//! What every request passes before its handler, in the order of kube-apiserver: authentication,
//! impersonation, authorization.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::policy::{Decision, ServerPolicy};
use super::request_attributes::read_attributes;
use crate::identity::{ANONYMOUS, UNAUTHENTICATED, UserInfo, bearer};
use crate::status::ApiError;

/// Middleware: passes the request on with its `UserInfo`, or answers 400, 401, 403 or 500.
pub(crate) async fn admit<P: ServerPolicy>(
    State(policy): State<Arc<P>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match admitted_user(&*policy, &parts).await {
        Ok(user) => {
            parts.extensions.insert(user);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => error.into_response(),
    }
}

async fn admitted_user<P: ServerPolicy>(policy: &P, request: &Parts) -> Result<UserInfo, ApiError> {
    let bearer = authenticated_user(policy, request).await?;
    let attributes = read_attributes(&request.method, &request.uri);
    let uri = request.uri.path_and_query().map_or("", |it| it.as_str());
    let user = policy.resolve_impersonated_user(bearer, &attributes, &request.headers, uri)?;
    match policy.authorize(&user, &attributes) {
        Decision::Allowed(_) => Ok(user),
        Decision::NotAllowed(reason) => {
            Err(ApiError::not_allowed(&user.username, &attributes, &reason))
        }
    }
}

/// Returns the user of the bearer token. A bad token is refused even where none is needed.
async fn authenticated_user<P: ServerPolicy>(
    policy: &P,
    request: &Parts,
) -> Result<UserInfo, ApiError> {
    let path = request.uri.path();
    let Some(token) = bearer(&request.headers) else {
        return if policy.is_open(path) {
            Ok(anonymous())
        } else {
            Err(ApiError::unauthorized())
        };
    };
    let outcome = policy.authenticate(token).await;
    policy.record(request.method.as_str(), path, outcome.as_ref());
    outcome.map_err(|_| ApiError::unauthorized())
}

fn anonymous() -> UserInfo {
    UserInfo {
        username: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..UserInfo::default()
    }
}
