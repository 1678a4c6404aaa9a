//! A YAML node in JSON's types, with the line of every field.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

/// A YAML node whose children have line numbers.
#[derive(Debug)]
pub(super) enum Node {
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
    Sequence(Vec<Spanned<Self>>),
    Scalar(Value),
}

impl Node {
    /// Converts the node to JSON. Records the line of every field and item below `path` under its
    /// own path; a field's line is that of its key.
    pub(super) fn flatten(self, path: &str, lines: &mut BTreeMap<String, u64>) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::Sequence(items) => Value::Array(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(index, item)| {
                        let path = format!("{path}[{index}]");
                        lines.insert(path.clone(), item.referenced.line());
                        item.value.flatten(&path, lines)
                    })
                    .collect(),
            ),
            Self::Map(members) => Value::Object(
                members
                    .into_iter()
                    .map(|(key, member)| {
                        let path = if path.is_empty() {
                            key.value.clone()
                        } else {
                            format!("{path}.{}", key.value)
                        };
                        lines.insert(path.clone(), key.referenced.line());
                        (key.value, member.value.flatten(&path, lines))
                    })
                    .collect(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
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
