//! The responses of each operation: every status, with every `error` that its body can have.

use serde_json::{Map, Value, json};

use super::ApiRoute;

/// The statuses of errors, with the values of `error`. A test compares them with what
/// [`refusal`](crate::http::refusal) makes of every reason.
pub(super) fn error_statuses(route: ApiRoute) -> &'static [(u16, &'static [&'static str])] {
    match route {
        ApiRoute::Exchange => &[
            (400, &["invalid_request", "invalid_target"]),
            (405, &["invalid_request"]),
            (408, &["invalid_request"]),
            (413, &["invalid_request"]),
            (415, &["invalid_request"]),
            (429, &["temporarily_unavailable"]),
            (500, &["server_error"]),
            (503, &["temporarily_unavailable", "target_not_ready"]),
        ],
        ApiRoute::Kubeconfig => &[
            (400, &["invalid_request"]),
            (401, &["invalid_token"]),
            (403, &["access_denied"]),
            (405, &["invalid_request"]),
            (429, &["temporarily_unavailable"]),
            (500, &["server_error"]),
            (503, &["temporarily_unavailable", "target_not_ready"]),
        ],
        ApiRoute::InputsCluster
        | ApiRoute::InputsAccesses
        | ApiRoute::InputsPlatformComponents
        | ApiRoute::InputsTargets => &[
            (400, &["invalid_request"]),
            (401, &["invalid_token"]),
            (404, &["not_found"]),
            (405, &["invalid_request"]),
            (429, &["temporarily_unavailable"]),
            (500, &["server_error"]),
            (503, &["temporarily_unavailable", "inputs_not_available"]),
        ],
        ApiRoute::Health
        | ApiRoute::Healthz
        | ApiRoute::Livez
        | ApiRoute::Ready
        | ApiRoute::Readyz
        | ApiRoute::OpenApiYaml
        | ApiRoute::OpenApiJson
        | ApiRoute::Metadata => &[(405, &["invalid_request"])],
    }
}

/// All responses of an operation, given the media type and the schema of its 200.
pub(super) fn operation_responses(route: ApiRoute, (media_type, schema): (&str, Value)) -> Value {
    let mut all = Map::new();
    let mut success = json!({
        "description": status_description(200),
        "content": { media_type: { "schema": schema } },
    });
    if route.inputs_view().is_some() {
        success["headers"] = etag_header();
        all.insert(
            "304".to_owned(),
            json!({ "description": status_description(304), "headers": etag_header() }),
        );
    }
    all.insert("200".to_owned(), success);
    if matches!(route, ApiRoute::Ready | ApiRoute::Readyz) {
        let not_ready = json!({
            "description": "Not ready.",
            "content": { "text/plain": { "schema": { "type": "string" } } },
        });
        all.insert("503".to_owned(), not_ready);
    }
    for (status, codes) in error_statuses(route) {
        all.insert(status.to_string(), error_response(*status, codes));
    }
    // The framing of a request is checked before its path, on every route.
    let framing = all
        .entry("400".to_owned())
        .or_insert_with(|| json!({ "description": status_description(400), "content": {} }));
    framing["content"]["text/plain"] = json!({ "schema": { "type": "string" } });
    Value::Object(all)
}

fn error_response(status: u16, codes: &[&str]) -> Value {
    let schema = json!({ "allOf": [
        { "$ref": "#/components/schemas/Error" },
        { "properties": { "error": { "enum": codes } } },
    ] });
    json!({
        "description": status_description(status),
        "content": { "application/json": { "schema": schema } },
    })
}

fn etag_header() -> Value {
    json!({ "ETag": { "required": true, "schema": { "type": "string" } } })
}

fn status_description(status: u16) -> &'static str {
    match status {
        200 => "What was asked for.",
        304 => "The collection is the one that If-None-Match names.",
        400 => "The request is malformed.",
        401 => "The credential was not accepted; one body for every cause.",
        403 => "Denied; one body for every cause.",
        404 => "Nothing is here for this credential; one body for every cause.",
        405 => "Another method is allowed here; Allow names it.",
        408 => "The body did not arrive in time.",
        413 => "The body is too large.",
        415 => "The body has another media type than a form.",
        429 => "Too many requests; Retry-After says when to try again.",
        503 => "Not available now; Retry-After says when to try again.",
        _ => "An internal error of Keyferry.",
    }
}
