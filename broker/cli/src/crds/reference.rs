//! Renders the reference of the objects from their schemas: `docs/reference/objects.md` is this
//! output.

use std::collections::BTreeMap;

use keyferry_api::json_schema::{FieldRow, field_rows};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const HEAD: &str = "# Reference of the objects\n\n\
    Printed by `keyferry crds --markdown` from the definitions that `keyferry crds` prints. The same `TargetCluster` and `TargetAccess` objects can\n\
    stand in a [configuration file](configuration.md), where the fields that the controller acts on have no use.\n";

/// A CustomResourceDefinition, reduced to what the reference says of it.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    scope: String,
    names: DefinitionNames,
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionNames {
    kind: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    schema: VersionSchema,
}

#[derive(Deserialize)]
struct VersionSchema {
    #[serde(rename = "openAPIV3Schema")]
    object: ObjectSchema,
}

#[derive(Deserialize)]
struct ObjectSchema {
    #[serde(default)]
    description: String,
    #[serde(default, rename = "x-kubernetes-validations")]
    validations: Vec<ValidationRule>,
    /// The schemas of the object's members.
    properties: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct ValidationRule {
    #[serde(default)]
    message: String,
}

/// Renders definitions as Markdown.
///
/// # Errors
/// A definition is not one of a CustomResourceDefinition.
pub(super) fn markdown(definitions: &[impl Serialize]) -> Result<String, serde_json::Error> {
    let mut text = HEAD.to_owned();
    for definition in definitions {
        let definition: Definition = serde_json::from_value(serde_json::to_value(definition)?)?;
        text.push_str(&object(&definition.spec));
    }
    Ok(text)
}

fn object(definition: &DefinitionSpec) -> String {
    let names = &definition.names;
    let mut text = format!("\n## {}\n", names.kind);
    let short = match names.short_names.is_empty() {
        true => String::new(),
        false => format!(", short name `{}`", names.short_names.join("`, `")),
    };
    for version in &definition.versions {
        let schema = &version.schema.object;
        text.push_str(&format!("\n{}\n\n", schema.description));
        text.push_str(&format!(
            "`{}/{}`, {}{short}, category `keyferry`.\n",
            definition.group,
            version.name,
            definition.scope.to_lowercase()
        ));
        for rule in &schema.validations {
            text.push_str(&format!("\nRefused with \"{}\".\n", rule.message));
        }
        text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        for part in ["spec", "status", "pairs"] {
            if let Some(schema) = schema.properties.get(part) {
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
