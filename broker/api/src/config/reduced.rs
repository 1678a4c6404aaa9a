//! A TargetCluster or TargetAccess, reduced to what Keyferry reads while it is parsed.
//!
//! Labels, annotations, finalizers, managedFields and ownerReferences can be as long as their
//! writers like, up to 1.5 MiB for each object, and building them takes many times that. They are
//! skipped or hashed during parsing, so that a tenant cannot fill Keyferry's memory with them, not
//! even during a list.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::bounded_value::{BoundedValue, ValueBudget};
use crate::foreign_text;

/// The most memory that the spec or the status of one object may take, in bytes, as
/// [`ValueBudget`] counts them. A CA bundle of the largest size and 15,000 names of namespaces are
/// below it.
pub const MAX_KEPT_BYTES: usize = 1024 * 1024;
/// As [`MAX_KEPT_BYTES`], for the spec of a TargetAccess. A tenant may have hundreds of them, each
/// of which is kept twice: 256 of 850 KiB took 700 MiB. The longest list of callers is below it,
/// with 16 ordinary deliveries.
pub const MAX_ACCESS_SPEC_BYTES: usize = 32 * 1024;
/// The most memory for the audience of a TargetCluster that is too large otherwise.
const MAX_AUDIENCE_BYTES: usize = 4096;
/// The only annotation of Keyferry's objects that has a meaning.
const REQUESTED_AT: &str = "keyferry.dev/requestedAt";

/// The finalizer by which Keyferry keeps a deleted object until what was delivered for it may be
/// removed.
pub const FINALIZER: &str = "keyferry.dev/drain";

/// What decisions need of an object's finalizers. Others may add as many and as long ones as the
/// API accepts, so the texts are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finalizers {
    /// Whether Keyferry's own finalizer is among them.
    pub ours: bool,
    /// A hash of the others in their order; 0 if there are none.
    pub others: u64,
}

/// Whether an object is kept whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectSize {
    /// Its spec and status are kept.
    #[default]
    Kept,
    /// Its spec is too large. Of a TargetCluster only the audience is kept.
    SpecTooLarge,
    /// Its status is too large, and is not kept.
    StatusTooLarge,
}

/// A TargetCluster or TargetAccess of the hub with the metadata that Keyferry reads.
#[derive(Clone, Debug)]
pub struct ReducedObject {
    /// The object without its finalizers.
    pub(super) value: Value,
    pub(super) finalizers: Finalizers,
    pub(super) size: ObjectSize,
    /// Whether it had a member for the content of a Secret or a ConfigMap.
    has_data: bool,
}

impl ReducedObject {
    /// Reduces an object that is in memory already.
    pub fn of(object: &Value) -> Self {
        Self {
            value: object.clone(),
            finalizers: object
                .get("metadata")
                .map(Finalizers::of)
                .unwrap_or_default(),
            size: ObjectSize::Kept,
            has_data: object.get("data").or(object.get("stringData")).is_some(),
        }
    }

    /// Whether it had `data` or `stringData`, as a Secret has. They were skipped.
    pub fn has_data(&self) -> bool {
        self.has_data
    }

    /// Its resourceVersion.
    pub fn version(&self) -> Option<&str> {
        self.value.pointer("/metadata/resourceVersion")?.as_str()
    }

    /// `<namespace>/<name>`, or the name alone, for messages.
    pub fn full_name(&self) -> String {
        let text = |path| self.value.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        match text("/metadata/namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    }

    /// Its `apiVersion` and its kind; empty if they are missing.
    pub fn version_and_kind(&self) -> (&str, &str) {
        let text = |name| self.value.get(name).and_then(Value::as_str);
        (
            text("apiVersion").unwrap_or_default(),
            text("kind").unwrap_or_default(),
        )
    }

    /// Whether it is kept whole.
    pub fn size(&self) -> ObjectSize {
        self.size
    }

    /// States the kind, which some servers omit in the items of a list.
    #[must_use]
    pub fn of_kind(mut self, kind: &str) -> Self {
        self.value["apiVersion"] = json!("keyferry.dev/v1alpha1");
        self.value["kind"] = json!(kind);
        self
    }

    /// The object without its finalizers and most other metadata.
    pub fn into_value(self) -> Value {
        self.value
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parsed {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: KeptMetadata,
    spec: Option<KeptMember>,
    status: Option<KeptMember>,
    data: Option<IgnoredAny>,
    string_data: Option<IgnoredAny>,
}

/// The metadata that Keyferry reads. Everything else is skipped without being stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    finalizers: Option<Finalizers>,
    annotations: Option<KeptAnnotations>,
}

#[derive(Deserialize)]
struct KeptAnnotations {
    #[serde(rename = "keyferry.dev/requestedAt")]
    requested_at: Option<String>,
}

impl KeptMetadata {
    fn into_value(self) -> Value {
        let text = |text: Option<String>| text.map(Value::String);
        let requested = self.annotations.and_then(|kept| kept.requested_at);
        let members = [
            ("name", text(self.name)),
            ("namespace", text(self.namespace)),
            ("uid", text(self.uid)),
            ("resourceVersion", text(self.resource_version)),
            ("generation", self.generation.map(Value::from)),
            ("creationTimestamp", text(self.creation_timestamp)),
            ("deletionTimestamp", text(self.deletion_timestamp)),
            (
                "annotations",
                requested.map(|at| json!({ REQUESTED_AT: requested_at(&at) })),
            ),
        ];
        object_of(members)
    }
}

impl<'de> Deserialize<'de> for ReducedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parsed = Parsed::deserialize(deserializer)?;
        // Only a TargetAccess has a namespace.
        if let (Some(_), Some(spec)) = (&parsed.metadata.namespace, &mut parsed.spec)
            && spec.bytes > MAX_ACCESS_SPEC_BYTES
        {
            spec.is_too_large = true;
            spec.value = json!({});
        }
        let too_large =
            |member: &Option<KeptMember>| member.as_ref().is_some_and(|member| member.is_too_large);
        let size = match (too_large(&parsed.spec), too_large(&parsed.status)) {
            (_, true) => ObjectSize::StatusTooLarge,
            (true, false) => ObjectSize::SpecTooLarge,
            (false, false) => ObjectSize::Kept,
        };
        let finalizers = parsed.metadata.finalizers.take().unwrap_or_default();
        let value = |member: Option<KeptMember>| member.map(|member| member.value);
        let members = [
            ("apiVersion", parsed.api_version.map(Value::String)),
            ("kind", parsed.kind.map(Value::String)),
            ("metadata", Some(parsed.metadata.into_value())),
            ("spec", value(parsed.spec)),
            ("status", value(parsed.status)),
        ];
        Ok(Self {
            value: object_of(members),
            finalizers,
            size,
            has_data: parsed.data.is_some() || parsed.string_data.is_some(),
        })
    }
}

fn object_of<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let present = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

impl Finalizers {
    pub(super) fn of(metadata: &Value) -> Self {
        let listed = metadata
            .get("finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let mut found = FinalizerHash::default();
        listed.for_each(|finalizer| found.add(finalizer));
        found.finalizers
    }
}

impl<'de> Deserialize<'de> for Finalizers {
    /// Hashes the texts one by one, in their order.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Listed;
        impl<'de> Visitor<'de> for Listed {
            type Value = Finalizers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of finalizers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Finalizers, A::Error> {
                let mut found = FinalizerHash::default();
                while let Some(finalizer) = all.next_element::<String>()? {
                    found.add(&finalizer);
                }
                Ok(found.finalizers)
            }
        }
        deserializer.deserialize_seq(Listed)
    }
}

/// The finalizers of an object, added one by one.
#[derive(Default)]
pub(super) struct FinalizerHash {
    pub(super) finalizers: Finalizers,
    hasher: DefaultHasher,
}

impl FinalizerHash {
    pub(super) fn add(&mut self, finalizer: &str) {
        if finalizer == FINALIZER {
            self.finalizers.ours = true;
        } else {
            finalizer.hash(&mut self.hasher);
            // The set bit distinguishes a hash from no finalizers.
            self.finalizers.others = self.hasher.finish() | 1;
        }
    }
}

/// Shortens the annotation `keyferry.dev/requestedAt`: it can have 256 KiB, and is written into the
/// status.
pub(super) fn requested_at(text: &str) -> String {
    // Cut first, so that `one_line` adds no truncation mark: a client may wait for its own text to
    // be echoed.
    foreign_text::one_line(&text.chars().take(128).collect::<String>(), 128)
}

/// The spec or the status, if it is not too large. Of one that is, only `audience` is kept.
struct KeptMember {
    value: Value,
    /// What it takes.
    bytes: usize,
    is_too_large: bool,
}

impl<'de> Deserialize<'de> for KeptMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = KeptMember;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<KeptMember, A::Error> {
                let (mut members, mut budget) = (Map::new(), ValueBudget::of(MAX_KEPT_BYTES));
                let (mut audience, mut of_audience) = (None, ValueBudget::of(MAX_AUDIENCE_BYTES));
                while let Some(key) = all.next_key::<String>()? {
                    if key == "audience" {
                        audience = Some(all.next_value_seed(BoundedValue(&mut of_audience))?);
                    } else if budget.take(key.len()) {
                        let value = all.next_value_seed(BoundedValue(&mut budget))?;
                        members.insert(key, value);
                    } else {
                        all.next_value::<IgnoredAny>()?;
                    }
                }
                let is_too_large = budget.is_exceeded() || of_audience.is_exceeded();
                if is_too_large {
                    members.clear();
                }
                if let Some(audience) = audience {
                    members.insert("audience".to_owned(), audience);
                }
                Ok(KeptMember {
                    value: Value::Object(members),
                    bytes: MAX_KEPT_BYTES - budget.left(),
                    is_too_large,
                })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests;
