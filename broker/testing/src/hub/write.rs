//! Creating and replacing the objects that Keyferry itself writes: Secrets and Leases, by
//! compare-and-swap.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::object::{Resource, Shape};
use super::objects::Swap;
use super::policy::HubPolicy;
use crate::json_body;
use crate::status::ApiError;

type Hub = State<Arc<HubPolicy>>;

#[derive(Deserialize)]
struct Written {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    spec: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    resource_version: String,
}

pub(super) async fn create_secret(
    hub: Hub,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    create(&hub, Resource::Secrets, &namespace, &headers, &body)
}

pub(super) async fn replace_secret(
    hub: Hub,
    Path(place): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    replace(&hub, Resource::Secrets, place, &headers, &body)
}

pub(super) async fn create_lease(
    hub: Hub,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    create(&hub, Resource::Leases, &namespace, &headers, &body)
}

pub(super) async fn replace_lease(
    hub: Hub,
    Path(place): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    replace(&hub, Resource::Leases, place, &headers, &body)
}

fn create(
    hub: &HubPolicy,
    resource: Resource,
    namespace: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, ApiError> {
    let written: Written = json_body::read(headers, body, resource.kind())?;
    let data = decode_written_data(&written)?;
    match hub
        .objects
        .swap(resource, namespace, &written.metadata.name, None, data)
    {
        Swap::Done(object) => {
            Ok((StatusCode::CREATED, Json(object.to_json(Shape::Full))).into_response())
        }
        _ => Err(ApiError::conflict(format!(
            "{} {:?} already exists",
            resource.plural(),
            written.metadata.name
        ))),
    }
}

fn replace(
    hub: &HubPolicy,
    resource: Resource,
    (namespace, name): (String, String),
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, ApiError> {
    let written: Written = json_body::read(headers, body, resource.kind())?;
    if written.metadata.name != name {
        return Err(ApiError::bad_request(
            "the name of the object does not match the name on the URL",
        ));
    }
    let version = written
        .metadata
        .resource_version
        .parse()
        .map_err(|_| ApiError::bad_request("resourceVersion is no number"))?;
    let data = decode_written_data(&written)?;
    match hub
        .objects
        .swap(resource, &namespace, &name, Some(version), data)
    {
        Swap::Done(object) => Ok(Json(object.to_json(Shape::Full)).into_response()),
        Swap::Absent => Err(ApiError::not_found(resource.plural(), &name)),
        Swap::Changed => Err(ApiError::conflict(
            "the object has been modified; please apply your changes to the latest version",
        )),
    }
}

fn decode_written_data(written: &Written) -> Result<BTreeMap<String, Vec<u8>>, ApiError> {
    if let Some(spec) = &written.spec {
        return Ok(BTreeMap::from([(
            "spec".to_owned(),
            spec.to_string().into_bytes(),
        )]));
    }
    let decode = |(key, value): (&String, &String)| {
        Ok((
            key.clone(),
            STANDARD
                .decode(value)
                .map_err(|_| ApiError::bad_request("data is not base64"))?,
        ))
    };
    written.data.iter().map(decode).collect()
}
