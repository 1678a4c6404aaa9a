//! The YAML stream: bounded, strict, and every field's line kept for the messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::check::{ConfigError, Mistake};
use super::Generation;

/// The most bytes a configuration file may have.
pub const MAX_CONFIG_BYTES: usize = 8 * 1024 * 1024;

/// One YAML document with the lines of its fields.
#[derive(Debug)]
pub(super) struct Document {
    value: Value,
    lines: BTreeMap<String, u64>,
}

/// `metadata` of an object, as far as a file may state it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Reads the stream.
pub(super) fn documents(text: &str) -> Result<Vec<Document>, ConfigError> {
    let whole = |problem: String, mend: &str| ConfigError { mistakes: vec![Mistake::whole_file(problem, mend)] };
    if text.len() > MAX_CONFIG_BYTES {
        return Err(whole(format!("the file is larger than {MAX_CONFIG_BYTES} bytes"), "split the fleet over several hubs or use the CRDs"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 1_000_000, max_aliases: 64, max_anchors: 64 },
        legacy_octal_numbers: true,
    };
    let nodes: Vec<Spanned<Node>> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        let problem = error.without_snippet().to_string();
        let problem = problem.lines().next().unwrap_or("cannot be read").to_owned();
        let mut mistake = Mistake::whole_file(format!("the YAML cannot be read: {problem}"), "correct the YAML");
        mistake.line = line;
        ConfigError { mistakes: vec![mistake] }
    })?;
    Ok(nodes.into_iter().filter(|node| !matches!(node.value, Node::Scalar(Value::Null))).map(Document::new).collect())
}

impl Document {
    fn new(node: Spanned<Node>) -> Document {
        let mut lines = BTreeMap::new();
        lines.insert(String::new(), node.referenced.line());
        let value = flatten(node.value, "", &mut lines);
        Document { value, lines }
    }

    fn text(&self, member: &str) -> &str {
        self.value.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(super) fn kind(&self) -> &str {
        self.text("kind")
    }

    /// Whether this document is the object `kind`/`name`.
    pub(super) fn is(&self, kind: &str, name: &str) -> bool {
        self.kind() == kind && self.value.pointer("/metadata/name").and_then(Value::as_str) == Some(name)
    }

    pub(super) fn generation(&self) -> Generation {
        Generation::of(self.value.get("spec").unwrap_or(&Value::Null))
    }

    /// The document as a typed object; members that the type does not know are mistakes.
    pub(super) fn read<T: DeserializeOwned>(&self, mistakes: &mut Vec<Mistake>) -> Option<T> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| {
                let path = error.path().to_string();
                let path = if path == "." { String::new() } else { path };
                mistakes.push(self.mistake(&path, error.into_inner().to_string(), "see the configuration reference for the fields and their types"));
            })
            .ok()
    }

    /// A mistake at `path`, with the line of the nearest field that stands in the file.
    pub(super) fn mistake(&self, path: &str, problem: impl Into<String>, mend: impl Into<String>) -> Mistake {
        let name = self.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let namespace = self.value.pointer("/metadata/namespace").and_then(Value::as_str).map(|text| format!("{text}/")).unwrap_or_default();
        let object = if name.is_empty() { self.kind().to_owned() } else { format!("{}/{namespace}{name}", self.kind()) };
        Mistake { object, path: path.to_owned(), line: self.line(path), problem: problem.into(), mend: mend.into() }
    }

    fn line(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            path = path.rfind(['.', '[']).and_then(|end| path.get(..end)).unwrap_or_default();
        }
    }
}

/// A YAML node whose children know their lines.
#[derive(Debug)]
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    Sequence(Vec<Spanned<Node>>),
    Scalar(Value),
}

fn flatten(node: Node, path: &str, lines: &mut BTreeMap<String, u64>) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::Sequence(items) => Value::Array(
            items
                .into_iter()
                .enumerate()
                .map(|(index, item)| {
                    let path = format!("{path}[{index}]");
                    lines.insert(path.clone(), item.referenced.line());
                    flatten(item.value, &path, lines)
                })
                .collect(),
        ),
        Node::Map(members) => Value::Object(
            members
                .into_iter()
                .map(|(key, member)| {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    lines.insert(path.clone(), member.referenced.line());
                    (key, flatten(member.value, &path, lines))
                })
                .collect(),
        ),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML mapping, sequence or scalar")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Node::Map(members))
    }
}
