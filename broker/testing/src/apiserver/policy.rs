//! What a hub and a target do differently.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;

use crate::identity::UserInfo;
use crate::status::ApiError;
use keyferry_kube_rbac::Attributes;

/// What an authorizer decides, with the text of an access review's `reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A rule allows it.
    Allowed(String),
    /// No rule allows it. The reason is empty unless the authorizer met a fault.
    NotAllowed(String),
}

/// A token that passed its review.
pub(crate) struct ReviewedToken {
    pub(crate) user: UserInfo,
    /// The requested audiences that the token has.
    pub(crate) audiences: Vec<String>,
}

/// The rules of one kind of server.
pub(crate) trait ServerPolicy: Send + Sync + 'static {
    /// What its kubeconfigs and its CA call it.
    const NAME: &'static str;
    /// Why a token is refused, in the words of a TokenReview.
    type Refusal: Display + Send;

    /// All of its routes, behind [`super::admission::admit`].
    fn router(policy: Arc<Self>) -> Router;

    /// Returns the user of a bearer token.
    fn authenticate(
        &self,
        token: &str,
    ) -> impl Future<Output = Result<UserInfo, Self::Refusal>> + Send;

    /// Whether a request for the path needs no credentials.
    fn is_open(&self, path: &str) -> bool;

    /// Decides whether the user may do what the attributes describe.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;

    /// Reviews a token for any of the audiences; for the server's own if there is none.
    fn review_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> impl Future<Output = Result<ReviewedToken, Self::Refusal>> + Send;

    /// Returns the user that the request is for: the impersonated one, or the bearer.
    fn resolve_impersonated_user(
        &self,
        bearer: UserInfo,
        _request: &Attributes,
        _headers: &HeaderMap,
        _uri: &str,
    ) -> Result<UserInfo, ApiError> {
        Ok(bearer)
    }

    /// Notes the decision on a bearer token, or on a token under review.
    fn record(&self, _method: &str, _path: &str, _outcome: Result<&UserInfo, &Self::Refusal>) {}
}
