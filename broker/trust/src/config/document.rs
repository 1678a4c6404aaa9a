//! From bytes to one JSON value, as the apiserver's codec gets there from JSON or YAML.

use std::collections::BTreeMap;

use super::scalar::Kind;
use super::yaml::{self, Content, Node};
use super::{LoadFault, MAX_BYTES, Refusal, Undetermined};
use crate::Code;
use crate::go::json::{Json, JsonFault};
use crate::go::quote::quote;

/// A file's first document.
pub(super) struct Document {
    pub(super) value: Json,
    /// The line of every field, by its path.
    pub(super) lines: BTreeMap<String, u64>,
    /// What strict reading has against the YAML: one text for all keys that are set twice.
    pub(super) duplicates: Option<(Code, String)>,
    pub(super) second_document: bool,
}

/// Reads a file.
pub(super) fn read(bytes: &[u8]) -> Result<Document, LoadFault> {
    if bytes.is_empty() {
        return Err(Refusal::exact(Code::EmptyFile, "empty config data").into());
    }
    if bytes.len() > MAX_BYTES {
        return Err(Undetermined::new(Code::TooLarge, format!("the file is longer than {MAX_BYTES} bytes")).into());
    }
    if String::from_utf8_lossy(bytes).trim_start().starts_with('{') { read_json(bytes) } else { read_yaml(bytes) }
}

fn read_json(bytes: &[u8]) -> Result<Document, LoadFault> {
    let value = Json::parse(bytes).map_err(|fault| match fault {
        // The codec sniffs the kind first, and that is where broken JSON fails.
        JsonFault::Syntax(reason) => {
            LoadFault::from(Refusal::exact(Code::NotJson, format!("couldn't get version/kind; json parse error: {reason}")))
        }
        JsonFault::TooDeep => Undetermined::new(Code::TooDeep, "the file nests too deep to be read here").into(),
    })?;
    // JSON is YAML; where it is read as such, it has lines.
    let mut lines = BTreeMap::new();
    let tree = std::str::from_utf8(bytes).ok().and_then(|text| yaml::read(text).ok()).and_then(|documents| documents.first);
    if let Some(tree) = tree {
        let mut duplicates = Vec::new();
        let _ = flatten(&tree, "", &mut lines, &mut duplicates);
    }
    Ok(Document { value, lines, duplicates: None, second_document: false })
}

fn read_yaml(bytes: &[u8]) -> Result<Document, LoadFault> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Undetermined::new(Code::UnusualYaml, "the file is UTF-16").into());
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Refusal::near(Code::NotYaml, format!("yaml: invalid UTF-8 at byte {}", error.valid_up_to())))?;
    check_characters(text)?;
    let documents = yaml::read(text)?;
    let (mut lines, mut duplicates) = (BTreeMap::new(), Vec::new());
    let value = match &documents.first {
        Some(node) => flatten(node, "", &mut lines, &mut duplicates)?,
        None => Json::Null,
    };
    let duplicates =
        (!duplicates.is_empty()).then(|| (Code::DuplicateField, format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  "))));
    Ok(Document { value, lines, duplicates, second_document: documents.more })
}

/// Characters that YAML 1.1 and 1.2 treat differently, or not at all.
fn check_characters(text: &str) -> Result<(), LoadFault> {
    if text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']) {
        return Err(Undetermined::new(Code::UnusualYaml, "the file has line ends or marks that are read in different ways").into());
    }
    if text.replace("\r\n", "\n").contains('\r') {
        return Err(Undetermined::new(Code::UnusualYaml, "the file has carriage returns alone").into());
    }
    if text.starts_with("...") {
        return Err(Undetermined::new(Code::UnusualYaml, "the file starts with the end of a document").into());
    }
    let indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t') && !line.trim().is_empty();
    if let Some(index) = text.lines().position(indented_by_tab) {
        return Err(Undetermined::new(Code::UnusualYaml, format!("line {} is indented by a tab", index + 1)).into());
    }
    let control = |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
    if text.contains(control) || text.contains(['\u{fffe}', '\u{ffff}']) {
        return Err(Refusal::exact(Code::NotYaml, "yaml: control characters are not allowed").into());
    }
    Ok(())
}

/// A node as JSON: the members of a map sorted by name, the last of two kept, each second one noted.
fn flatten(node: &Node, path: &str, lines: &mut BTreeMap<String, u64>, duplicates: &mut Vec<String>) -> Result<Json, LoadFault> {
    match &node.content {
        Content::Scalar(kind, text) => match kind {
            Kind::Null => Ok(Json::Null),
            Kind::Bool(value) => Ok(Json::Bool(*value)),
            Kind::Number => Ok(Json::Number(text.clone())),
            Kind::Text | Kind::Merge => Ok(Json::Text(text.clone())),
            Kind::NotJson => Err(Refusal::near(Code::NotYaml, "json: unsupported value: NaN or Inf").at(node.line).into()),
        },
        Content::List(items) => {
            let mut out = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                lines.insert(path.clone(), item.line);
                out.push(flatten(item, &path, lines, duplicates)?);
            }
            Ok(Json::List(out))
        }
        Content::Map(members) => {
            let mut out: BTreeMap<String, Json> = BTreeMap::new();
            let mut keys: Vec<(Kind, &str)> = Vec::new();
            for (key, value) in members {
                let Content::Scalar(kind, name) = &key.content else {
                    return Err(Refusal::near(Code::NotYaml, "yaml: invalid map key").at(key.line).into());
                };
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !matches!(kind, Kind::Text | Kind::Bool(_)) {
                    return Err(Undetermined::new(Code::UnusualYaml, format!("line {} has a key that is no string", key.line)).into());
                }
                let name = if let Kind::Bool(value) = kind { if *value { "true" } else { "false" } } else { name };
                let json = flatten(value, &path, lines, duplicates)?;
                if keys.contains(&(*kind, name)) {
                    let shown = if *kind == Kind::Text { quote(name) } else { name.to_owned() };
                    duplicates.push(format!("line {}: key {shown} already set in map", value.line));
                }
                keys.push((*kind, name));
                lines.insert(path, key.line);
                out.insert(name.to_owned(), json);
            }
            Ok(Json::Object(out.into_iter().collect()))
        }
    }
}
