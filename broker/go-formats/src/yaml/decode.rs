//! Decodes nodes to values: expands aliases and merge keys, and finds duplicate keys.

use std::collections::HashSet;

use super::parser::{Content as NodeContent, Id, MAX_NODES, Node, Tree};
use super::resolve::{MERGE_TAG, resolve_scalar};
use super::source::Mark;
use super::value::{Content, Key, Map, Plain, Value, print_plain, print_whole};
use super::{Fault, Limit};

/// The deepest nesting of a document with its aliases expanded. JSON that is deeper is not read
/// here either.
const MAX_LEVELS: usize = crate::json::MAX_DEPTH;
/// The most text that is read, with aliases expanded. A file is at most a quarter of it.
const MAX_TEXT: usize = 4 << 20;
/// The most text about duplicate keys that is written.
const MAX_COMPLAINTS: usize = 1 << 20;

/// A document's value, and the strict errors about it.
pub(super) struct Decoded {
    pub(super) value: Value,
    pub(super) duplicates: Option<String>,
}

/// Decodes a document.
pub(super) fn decode_tree(tree: &Tree) -> Result<Decoded, Fault> {
    let Some(root) = tree.root else {
        return Ok(Decoded {
            value: Value {
                start: Mark::default(),
                content: Content::Plain(Plain::Null),
            },
            duplicates: None,
        });
    };
    let mut decoder = Decoder {
        tree,
        open: HashSet::new(),
        decoded: 1,
        aliased: 0,
        depth: 0,
        level: 0,
        text: 0,
        keys: 0,
        duplicates: String::new(),
    };
    let value = decoder.decode_value(root)?;
    let duplicates = (!decoder.duplicates.is_empty())
        .then(|| format!("yaml: unmarshal errors:{}", decoder.duplicates));
    Ok(Decoded { value, duplicates })
}

struct Decoder<'a> {
    tree: &'a Tree,
    /// The aliases that are being expanded.
    open: HashSet<Id>,
    /// The number of decoded nodes, the document included.
    decoded: usize,
    /// The number of those inside of an alias.
    aliased: usize,
    /// The number of aliases that are being expanded, one inside the other.
    depth: usize,
    level: usize,
    text: usize,
    keys: usize,
    duplicates: String,
}

/// Returns the share of all decoded nodes that may come from aliases.
fn allowed_ratio(decoded: usize) -> f64 {
    const LOW_NODE_COUNT: usize = 400_000;
    const HIGH_NODE_COUNT: usize = 4_000_000;
    match decoded {
        0..=LOW_NODE_COUNT => 0.99,
        HIGH_NODE_COUNT.. => 0.10,
        between => {
            0.99 - 0.89
                * ((between - LOW_NODE_COUNT) as f64 / (HIGH_NODE_COUNT - LOW_NODE_COUNT) as f64)
        }
    }
}

impl<'a> Decoder<'a> {
    fn node(&self, id: Id) -> Result<&'a Node, Fault> {
        self.tree
            .nodes
            .get(id)
            .ok_or(Fault::Undetermined(Limit::Size))
    }

    /// Counts one node, as the library does to stop aliases that multiply.
    fn count_node(&mut self) -> Result<(), Fault> {
        self.decoded += 1;
        if self.depth > 0 {
            self.aliased += 1;
        }
        let many = self.aliased > 100 && self.decoded > 1000;
        if many && self.aliased as f64 / self.decoded as f64 > allowed_ratio(self.decoded) {
            return Err(Fault::refused("document contains excessive aliasing"));
        }
        if self.decoded > MAX_NODES {
            return Err(Fault::Undetermined(Limit::Size));
        }
        Ok(())
    }

    fn decode_value(&mut self, id: Id) -> Result<Value, Fault> {
        self.count_node()?;
        self.enter_level()?;
        let node = self.node(id)?;
        let content = match &node.content {
            NodeContent::Alias { name, target } => {
                self.expand_alias(id, name, *target, Self::decode_value)?
                    .content
            }
            NodeContent::Scalar(scalar) => {
                self.text += scalar.text.len();
                if self.text > MAX_TEXT {
                    return Err(Fault::Undetermined(Limit::Size));
                }
                Content::Plain(resolve_scalar(scalar)?)
            }
            NodeContent::Sequence(items) => Content::List(
                items
                    .iter()
                    .map(|item| self.decode_value(*item))
                    .collect::<Result<_, _>>()?,
            ),
            NodeContent::Mapping(members) => {
                let mut map = Map::new();
                self.decode_members(members, &mut map)?;
                Content::Map(map)
            }
        };
        self.level -= 1;
        Ok(Value {
            start: node.start,
            content,
        })
    }

    /// Enters the next level. Aliases and merge keys create more levels than the file has.
    fn enter_level(&mut self) -> Result<(), Fault> {
        self.level += 1;
        if self.level > MAX_LEVELS {
            Err(Fault::Undetermined(Limit::Depth))
        } else {
            Ok(())
        }
    }

    /// Expands an alias: reads its target.
    fn expand_alias<T>(
        &mut self,
        alias: Id,
        name: &str,
        target: Id,
        read: impl FnOnce(&mut Self, Id) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if !self.open.insert(alias) {
            return Err(Fault::refused(format!(
                "anchor '{name}' value contains itself"
            )));
        }
        self.depth += 1;
        let read = read(self, target)?;
        self.depth -= 1;
        self.open.remove(&alias);
        Ok(read)
    }

    fn decode_members(&mut self, members: &[(Id, Id)], map: &mut Map) -> Result<(), Fault> {
        for (key, value) in members {
            if self.is_merge(*key)? {
                self.merge_members(*value, map)?;
                continue;
            }
            let start = self.node(*key)?.start;
            let key = match self.decode_value(*key)?.content {
                Content::Plain(value) => Key {
                    value,
                    serial: self.keys,
                },
                other => {
                    let (shown, exact) = print_whole(&other);
                    return Err(Fault::Refused {
                        message: format!("yaml: invalid map key: {shown}"),
                        exact,
                        line: Some(start.line as u64 + 1),
                    });
                }
            };
            self.keys += 1;
            let value = self.decode_value(*value)?;
            if map.contains_key(&key) {
                self.add_duplicate(value.start.line, &key)?;
            }
            map.insert(key, (start, value));
        }
        Ok(())
    }

    fn add_duplicate(&mut self, line: usize, key: &Key) -> Result<(), Fault> {
        let mut shown = String::new();
        print_plain(&key.value, &mut shown);
        self.duplicates.push_str(&format!(
            "\n  line {}: key {shown} already set in map",
            line + 1
        ));
        if self.duplicates.len() > MAX_COMPLAINTS {
            return Err(Fault::Undetermined(Limit::Size));
        }
        Ok(())
    }

    fn is_merge(&self, key: Id) -> Result<bool, Fault> {
        Ok(match &self.node(key)?.content {
            NodeContent::Scalar(scalar) => {
                scalar.text == "<<" && (scalar.implicit || scalar.tag == MERGE_TAG)
            }
            _ => false,
        })
    }

    /// Adds the members of other maps to this one.
    fn merge_members(&mut self, id: Id, map: &mut Map) -> Result<(), Fault> {
        if let NodeContent::Sequence(items) = &self.node(id)?.content {
            return items
                .iter()
                .rev()
                .try_for_each(|item| self.merge_one(*item, map));
        }
        self.merge_one(id, map)
    }

    fn merge_one(&mut self, id: Id, map: &mut Map) -> Result<(), Fault> {
        self.enter_level()?;
        let no_map = || Fault::refused("map merge requires map or sequence of maps as the value");
        match &self.node(id)?.content {
            NodeContent::Mapping(members) => {
                self.count_node()?;
                self.decode_members(members, map)?;
            }
            NodeContent::Alias { name, target } => {
                let NodeContent::Mapping(members) = &self.node(*target)?.content else {
                    return Err(no_map());
                };
                self.count_node()?;
                self.expand_alias(id, name, *target, |decoder, _| {
                    decoder.count_node()?;
                    decoder.decode_members(members, map)
                })?;
            }
            _ => return Err(no_map()),
        }
        self.level -= 1;
        Ok(())
    }
}
