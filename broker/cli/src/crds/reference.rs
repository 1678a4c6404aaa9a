//! Renders the reference of the objects from their schemas: `docs/reference/objects.md` is this
//! output.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// The greatest depth to which a schema is read; no field of Keyferry's is deeper.
const DEEPEST: usize = 16;

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
        for rule in rules(schema) {
            text.push_str(&format!("\nRefused with \"{rule}\".\n"));
        }
        let mut rows = Vec::new();
        for part in ["spec", "status", "pairs"] {
            if let Some(schema) = schema["properties"].get(part) {
                field(part, schema, false, 0, &mut rows);
            }
        }
        text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        text.push_str(&rows.concat());
    }
    text
}

/// Adds the row of a field and the rows of the fields below it.
fn field(path: &str, schema: &Value, required: bool, depth: usize, rows: &mut Vec<String>) {
    if depth > DEEPEST {
        return;
    }
    let mut meaning: Vec<String> = Vec::new();
    match word(&schema["description"]) {
        "" => {}
        text => meaning.push(text.to_owned()),
    }
    let choices: Vec<&str> = items(&schema["enum"]).map(word).collect();
    if !choices.is_empty() {
        meaning.push(format!("One of `{}`.", choices.join("`, `")));
    }
    if let Some(default) = schema.get("default") {
        meaning.push(format!(
            "Default `{}`.",
            default
                .as_str()
                .map_or_else(|| default.to_string(), str::to_owned)
        ));
    }
    meaning.extend(bounds(schema));
    meaning.extend(rules(schema).map(|rule| format!("Refused with \"{rule}\".")));
    let required = if required { ", required" } else { "" };
    rows.push(format!(
        "| `{path}` | {}{required} | {} |\n",
        type_of(schema),
        meaning.join(" ").replace('|', "\\|").replace('\n', " ")
    ));
    fields_of(path, schema, depth + 1, rows);
    fields_of(&format!("{path}[]"), &schema["items"], depth + 1, rows);
}

/// Adds the rows of an object's fields.
fn fields_of(path: &str, object: &Value, depth: usize, rows: &mut Vec<String>) {
    let must: Vec<&str> = items(&object["required"]).map(word).collect();
    for (name, schema) in members(&object["properties"]) {
        let required = must.contains(&name.as_str());
        field(&format!("{path}.{name}"), schema, required, depth, rows);
    }
}

fn type_of(schema: &Value) -> String {
    let one = |schema: &Value| match (word(&schema["type"]), word(&schema["format"])) {
        ("string", "date-time") => "time".to_owned(),
        (name, _) => name.to_owned(),
    };
    match word(&schema["type"]) {
        "array" => format!("list of {}", one(&schema["items"])),
        "object" => match schema.get("additionalProperties") {
            Some(entry) => format!("map of {}", type_of(entry)),
            None => "object".to_owned(),
        },
        _ => one(schema),
    }
}

fn bounds(schema: &Value) -> impl Iterator<Item = String> {
    let most = |name: &str, what: &str| {
        schema[name]
            .as_u64()
            .map(|most| format!("At most {most} {what}."))
    };
    [
        most("maxLength", "characters"),
        most("maxItems", "entries"),
        most("maxProperties", "entries"),
    ]
    .into_iter()
    .flatten()
}

/// Returns the refusal messages of the schema's rules and of its items' rules.
fn rules(schema: &Value) -> impl Iterator<Item = &str> {
    let own = items(&schema["x-kubernetes-validations"]);
    let entries = items(&schema["items"]["x-kubernetes-validations"]);
    own.chain(entries).map(|rule| word(&rule["message"]))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the members sorted by name, because the map's own order depends on the build's features.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .collect::<BTreeMap<_, _>>()
        .into_iter()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
