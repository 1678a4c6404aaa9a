//! Every route of the API listener. The router and the OpenAPI document are both made of this list,
//! so neither has a route that the other lacks.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, StatusCode, header};
use axum::routing::{MethodRouter, any};
use keyferry_listener::{Bodies, plain_text};

use super::inputs::{self, Segment, View};
use super::openapi::Documents;
use super::token_api::{PublicParts, contain_panic};
use super::{exchange, kubeconfig, refusal};
use crate::broker::Broker;
use crate::inputs::Inputs;

/// The path of the metadata (RFC 8414 section 3).
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";

/// A route of the API listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiRoute {
    Exchange,
    Kubeconfig,
    InputsCluster,
    InputsAccesses,
    InputsPlatformComponents,
    InputsTargets,
    Health,
    Healthz,
    Livez,
    Ready,
    Readyz,
    OpenApiYaml,
    OpenApiJson,
    Metadata,
}

/// The optional routes that the configuration enables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enabled {
    pub(super) inputs: bool,
    pub(super) metadata: bool,
}

impl Enabled {
    fn of_parts(parts: &PublicParts) -> Self {
        Self {
            inputs: parts.has_inputs,
            metadata: parts.metadata.is_some(),
        }
    }

    pub(super) fn has_route(self, route: ApiRoute) -> bool {
        match route {
            ApiRoute::Metadata => self.metadata,
            route => self.inputs || route.inputs_view().is_none(),
        }
    }
}

/// What the routes that need the hub's state have.
pub(super) struct OpenParts {
    pub(super) broker: Arc<Broker>,
    pub(super) bodies: Arc<Bodies>,
    pub(super) inputs: Option<Arc<Inputs>>,
}

impl ApiRoute {
    pub(super) const ALL_ROUTES: [Self; 14] = [
        Self::Exchange,
        Self::Kubeconfig,
        Self::InputsCluster,
        Self::InputsAccesses,
        Self::InputsPlatformComponents,
        Self::InputsTargets,
        Self::Health,
        Self::Healthz,
        Self::Livez,
        Self::Ready,
        Self::Readyz,
        Self::OpenApiYaml,
        Self::OpenApiJson,
        Self::Metadata,
    ];

    /// The path, with its parameters in braces as OpenAPI and the router both write them.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Exchange => "/v1/token",
            Self::Kubeconfig => "/v1/namespaces/{namespace}/accesses/{name}/kubeconfig",
            Self::InputsCluster => "/api/v2/flux/clusters/{dns}/cluster",
            Self::InputsAccesses => "/api/v2/flux/clusters/{dns}/accesses",
            Self::InputsPlatformComponents => "/api/v2/flux/clusters/{dns}/platform-components",
            Self::InputsTargets => "/api/v2/flux/namespaces/{namespace}/targets",
            Self::Health => "/health",
            Self::Healthz => "/healthz",
            Self::Livez => "/livez",
            Self::Ready => "/ready",
            Self::Readyz => "/readyz",
            Self::OpenApiYaml => "/openapi.yaml",
            Self::OpenApiJson => "/openapi.json",
            Self::Metadata => METADATA_PATH,
        }
    }

    /// The collection of an inputs route.
    pub(super) fn inputs_view(self) -> Option<View> {
        match self {
            Self::InputsCluster => Some(View::Cluster),
            Self::InputsAccesses => Some(View::Accesses),
            Self::InputsPlatformComponents => Some(View::PlatformComponents),
            Self::InputsTargets => Some(View::Targets),
            _ => None,
        }
    }

    /// The handler that needs the hub's state; `None` for a public route, and for one that the
    /// configuration turns off.
    fn hub_handler(self, parts: &OpenParts) -> Option<MethodRouter> {
        let broker = Arc::clone(&parts.broker);
        match self {
            Self::Exchange => {
                let bodies = Arc::clone(&parts.bodies);
                let handler = any(move |broker, request| {
                    contain_panic(exchange::answer_exchange(
                        Arc::clone(&bodies),
                        broker,
                        request,
                    ))
                });
                Some(handler.with_state(broker))
            }
            Self::Kubeconfig => {
                let handler = any(|broker, path, request| {
                    contain_panic(kubeconfig::answer_kubeconfig(broker, path, request))
                });
                Some(handler.with_state(broker))
            }
            route => {
                let (view, inputs) = (route.inputs_view()?, Arc::clone(parts.inputs.as_ref()?));
                Some(any(move |segment: Segment, request: Request| {
                    let (inputs, broker) = (Arc::clone(&inputs), Arc::clone(&broker));
                    contain_panic(inputs::answer_inputs(
                        view, inputs, broker, segment, request,
                    ))
                }))
            }
        }
    }

    /// The handler of a public route, which every client may ask without a credential.
    fn public_handler(
        self,
        parts: &PublicParts,
        documents: &Arc<Documents>,
    ) -> Option<MethodRouter> {
        match self {
            Self::Health | Self::Healthz | Self::Livez => Some(any(async |request: Request| {
                answer_get(&request, || readiness_response(true))
            })),
            Self::Ready | Self::Readyz => {
                let health = parts.health.clone();
                Some(any(async move |request: Request| {
                    answer_get(&request, || readiness_response(health.is_ready()))
                }))
            }
            Self::OpenApiYaml | Self::OpenApiJson => {
                let documents = Arc::clone(documents);
                Some(any(async move |request: Request| {
                    answer_get(&request, || documents.document_response(self))
                }))
            }
            Self::Metadata => {
                let metadata = parts.metadata.clone()?;
                Some(any(async move |request: Request| {
                    answer_get(&request, || metadata.metadata_response())
                }))
            }
            _ => None,
        }
    }
}

/// The public routes, which are open from the start.
pub(super) fn public_routes(parts: &PublicParts) -> Router {
    let documents = Arc::new(Documents::new(Enabled::of_parts(parts)));
    ApiRoute::ALL_ROUTES
        .into_iter()
        .filter_map(|route| Some((route, route.public_handler(parts, &documents)?)))
        .fold(Router::new(), |router, (route, handler)| {
            router.route(route.path(), handler)
        })
}

/// The routes that need the hub's state.
pub(super) fn open_routes(parts: &OpenParts) -> Router {
    ApiRoute::ALL_ROUTES
        .into_iter()
        .filter_map(|route| Some((route, route.hub_handler(parts)?)))
        .fold(Router::new(), |router, (route, handler)| {
            router.route(route.path(), handler)
        })
}

/// Answers a GET or HEAD. The router drops the body for HEAD and keeps its length.
fn answer_get(request: &Request, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return refusal::not_allowed("GET, HEAD");
    }
    answer()
}

/// Reports only whether it is ready. The cause is on the health listener, which is not public.
fn readiness_response(is_well: bool) -> Response<Body> {
    if is_well {
        plain_text(StatusCode::OK, "ok\n")
    } else {
        let mut response = plain_text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n");
        let seconds = axum::http::HeaderValue::from_static("5");
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
        response
    }
}
