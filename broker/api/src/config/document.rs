//! Reads the YAML stream: bounded, strict, and with every field's line for the messages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use serde_saphyr::options::MergeKeyPolicy;

use super::generation::Generation;
use super::mistake::{ConfigError, Mistake};
use super::node::Node;
use crate::foreign_text;
use crate::name::{Namespace, ObjectName};
use crate::service_account::Uid;

/// The largest configuration file, in bytes.
pub const MAX_CONFIG_BYTES: usize = 8 * 1024 * 1024;

/// The most characters of a value or name that a message repeats.
const MAX_SHOWN: usize = 300;

/// One YAML document with the lines of its fields, or one object of the hub.
#[derive(Debug)]
pub(super) struct Document {
    value: Value,
    lines: BTreeMap<String, u64>,
    origin: Origin,
}

/// Where an object comes from. An object in a file has no UID that could own delivered objects, so
/// only an object of the hub can have deliveries that write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the configuration file.
    File,
    /// On the hub.
    Hub(HubObject),
}

/// What the hub reports of one of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubObject {
    pub(super) uid: Uid,
    pub(super) generation: Generation,
}

/// A TargetCluster or a TargetAccess as written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Object<Spec> {
    /// The version of this object.
    #[serde(rename = "apiVersion")]
    _api_version: String,
    /// The kind of this object.
    #[serde(rename = "kind")]
    _kind: String,
    /// Its names. Keyferry ignores labels and annotations.
    pub(super) metadata: Metadata,
    /// What it states.
    pub(super) spec: Spec,
}

/// The part of an object's `metadata` that a file may state.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Metadata {
    /// Its name, which no other object of its kind and namespace has.
    #[schemars(with = "ObjectName")]
    pub(super) name: String,
    /// The tenant's namespace on the hub.
    #[serde(default)]
    #[schemars(with = "Option<Namespace>")]
    pub(super) namespace: Option<String>,
    /// Any labels.
    #[serde(default, rename = "labels")]
    _labels: BTreeMap<String, String>,
    /// Any annotations.
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
}

/// Reads the stream. Empty documents, such as a comment between two separators, are skipped.
pub(super) fn documents(text: &str) -> Result<Vec<Document>, ConfigError> {
    let whole = |problem: String, fix: &str| ConfigError {
        mistakes: vec![Mistake::whole_file(problem, fix)],
    };
    if text.len() > MAX_CONFIG_BYTES {
        return Err(whole(
            format!("the file is larger than {MAX_CONFIG_BYTES} bytes"),
            "split the fleet over several hubs or use the CRDs",
        ));
    }
    // A file of the maximum size with plain objects has about 800,000 nodes in 50,000 documents.
    // Aliases are for convenience only: a few, not nested into each other.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2_000_000,
            max_nodes: 1_000_000,
            max_documents: 65_536,
            max_depth: 32,
            max_aliases: 64,
            max_anchors: 64,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000, max_replay_stack_depth: 4 },
        legacy_octal_numbers: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
    };
    let nodes: Vec<Spanned<Node>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let problem = error.without_snippet().to_string();
            let problem = problem.lines().next().unwrap_or("it ends too early");
            let mut mistake = Mistake::whole_file(
                shown(&format!("the YAML cannot be read: {problem}")),
                "correct the YAML",
            );
            mistake.line = line;
            ConfigError {
                mistakes: vec![mistake],
            }
        })?;
    Ok(nodes
        .into_iter()
        .filter(|node| !matches!(node.value, Node::Scalar(Value::Null)))
        .map(Document::new)
        .collect())
}

impl Document {
    fn new(node: Spanned<Node>) -> Self {
        let mut lines = BTreeMap::new();
        lines.insert(String::new(), node.referenced.line());
        let value = node.value.flatten("", &mut lines);
        Self {
            value,
            lines,
            origin: Origin::File,
        }
    }

    /// Makes a document of an object from the hub's API, without the fields that the API adds.
    pub(super) fn of_hub(object: Value, hub: HubObject) -> Self {
        let mut value = object;
        if let Some(members) = value.as_object_mut() {
            members.remove("status");
            if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
                metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace"));
            }
        }
        Self {
            value,
            lines: BTreeMap::new(),
            origin: Origin::Hub(hub),
        }
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// The string at a JSON pointer; empty if there is none.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub(super) fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub(super) fn generation(&self) -> Generation {
        match &self.origin {
            Origin::File => Generation::of(self.value.get("spec").unwrap_or(&Value::Null)),
            Origin::Hub(object) => object.generation,
        }
    }

    /// Makes a mistake at `path`, with the line of the nearest field that is in the file.
    pub(super) fn mistake(
        &self,
        path: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Mistake {
        let (name, namespace) = (
            self.text("/metadata/name"),
            self.text("/metadata/namespace"),
        );
        let object = match (name, namespace) {
            ("", _) => self.kind().to_owned(),
            (name, "") => format!("{}/{name}", self.kind()),
            (name, namespace) => format!("{}/{namespace}/{name}", self.kind()),
        };
        Mistake {
            object: shown(&object),
            path: shown(path),
            line: self.line(path),
            problem: shown(&problem.into()),
            fix: fix.into(),
        }
    }

    /// The line of the nearest field around `path` that is in the file; 0 for an object of the hub.
    pub(super) fn line(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            if path.is_empty() {
                return 0;
            }
            path = path
                .rfind(['.', '['])
                .and_then(|end| path.get(..end))
                .unwrap_or_default();
        }
    }
}

/// Shortens text of the file for a message: one line, and truncated if it is long.
fn shown(text: &str) -> String {
    foreign_text::one_line(text, MAX_SHOWN)
}
