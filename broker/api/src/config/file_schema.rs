//! The schema of a configuration file: editors check a file with it while it is written, and the
//! table of docs/reference/configuration.md is printed from it.
//!
//! What the reader accepts fits, except for lists that are longer than the hub's API allows, and empty
//! fields in the wrong section. The reader refuses more, because it also compares fields with each
//! other.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::access_spec::{DeliveryType, Probe, TargetAccessSpec};
use super::document::Object;
use super::server_spec::ServerSpec;
use super::target_spec::TargetClusterSpec;
use super::{server, target};
use crate::json_schema::schema_of;
use crate::schema::choice_names;

/// The schema of each document of a configuration file, by its kind: `allOf` has one condition for
/// each kind, the ServerConfiguration first.
pub fn file_schema() -> Value {
    let server = document_schema::<ServerSpec>(server::API_VERSION, "ServerConfiguration");
    let kinds = [
        ("ServerConfiguration", server),
        ("TargetCluster", target_schema()),
        ("TargetAccess", access_schema()),
    ];
    let names = kinds.each_ref().map(|(kind, _)| *kind);
    let conditions = kinds.map(|(kind, schema)| {
        json!({
            "if": { "properties": { "kind": { "const": kind } }, "required": ["kind"] },
            "then": schema,
        })
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Printed from the types of broker/api; a change of this file is overwritten.",
        "title": "Configuration file of Keyferry",
        "description": "Each document of the file: a ServerConfiguration first, then any number of \
            TargetClusters and TargetAccesses. keyferry serve --check finds more mistakes.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": { "apiVersion": { "type": "string" }, "kind": { "enum": names } },
        "allOf": conditions,
    })
}

fn document_schema<T: JsonSchema>(api_version: &str, kind: &str) -> Value {
    let mut schema = schema_of::<T>();
    schema["properties"]["apiVersion"]["const"] = json!(api_version);
    schema["properties"]["kind"]["const"] = json!(kind);
    schema
}

fn target_schema() -> Value {
    let mut schema =
        document_schema::<Object<TargetClusterSpec>>(target::API_VERSION, "TargetCluster");
    if let Some(metadata) = schema["properties"]["metadata"]["properties"].as_object_mut() {
        metadata.remove("namespace");
    }
    schema
}

/// The controller does not run on a file, so nothing there delivers an object or requires a probe.
fn access_schema() -> Value {
    let mut schema =
        document_schema::<Object<TargetAccessSpec>>(target::API_VERSION, "TargetAccess");
    schema["properties"]["metadata"]["required"] = json!(["name", "namespace"]);
    let spec = &mut schema["properties"]["spec"]["properties"];
    let mut probes: Vec<Value> = choice_names(Probe::WITHOUT_REQUIRE)
        .into_iter()
        .map(Value::from)
        .collect();
    probes.push(Value::Null);
    spec["probe"]["enum"] = probes.into();
    let delivery = &mut spec["deliveries"]["items"]["properties"];
    delivery["type"]["enum"] = json!(DeliveryType::ON_REQUEST.map(DeliveryType::as_str));
    if let Some(fields) = delivery.as_object_mut() {
        fields.retain(|field, _| matches!(field.as_str(), "name" | "type"));
    }
    schema
}
