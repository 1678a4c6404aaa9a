//! The OpenAPI 3.1 document of the API listener, made of [`ApiRoute`] and of the types that its
//! responses are serialised from.

mod responses;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use keyferry_api::json_schema::schema_of;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_core::exchange::form_schema;
use keyferry_core::inputs::collection::CollectionBody;
use keyferry_core::inputs::documents::{AccessInput, ClusterInput, TargetInput};
use keyferry_core::kubeconfig::kubeconfig_schema;
use keyferry_listener::plain_text;
use serde_json::{Map, Value, json};

use self::responses::operation_responses;
use super::api_route::{ApiRoute, Enabled};
use super::exchange::TokenResponse;
use super::inputs::View;
use super::metadata::MetadataDocument;
use super::refusal::ErrorBody;

/// Both spellings of the document.
pub(super) struct Documents {
    yaml: Bytes,
    json: Bytes,
}

impl Documents {
    /// Makes the document of the routes that are enabled.
    pub(super) fn new(enabled: Enabled) -> Self {
        let document = openapi_document(enabled);
        // A JSON text is also YAML, so there is a document whatever the printer says.
        let yaml = serde_saphyr::to_string(&document).unwrap_or_else(|_| document.to_string());
        Self {
            yaml: yaml.into(),
            json: document.to_string().into(),
        }
    }

    pub(super) fn document_response(&self, route: ApiRoute) -> Response<Body> {
        let (bytes, content_type) = match route {
            ApiRoute::OpenApiYaml => (&self.yaml, "application/yaml"),
            _ => (&self.json, "application/json"),
        };
        let mut response = plain_text(StatusCode::OK, "");
        *response.body_mut() = Body::from(bytes.clone());
        let content_type = HeaderValue::from_static(content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// The document of the enabled routes.
pub(super) fn openapi_document(enabled: Enabled) -> Value {
    let routes = ApiRoute::ALL_ROUTES
        .into_iter()
        .filter(|route| enabled.has_route(*route));
    let paths: Map<String, Value> = routes
        .map(|route| {
            let method = if route == ApiRoute::Exchange {
                "post"
            } else {
                "get"
            };
            let mut item = Map::new();
            item.insert(method.to_owned(), route_operation(route));
            (route.path().to_owned(), Value::Object(item))
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Keyferry",
            "summary": "Tokens for target clusters, and inputs for fleets",
            "description": "The API listener. Targets read the hub's issuer on another one.",
            "version": "1",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": {
                "Error": schema_of::<ErrorBody<'_>>(),
                "TokenResponse": schema_of::<TokenResponse<'_>>(),
            },
            "securitySchemes": {
                "callerToken": {
                    "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                    "description": "The caller's own ServiceAccount token of the hub.",
                },
                "inputBearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "The token of a credential for fleet inputs.",
                },
                "inputBasic": {
                    "type": "http", "scheme": "basic",
                    "description": "The name and the token of a credential for fleet inputs.",
                },
                "inputCertificate": {
                    "type": "mutualTLS",
                    "description": "The client certificate of a credential for fleet inputs, without \
                        Authorization.",
                },
            },
        },
    })
}

fn route_operation(route: ApiRoute) -> Value {
    let (id, summary) = operation_name(route);
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "responses": operation_responses(route, success_content(route)),
    });
    let parameters = route_parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if route == ApiRoute::Exchange {
        operation["requestBody"] = exchange_form();
    }
    operation["security"] = match route {
        ApiRoute::Kubeconfig => json!([{ "callerToken": [] }]),
        route if route.inputs_view().is_some() => json!([
            { "inputBearer": [] }, { "inputBasic": [] }, { "inputCertificate": [] },
        ]),
        _ => json!([]),
    };
    operation
}

fn operation_name(route: ApiRoute) -> (&'static str, &'static str) {
    match route {
        ApiRoute::Exchange => (
            "exchangeToken",
            "Exchange the caller's token for one target's",
        ),
        ApiRoute::Kubeconfig => (
            "getKubeconfig",
            "Get a kubeconfig with a token for one target",
        ),
        ApiRoute::InputsCluster => ("getCluster", "Get the names of a cluster"),
        ApiRoute::InputsAccesses => ("getAccesses", "Get the accesses to a cluster"),
        ApiRoute::InputsPlatformComponents => (
            "getPlatformComponents",
            "Get the platform components of a cluster",
        ),
        ApiRoute::InputsTargets => ("getTargets", "Get the targets of a namespace"),
        ApiRoute::Health => ("getHealth", "Whether the process runs"),
        ApiRoute::Healthz => ("getHealthz", "Whether the process runs"),
        ApiRoute::Livez => ("getLivez", "Whether the process runs"),
        ApiRoute::Ready => ("getReady", "Whether tokens can be issued"),
        ApiRoute::Readyz => ("getReadyz", "Whether tokens can be issued"),
        ApiRoute::OpenApiYaml => ("getOpenApiYaml", "Get this document as YAML"),
        ApiRoute::OpenApiJson => ("getOpenApiJson", "Get this document as JSON"),
        ApiRoute::Metadata => ("getMetadata", "Get how the token endpoint can be used"),
    }
}

/// The media type and the schema of a 200.
fn success_content(route: ApiRoute) -> (&'static str, Value) {
    match route {
        ApiRoute::Exchange => (
            "application/json",
            json!({ "$ref": "#/components/schemas/TokenResponse" }),
        ),
        ApiRoute::Kubeconfig => ("application/yaml", kubeconfig_schema()),
        ApiRoute::OpenApiYaml => ("application/yaml", json!({ "type": "object" })),
        ApiRoute::OpenApiJson => ("application/json", json!({ "type": "object" })),
        ApiRoute::Metadata => ("application/json", schema_of::<MetadataDocument<'_>>()),
        ApiRoute::Health
        | ApiRoute::Healthz
        | ApiRoute::Livez
        | ApiRoute::Ready
        | ApiRoute::Readyz => ("text/plain", json!({ "type": "string" })),
        ApiRoute::InputsCluster
        | ApiRoute::InputsAccesses
        | ApiRoute::InputsPlatformComponents
        | ApiRoute::InputsTargets => ("application/json", collection_schema(route.inputs_view())),
    }
}

fn collection_schema(view: Option<View>) -> Value {
    match view {
        Some(View::Cluster) => schema_of::<CollectionBody<ClusterInput<'_>>>(),
        Some(View::Accesses) => schema_of::<CollectionBody<AccessInput<'_>>>(),
        Some(View::Targets) => schema_of::<CollectionBody<TargetInput<'_>>>(),
        // The platform admin chooses the members.
        Some(View::PlatformComponents) | None => schema_of::<CollectionBody<Map<String, Value>>>(),
    }
}

fn route_parameters(route: ApiRoute) -> Vec<Value> {
    let path = |name: &str, schema: Value, description: &str| {
        json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": schema,
        })
    };
    let namespace = || {
        path(
            "namespace",
            schema_of::<Namespace>(),
            "The tenant's namespace.",
        )
    };
    let if_none_match = || {
        json!({
            "name": "If-None-Match", "in": "header", "required": false,
            "description": "The ETag of the last response.", "schema": { "type": "string" },
        })
    };
    match route {
        ApiRoute::Kubeconfig => vec![
            namespace(),
            path("name", schema_of::<ObjectName>(), "The TargetAccess."),
        ],
        ApiRoute::InputsTargets => vec![namespace(), if_none_match()],
        route if route.inputs_view().is_some() => vec![
            path(
                "dns",
                schema_of::<ObjectName>(),
                "The clusterDNS of the cluster's identity.",
            ),
            if_none_match(),
        ],
        _ => Vec::new(),
    }
}

fn exchange_form() -> Value {
    json!({
        "required": true,
        "content": { "application/x-www-form-urlencoded": { "schema": form_schema() } },
    })
}

#[cfg(test)]
mod tests;
