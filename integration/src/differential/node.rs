//! A tree that can be written as JSON or YAML. It can contain what neither library would write:
//! duplicate keys and raw scalars.

use std::fmt::Write as _;

/// A JSON or YAML value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A scalar that is written as it is: numbers, `true`, `null`, or any scalar of YAML.
    Raw(String),
    /// A string, which is quoted.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// Keys in order, duplicates included.
    Map(Vec<(String, Self)>),
}

impl Node {
    pub(crate) fn raw(text: impl Into<String>) -> Self {
        Self::Raw(text.into())
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn texts<T: AsRef<str>>(texts: &[T]) -> Self {
        Self::List(texts.iter().map(|text| Self::text(text.as_ref())).collect())
    }

    pub(crate) fn map<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    /// Adds an entry at the end of a map.
    pub(crate) fn push(&mut self, key: &str, value: Self) {
        if let Self::Map(entries) = self {
            entries.push((key.to_owned(), value));
        }
    }

    /// The first value of the key.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Map(entries) => entries
                .iter_mut()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Replaces the first value of the key, or adds it.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        match self.get_mut(key) {
            Some(place) => *place = value,
            None => self.push(key, value),
        }
    }

    /// Removes every value of the key.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Self::Map(entries) = self {
            entries.retain(|(name, _)| name != key);
        }
    }

    /// The number of nodes, this one included.
    pub(crate) fn count(&self) -> usize {
        1 + match self {
            Self::Raw(_) | Self::Text(_) => 0,
            Self::List(items) => items.iter().map(Self::count).sum(),
            Self::Map(entries) => entries.iter().map(|(_, value)| value.count()).sum(),
        }
    }

    /// The node at a position in reading order, where 0 is this one.
    pub(crate) fn at_mut(&mut self, place: usize) -> Option<&mut Self> {
        let mut left = place;
        self.find(&mut left)
    }

    fn find(&mut self, left: &mut usize) -> Option<&mut Self> {
        if *left == 0 {
            return Some(self);
        }
        *left -= 1;
        match self {
            Self::Raw(_) | Self::Text(_) => None,
            Self::List(items) => items.iter_mut().find_map(|item| item.find(left)),
            Self::Map(entries) => entries.iter_mut().find_map(|(_, value)| value.find(left)),
        }
    }

    /// The tree as compact JSON.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match self {
            Self::Raw(text) => out.push_str(text),
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write_json(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    let _ = write!(out, "{}{}:", if index > 0 { "," } else { "" }, quoted(key));
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// The tree as YAML in block style. Strings are quoted, keys are plain.
    pub(crate) fn yaml(&self) -> String {
        let mut out = String::new();
        self.write_yaml(&mut out, 0);
        out
    }

    fn write_yaml(&self, out: &mut String, indent: usize) {
        let pad = " ".repeat(indent);
        match self {
            Self::Map(entries) if !entries.is_empty() => {
                for (key, value) in entries {
                    let _ = write!(out, "{pad}{key}:");
                    value.write_yaml_value(out, indent);
                }
            }
            Self::List(items) if !items.is_empty() => {
                for item in items {
                    let _ = write!(out, "{pad}-");
                    item.write_yaml_value(out, indent);
                }
            }
            _ => {
                let _ = writeln!(out, "{pad}{}", self.json());
            }
        }
    }

    fn write_yaml_value(&self, out: &mut String, indent: usize) {
        match self {
            Self::Map(entries) if !entries.is_empty() => {
                out.push('\n');
                self.write_yaml(out, indent + 2);
            }
            Self::List(items) if !items.is_empty() => {
                out.push('\n');
                self.write_yaml(out, indent + 2);
            }
            _ => {
                let _ = writeln!(out, " {}", self.json());
            }
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn both_forms() {
        let mut node = Node::map([
            ("a", Node::texts(&["x", "\"y"])),
            ("b", Node::raw("1e3")),
            ("c", Node::Map(Vec::new())),
        ]);
        node.push("a", Node::map([("d", Node::raw("~"))]));
        assert_eq!(
            node.json(),
            r#"{"a":["x","\"y"],"b":1e3,"c":{},"a":{"d":~}}"#
        );
        assert_eq!(
            node.yaml(),
            "a:\n  - \"x\"\n  - \"\\\"y\"\nb: 1e3\nc: {}\na:\n  d: ~\n"
        );
        assert_eq!(node.count(), 8);
        assert_eq!(node.at_mut(2), Some(&mut Node::text("x")));
        assert_eq!(node.at_mut(7), Some(&mut Node::raw("~")));
        assert_eq!(node.at_mut(8), None);
    }
}
