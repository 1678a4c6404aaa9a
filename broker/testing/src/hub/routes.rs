//! The classes of requests, and how many of each arrived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::oidc::{DISCOVERY_PATH, JWKS_PATH};
use super::policy::HubPolicy;
use crate::locked;

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// POST `…/serviceaccounts/{name}/token`.
    TokenRequest,
    /// POST `…/tokenreviews`.
    TokenReview,
    /// POST `…/subjectaccessreviews` and `…/selfsubjectaccessreviews`.
    AccessReview,
    /// GET `/.well-known/openid-configuration`.
    Discovery,
    /// GET `/openid/v1/jwks`.
    Jwks,
    /// Everything else: lists, watches, single objects, `/version`.
    Objects,
}

impl Route {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TokenRequest,
        Self::TokenReview,
        Self::AccessReview,
        Self::Discovery,
        Self::Jwks,
        Self::Objects,
    ];

    pub(super) fn of(method: &Method, path: &str) -> Self {
        let posted = method == Method::POST;
        match path {
            DISCOVERY_PATH => Self::Discovery,
            JWKS_PATH => Self::Jwks,
            _ if posted && path.ends_with("/token") => Self::TokenRequest,
            _ if posted && path.ends_with("/tokenreviews") => Self::TokenReview,
            _ if posted && path.ends_with("subjectaccessreviews") => Self::AccessReview,
            _ => Self::Objects,
        }
    }
}

/// The number of requests of each route since the start.
#[derive(Default)]
pub(super) struct Requests(Mutex<BTreeMap<Route, u64>>);

impl Requests {
    pub(super) fn of(&self, route: Route) -> u64 {
        locked(&self.0).get(&route).copied().unwrap_or(0)
    }
}

/// Middleware: counts the request.
pub(super) async fn count(
    State(hub): State<Arc<HubPolicy>>,
    request: Request,
    next: Next,
) -> Response {
    let route = Route::of(request.method(), request.uri().path());
    *locked(&hub.requests.0).entry(route).or_default() += 1;
    next.run(request).await
}
