//! The OpenAPI 3.1 document of the API listener, made of [`ApiRoute`] and of the types that its
//! responses are serialised from.

mod responses;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use keyferry_core::exchange::{
    GRANT_TYPE, GRANT_TYPE_CERTIFICATE, SUBJECT_TOKEN_TYPES, TOKEN_TYPE_ACCESS_TOKEN,
    TOKEN_TYPE_JWT,
};
use keyferry_core::inputs::documents::{AccessInput, ClusterInput, TargetInput};
use keyferry_listener::plain_text;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use self::responses::operation_responses;
use super::api_route::{ApiRoute, Enabled};
use super::exchange::TokenResponse;
use super::inputs::View;

/// An RFC 1123 label of a path.
const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// An RFC 1123 subdomain of a path.
const SUBDOMAIN_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

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
                "Error": {
                    "type": "object",
                    "required": ["error", "error_description"],
                    "properties": {
                        "error": { "type": "string" },
                        "error_description": { "type": "string" },
                    },
                    "additionalProperties": false,
                },
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
        ApiRoute::Kubeconfig => ("application/yaml", json!({ "type": "object" })),
        ApiRoute::OpenApiYaml => ("application/yaml", json!({ "type": "object" })),
        ApiRoute::OpenApiJson | ApiRoute::Metadata => {
            ("application/json", json!({ "type": "object" }))
        }
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
    let mut input = match view {
        Some(View::Cluster) => schema_of::<ClusterInput<'_>>(),
        Some(View::Accesses) => schema_of::<AccessInput<'_>>(),
        Some(View::Targets) => schema_of::<TargetInput<'_>>(),
        Some(View::PlatformComponents) | None => json!({ "type": "object" }),
    };
    input["properties"]["id"] = json!({ "type": "string", "description": "Unique in this list." });
    match input.get_mut("required").and_then(Value::as_array_mut) {
        Some(required) => required.push(json!("id")),
        None => input["required"] = json!(["id"]),
    }
    json!({
        "type": "object",
        "required": ["inputs"],
        "properties": { "inputs": { "type": "array", "items": input } },
        "additionalProperties": false,
    })
}

fn route_parameters(route: ApiRoute) -> Vec<Value> {
    let path = |name: &str, pattern: &str, most: u32, description: &str| {
        json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": { "type": "string", "pattern": pattern, "minLength": 1, "maxLength": most },
        })
    };
    let if_none_match = || {
        json!({
            "name": "If-None-Match", "in": "header", "required": false,
            "description": "The ETag of the last response.", "schema": { "type": "string" },
        })
    };
    match route {
        ApiRoute::Kubeconfig => vec![
            path("namespace", LABEL_PATTERN, 63, "The tenant's namespace."),
            path("name", SUBDOMAIN_PATTERN, 253, "The TargetAccess."),
        ],
        ApiRoute::InputsTargets => vec![
            path("namespace", LABEL_PATTERN, 63, "The tenant's namespace."),
            if_none_match(),
        ],
        route if route.inputs_view().is_some() => vec![
            path(
                "dns",
                SUBDOMAIN_PATTERN,
                253,
                "The clusterDNS of the cluster's identity.",
            ),
            if_none_match(),
        ],
        _ => Vec::new(),
    }
}

/// The form of RFC 8693 section 2.1. With a client certificate, `client_credentials` needs no token.
fn exchange_form() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let one_of = |values: &[&str]| json!({ "type": "string", "enum": values });
    json!({
        "required": true,
        "content": { "application/x-www-form-urlencoded": { "schema": {
            "type": "object",
            "required": ["grant_type", "audience"],
            "properties": {
                "grant_type": one_of(&[GRANT_TYPE, GRANT_TYPE_CERTIFICATE]),
                "subject_token": text(
                    "The caller's own ServiceAccount token, or the id-token of a CI system.",
                ),
                "subject_token_type": one_of(&SUBJECT_TOKEN_TYPES),
                "audience": text("The TargetAccess, as <namespace>/<access>."),
                "requested_token_type": one_of(&[TOKEN_TYPE_JWT, TOKEN_TYPE_ACCESS_TOKEN]),
                "min_ttl": {
                    "type": "string", "pattern": "^[0-9]{1,6}$",
                    "description": "The least expires_in that is of use, in seconds.",
                },
                "keyferry_cluster": {
                    "type": "string", "enum": ["true", "false"],
                    "description": "Whether the response also says where the target is.",
                },
            },
        } } },
    })
}

/// The schema of a type, by the dialect of OpenAPI 3.1.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

#[cfg(test)]
mod tests;
