//! What every request passes before its handler, in the order of kube-apiserver: authentication,
//! impersonation, authorization.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::ExposeSecret;

use super::impersonation::{ANONYMOUS, Impersonation, UNAUTHENTICATED};
use super::impersonation_headers::{UserMissing, wanted_user};
use super::rbac::{Decision, RbacPolicy};
use super::request_attributes::RequestAttributes;
use super::verify::{self, Refusal};
use super::{Outcome, SeenRequest, TargetState};
use crate::identity::{UserInfo, bearer};
use crate::locked;
use crate::status::ApiError;

/// The paths that need no credentials. All others answer 401, as with `--anonymous-auth=false`.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// The first release with the modes of constrained impersonation on.
const CONSTRAINED_SINCE: u16 = 36;
/// The first release that answers 400, and not 500, to impersonation headers without a user.
const BAD_REQUEST_SINCE: u16 = 35;

/// Middleware: passes the request on with its `UserInfo`, or answers 400, 401, 403 or 500.
pub(super) async fn admit(
    State(target): State<Arc<TargetState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let bearer = match bearer(request.headers()).map(str::to_owned) {
        None if OPEN.contains(&path.as_str()) => UserInfo {
            username: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        },
        None => return ApiError::unauthorized().into_response(),
        Some(token) => {
            let judged = judge(&target, &token).await;
            target.log(request.method().as_str(), &path, &judged);
            match judged {
                Ok(user) => user,
                Err(_) => return ApiError::unauthorized().into_response(),
            }
        }
    };
    let attributes = RequestAttributes::of(request.method(), request.uri());
    let policy = target.rbac();
    let uri = request.uri().path_and_query().map_or("", |it| it.as_str());
    let admitted = target
        .impersonated(&policy, bearer, &attributes, request.headers(), uri)
        .and_then(|user| authorized(&policy, user, &attributes));
    match admitted {
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Returns the user of a token: one of the target's own, or one of the JWT authenticator.
pub(super) async fn judge(target: &TargetState, token: &str) -> Result<UserInfo, Refusal> {
    let own = |known: &str| verify_slices_are_equal(token.as_bytes(), known.as_bytes()).is_ok();
    let found = locked(&target.own_users)
        .iter()
        .find(|(known, _)| own(known.expose_secret()))
        .map(|(_, user)| user.clone());
    match found {
        Some(user) => Ok(user),
        None => verify::token(target, token).await,
    }
}

fn authorized(
    policy: &RbacPolicy,
    user: UserInfo,
    attributes: &RequestAttributes,
) -> Result<UserInfo, ApiError> {
    match policy.decide(&user, attributes) {
        Decision::Allowed(_) => Ok(user),
        Decision::NotAllowed(reason) => {
            Err(ApiError::not_allowed(&user.username, attributes, &reason))
        }
    }
}

impl TargetState {
    /// Returns the user that the request is for: the impersonated one, or the bearer.
    fn impersonated(
        &self,
        policy: &RbacPolicy,
        bearer: UserInfo,
        request: &RequestAttributes,
        headers: &HeaderMap,
        uri: &str,
    ) -> Result<UserInfo, ApiError> {
        if self.options.ignores_impersonation {
            return Ok(bearer);
        }
        let wanted = wanted_user(headers).map_err(|missing| self.without_a_user(&missing, uri))?;
        match &wanted {
            None => Ok(bearer),
            Some(wanted) => Impersonation {
                policy,
                constrained: self.options.minor >= CONSTRAINED_SINCE,
                requestor: &bearer,
                wanted,
                request,
            }
            .user(),
        }
    }

    fn without_a_user(&self, missing: &UserMissing, uri: &str) -> ApiError {
        match self.options.minor {
            CONSTRAINED_SINCE.. => ApiError::bad_request(missing.message()),
            BAD_REQUEST_SINCE.. => ApiError::bad_request(missing.legacy_message()),
            _ => ApiError::unexpected(uri, &missing.legacy_message()),
        }
    }

    /// Records the decision on a token.
    pub(super) fn log(&self, method: &str, path: &str, judged: &Result<UserInfo, Refusal>) {
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
