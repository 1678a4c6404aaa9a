//! Renders the reference of the objects from their schemas: `docs/reference/objects.md` is this
//! output.

use keyferry_api::json_schema::{FieldRow, field_rows};
use serde::Serialize;
use serde_json::Value;

const HEAD: &str = "# Reference of the objects\n\n\
    Printed by `keyferry crds --markdown` from the definitions that `keyferry crds` prints. The same `TargetCluster` and `TargetAccess` objects can\n\
    stand in a [configuration file](configuration.md), where the fields that the controller acts on have no use.\n";

/// Renders definitions as Markdown.
///
/// # Errors
/// A definition is not valid JSON.
pub(super) fn markdown(definitions: &[impl Serialize]) -> Result<String, serde_json::Error> {
    let mut text = HEAD.to_owned();
    for definition in definitions {
        text.push_str(&object(&serde_json::to_value(definition)?));
    }
    Ok(text)
}

fn object(definition: &Value) -> String {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let mut text = format!("\n## {}\n", word(&names["kind"]));
    for version in items(&spec["versions"]) {
        let schema = &version["schema"]["openAPIV3Schema"];
        text.push_str(&format!("\n{}\n\n", word(&schema["description"])));
        let short: Vec<&str> = items(&names["shortNames"]).map(word).collect();
        let short = if short.is_empty() {
            String::new()
        } else {
            format!(", short name `{}`", short.join("`, `"))
        };
        let (group, version, scope) = (
            word(&spec["group"]),
            word(&version["name"]),
            word(&spec["scope"]).to_lowercase(),
        );
        text.push_str(&format!(
            "`{group}/{version}`, {scope}{short}, category `keyferry`.\n"
        ));
        for rule in items(&schema["x-kubernetes-validations"]) {
            text.push_str(&format!("\nRefused with \"{}\".\n", word(&rule["message"])));
        }
        text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        for part in ["spec", "status", "pairs"] {
            if let Some(schema) = schema["properties"].get(part) {
                text.extend(field_rows(part, schema).iter().map(table_row));
            }
        }
    }
    text
}

fn table_row(row: &FieldRow) -> String {
    let FieldRow {
        path,
        type_name,
        is_required,
        default,
        meaning,
    } = row;
    let required = if *is_required { ", required" } else { "" };
    let default = default
        .as_ref()
        .map(|default| format!(" Default `{default}`."))
        .unwrap_or_default();
    format!("| `{path}` | {type_name}{required} | {meaning}{default} |\n")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
