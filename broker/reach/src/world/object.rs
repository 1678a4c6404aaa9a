//! What is read of objects of the hub.

use std::collections::{BTreeMap, BTreeSet};

use keyferry_api::pairing::AudiencePairs;
use serde_json::Value;

/// A Pod, as far as its tokens matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The ServiceAccount that it runs as.
    pub account: String,
    /// The node that it runs on.
    pub node: Option<String>,
    /// `status.phase`.
    pub phase: Option<String>,
    /// The audiences of the tokens that it mounts, `None` for the hub's own. `None` as a whole if
    /// its spec was not read.
    pub tokens: Option<Vec<Option<String>>>,
}

/// A Secret, without its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// Its type; `None` if only metadata was read.
    pub secret_type: Option<String>,
    /// The ServiceAccount whose token the hub writes into it.
    pub account: Option<String>,
    /// Whether the hub no longer accepts its token.
    pub is_invalidated: bool,
    /// The TargetAccess that controls it.
    pub access: Option<String>,
}

impl Pod {
    pub(super) fn of(object: &Value) -> Self {
        let (namespace, name) = key(object);
        let text = |pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Self {
            namespace,
            name,
            account: text("/spec/serviceAccountName").unwrap_or_else(|| "default".to_owned()),
            node: text("/spec/nodeName"),
            phase: text("/status/phase"),
            tokens: object.get("spec").map(mounted_audiences),
        }
    }
}

fn mounted_audiences(spec: &Value) -> Vec<Option<String>> {
    let lists = |value: &Value, name: &str| {
        let items = value.get(name).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    let sources = lists(spec, "volumes")
        .iter()
        .filter_map(|volume| volume.get("projected"))
        .flat_map(|projected| lists(projected, "sources"))
        .collect::<Vec<Value>>();
    sources
        .iter()
        .filter_map(|source| source.get("serviceAccountToken"))
        .map(|token| {
            let audience = token.get("audience").and_then(Value::as_str);
            audience
                .filter(|audience| !audience.is_empty())
                .map(str::to_owned)
        })
        .collect()
}

impl Secret {
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let metadata = object.get("metadata");
        let of_map = |map: &str, name: &str| metadata.and_then(|it| it.get(map)?.get(name));
        let owners = metadata
            .and_then(|it| it.get("ownerReferences")?.as_array())
            .cloned()
            .unwrap_or_default();
        let owner = owners.iter().find(|owner| {
            owner["controller"] == true
                && owner["kind"] == "TargetAccess"
                && owner["apiVersion"]
                    .as_str()
                    .is_some_and(|version| version.starts_with("keyferry.dev/"))
        });
        Self {
            secret_type: text(object.get("type")),
            account: text(of_map("annotations", "kubernetes.io/service-account.name")),
            is_invalidated: of_map("labels", "kubernetes.io/legacy-token-invalid-since").is_some(),
            access: text(owner.and_then(|owner| owner.get("name"))),
        }
    }
}

/// The namespace, empty if there is none, and the name.
pub(super) fn key(object: &Value) -> (String, String) {
    let text = |name: &str| {
        let text = object.get("metadata").and_then(|it| it.get(name)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("namespace"), text("name"))
}

pub(super) fn full_name(object: &Value) -> String {
    match key(object) {
        (namespace, name) if namespace.is_empty() => name,
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

pub(super) fn pairs(object: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let pairs = object.get("pairs").cloned().unwrap_or_default();
    serde_json::from_value::<AudiencePairs>(serde_json::json!({ "pairs": pairs }))
        .map(|read| read.pairs)
        .unwrap_or_default()
}
