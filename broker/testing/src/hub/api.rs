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
use super::state::HubState;
use super::{oidc, reviews, routes, token_request, watch, write};
use crate::api_index::{self, ApiResource};
use crate::status::ApiError;

type Hub = State<Arc<HubState>>;
type Answer = Result<Response, ApiError>;

pub(super) fn router(hub: Arc<HubState>) -> Router {
    let router = Router::new()
        .merge(api_index::routes(SERVED, api_index::NEWEST_MINOR))
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
        .route(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            post(reviews::token),
        )
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(reviews::myself),
        )
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(reviews::access),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            post(reviews::my_access),
        )
        .route(oidc::DISCOVERY_PATH, get(oidc::discovery))
        .route(oidc::JWKS_PATH, get(oidc::jwks))
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

const SERVED: &[ApiResource] = &[
    ApiResource {
        group_version: "v1",
        name: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["get", "list", "watch"],
    },
    ApiResource {
        group_version: "v1",
        name: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        namespaced: true,
        verbs: &["get", "list", "watch"],
    },
    ApiResource {
        group_version: "v1",
        name: "serviceaccounts/token",
        kind: "TokenRequest",
        short_names: &[],
        namespaced: true,
        verbs: &["create"],
    },
    ApiResource {
        group_version: "v1",
        name: "secrets",
        kind: "Secret",
        short_names: &[],
        namespaced: true,
        verbs: &["create", "get", "update"],
    },
    ApiResource {
        group_version: "coordination.k8s.io/v1",
        name: "leases",
        kind: "Lease",
        short_names: &[],
        namespaced: true,
        verbs: &["create", "get", "update"],
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
        group_version: "authentication.k8s.io/v1",
        name: "selfsubjectreviews",
        kind: "SelfSubjectReview",
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
    ApiResource {
        group_version: "authorization.k8s.io/v1",
        name: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        short_names: &[],
        namespaced: false,
        verbs: &["create"],
    },
];
