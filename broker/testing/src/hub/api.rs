//! The routes of the hub.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};

#[cfg(feature = "faults")]
use super::faults;
use super::object::Resource;
use super::policy::HubPolicy;
use super::{oidc, routes, token_request, watch, write};
use crate::apiserver::index::{self, ApiResource};
use crate::apiserver::{admission, reviews};
use crate::status::ApiError;

type Hub = State<Arc<HubPolicy>>;
type Answer = Result<Response, ApiError>;

pub(super) fn router(hub: Arc<HubPolicy>) -> Router {
    let router = Router::new()
        .route("/api/v1/namespaces", get(list_namespaces))
        .route("/api/v1/namespaces/{name}", get(one_namespace))
        .route("/api/v1/serviceaccounts", get(list_all_service_accounts))
        .route(
            "/api/v1/namespaces/{namespace}/serviceaccounts",
            get(list_service_accounts),
        )
        .route(
            "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
            get(one_service_account),
        )
        .route(
            "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            post(token_request::create),
        )
        .route(
            "/api/v1/namespaces/{namespace}/secrets",
            post(write::create_secret),
        )
        .route(
            "/api/v1/namespaces/{namespace}/secrets/{name}",
            get(one_secret).put(write::replace_secret),
        )
        .route(
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            post(write::create_lease),
        )
        .route(
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}",
            get(one_lease).put(write::replace_lease),
        )
        .merge(reviews::routes())
        .route(oidc::DISCOVERY_PATH, get(oidc::discovery))
        .route(oidc::JWKS_PATH, get(oidc::jwks))
        // Only these paths: another one is 404 for every caller.
        .route_layer(middleware::from_fn_with_state(
            Arc::clone(&hub),
            admission::admit::<HubPolicy>,
        ))
        .merge(index::routes(SERVED, index::NEWEST_MINOR))
        .fallback(async || ApiError::no_such_path());
    #[cfg(feature = "faults")]
    let router = router.layer(middleware::from_fn_with_state(
        Arc::clone(&hub),
        faults::apply,
    ));
    router
        .layer(middleware::from_fn_with_state(
            Arc::clone(&hub),
            routes::count,
        ))
        .with_state(hub)
}

async fn list_namespaces(State(hub): Hub, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    watch::list_or_watch(hub, &headers, Resource::Namespaces, "", query.as_deref())
}

async fn one_namespace(State(hub): Hub, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    watch::get(&hub, &headers, Resource::Namespaces, "", &name)
}

async fn list_all_service_accounts(
    State(hub): Hub,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    watch::list_or_watch(
        hub,
        &headers,
        Resource::ServiceAccounts,
        "",
        query.as_deref(),
    )
}

async fn list_service_accounts(
    State(hub): Hub,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    watch::list_or_watch(
        hub,
        &headers,
        Resource::ServiceAccounts,
        &namespace,
        query.as_deref(),
    )
}

async fn one_service_account(
    State(hub): Hub,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    watch::get(&hub, &headers, Resource::ServiceAccounts, &namespace, &name)
}

async fn one_secret(
    State(hub): Hub,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    watch::get(&hub, &headers, Resource::Secrets, &namespace, &name)
}

async fn one_lease(
    State(hub): Hub,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    watch::get(&hub, &headers, Resource::Leases, &namespace, &name)
}

/// What the hub serves beside the reviews of every server.
const SERVED: &[ApiResource] = &[
    ApiResource::namespaces(&["get", "list", "watch"]),
    ApiResource::namespaced(
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        &["sa"],
        &["get", "list", "watch"],
    ),
    ApiResource::namespaced(
        "v1",
        "serviceaccounts/token",
        "TokenRequest",
        &[],
        &["create"],
    ),
    ApiResource::namespaced("v1", "secrets", "Secret", &[], WRITTEN_VERBS),
    ApiResource::namespaced(
        "coordination.k8s.io/v1",
        "leases",
        "Lease",
        &[],
        WRITTEN_VERBS,
    ),
];
/// The verbs of the objects that Keyferry itself writes.
const WRITTEN_VERBS: &[&str] = &["create", "get", "update"];
