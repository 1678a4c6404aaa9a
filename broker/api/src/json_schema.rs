//! JSON Schemas of Keyferry's types, and the rows of a reference that are printed from a schema.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// The greatest depth to which a schema is read; no field of Keyferry's is deeper.
const MAX_DEPTH: usize = 16;

/// The schema of a type in the dialect of OpenAPI 3.1, which is JSON Schema 2020-12, without
/// references.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings
            .transforms
            .push(Box::new(RecursiveTransform(simplify_schema)));
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Removes the names of Rust types, the line breaks of comments, and the keywords that only an
/// apiserver reads.
fn simplify_schema(schema: &mut Schema) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    keywords.retain(|keyword, _| keyword != "title" && !keyword.starts_with("x-kubernetes-"));
    if let Some(Value::String(description)) = keywords.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    let is_nullable = keywords
        .get("type")
        .and_then(Value::as_array)
        .is_some_and(|types| types.contains(&json!("null")));
    if let (true, Some(Value::Array(choices))) = (is_nullable, keywords.get_mut("enum"))
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
}

/// One field of a reference, as Markdown for the cells of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// Where the field is, such as `spec.allow[].namespaces`.
    pub path: String,
    /// The kind of its value, such as `list of string`.
    pub type_name: String,
    /// Whether the object around it must have it.
    pub is_required: bool,
    /// The value that it has if it is absent.
    pub default: Option<String>,
    /// What it means, and which values it may have.
    pub meaning: String,
}

/// Returns the row of the field at `path`, and the rows of the fields below it.
///
/// ```
/// use keyferry_api::config::file_schema;
/// use keyferry_api::json_schema::field_rows;
///
/// let schema = file_schema();
/// let server = &schema["allOf"][0]["then"]["properties"];
/// let rows = field_rows("discovery", &server["discovery"]);
/// assert_eq!(rows[1].path, "discovery.address");
/// assert_eq!(rows[1].default.as_deref(), Some("0.0.0.0:8443"));
/// ```
pub fn field_rows(path: &str, schema: &Value) -> Vec<FieldRow> {
    let mut rows = Vec::new();
    add_field(path, schema, false, 0, &mut rows);
    rows
}

/// Returns the rows of the fields of an object.
pub fn member_rows(object: &Value) -> Vec<FieldRow> {
    let mut rows = Vec::new();
    add_members("", object, 0, &mut rows);
    rows
}

fn add_field(
    path: &str,
    schema: &Value,
    is_required: bool,
    depth: usize,
    rows: &mut Vec<FieldRow>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let mut meaning: Vec<String> = Vec::new();
    match word(&schema["description"]) {
        "" => {}
        text => meaning.push(text.to_owned()),
    }
    let choices: Vec<&str> = items(&schema["enum"]).filter_map(Value::as_str).collect();
    if !choices.is_empty() {
        meaning.push(format!("One of `{}`.", choices.join("`, `")));
    }
    meaning.extend(bounds(schema));
    meaning.extend(refusals(schema).map(|message| format!("Refused with \"{message}\".")));
    rows.push(FieldRow {
        path: path.to_owned(),
        type_name: type_name(schema),
        is_required,
        default: schema.get("default").and_then(default_text),
        meaning: escape_cell(&meaning.join(" ")),
    });
    add_members(&format!("{path}."), schema, depth + 1, rows);
    let entries = &schema["items"];
    add_members(&format!("{path}[]."), entries, depth + 1, rows);
}

fn add_members(prefix: &str, object: &Value, depth: usize, rows: &mut Vec<FieldRow>) {
    let required: Vec<&str> = items(&object["required"]).map(word).collect();
    for (name, schema) in object["properties"].as_object().into_iter().flatten() {
        let is_required = required.contains(&name.as_str());
        add_field(&format!("{prefix}{name}"), schema, is_required, depth, rows);
    }
}

/// Returns the text of a default. An empty list or object means that the field is absent.
fn default_text(default: &Value) -> Option<String> {
    match default {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(entries) if entries.is_empty() => None,
        Value::Object(members) if members.is_empty() => None,
        other => Some(other.to_string()),
    }
}

fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "\\<")
        .replace('\n', " ")
}

fn type_name(schema: &Value) -> String {
    match plain_type(schema) {
        "array" => format!("list of {}", type_name(&schema["items"])),
        "object" => match schema.get("additionalProperties") {
            Some(entry @ Value::Object(_)) => format!("map of {}", type_name(entry)),
            _ => "object".to_owned(),
        },
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the type beside `null`.
fn plain_type(schema: &Value) -> &str {
    let types = match &schema["type"] {
        Value::Array(types) => types.as_slice(),
        one => std::slice::from_ref(one),
    };
    types
        .iter()
        .map(word)
        .find(|name| *name != "null")
        .unwrap_or_default()
}

fn bounds(schema: &Value) -> impl Iterator<Item = String> {
    let describe_maximum = |keyword: &str, noun: &str| {
        schema[keyword]
            .as_u64()
            .map(|most| format!("At most {most}{noun}."))
    };
    [
        describe_maximum("maxLength", " characters"),
        describe_maximum("maxItems", " entries"),
        describe_maximum("maxProperties", " entries"),
        describe_maximum("maximum", ""),
    ]
    .into_iter()
    .flatten()
}

/// Returns the refusal messages of the schema's rules and of its items' rules.
fn refusals(schema: &Value) -> impl Iterator<Item = &str> {
    let own = items(&schema["x-kubernetes-validations"]);
    let entries = items(&schema["items"]["x-kubernetes-validations"]);
    own.chain(entries).map(|rule| word(&rule["message"]))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
