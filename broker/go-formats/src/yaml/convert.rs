//! Converts values to JSON as `sigs.k8s.io/yaml` does: keys become strings, which not all can.

use std::collections::BTreeMap;

use super::source::Mark;
use super::value::{Content, Key, Map, Plain, Value, print_float, print_plain, print_whole};
use super::{Fault, Limit, Position};
use crate::json::Json;

/// The longest path whose position is kept. The paths of fields are shorter.
const MAX_PATH: usize = 256;

/// Converts a document, and collects the positions of its fields.
pub(super) fn convert_document(value: &Value) -> Result<(Json, BTreeMap<String, Position>), Fault> {
    let mut converter = Converter {
        positions: BTreeMap::new(),
        path: String::new(),
        refused: Vec::new(),
        twice: false,
    };
    let json = converter.convert_value(value);
    if let Some((message, certain)) = converter.refused.first() {
        // Go walks maps in random order, so it may name any of several such keys.
        let exact = *certain && converter.refused.len() == 1;
        return Err(Fault::Refused {
            message: message.clone(),
            exact,
            line: None,
        });
    }
    if let Some(number) = no_number(&json) {
        return Err(Fault::Refused {
            message: format!("json: unsupported value: {number}"),
            exact: true,
            line: None,
        });
    }
    if converter.twice {
        return Err(Fault::Undetermined(Limit::Unusual(
            "two keys of one map that are written differently and mean the same",
        )));
    }
    Ok((json, converter.positions))
}

struct Converter {
    positions: BTreeMap<String, Position>,
    path: String,
    /// Errors about keys that JSON cannot have, and whether each text is certain.
    refused: Vec<(String, bool)>,
    /// Whether two keys were converted to the same string.
    twice: bool,
}

impl Converter {
    fn convert_value(&mut self, value: &Value) -> Json {
        match &value.content {
            Content::Plain(Plain::Null) => Json::Null,
            Content::Plain(Plain::Bool(value)) => Json::Bool(*value),
            Content::Plain(Plain::Integer(value)) => Json::Number(value.to_string()),
            Content::Plain(Plain::Unsigned(value)) => Json::Number(value.to_string()),
            Content::Plain(Plain::Float(value)) => Json::Number(print_float(&format!("{value:e}"))),
            Content::Plain(Plain::Text(text)) => Json::Text(text.clone()),
            Content::List(items) => {
                let mut out = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    out.push(self.convert_step(&format!("[{index}]"), item.start, item));
                }
                Json::List(out)
            }
            Content::Map(members) => self.convert_map(members),
        }
    }

    fn convert_map(&mut self, members: &Map) -> Json {
        let mut out: BTreeMap<String, Json> = BTreeMap::new();
        for (key, (start, value)) in members {
            let Some(name) = self.key_name(key, value) else {
                continue;
            };
            let step = if self.path.is_empty() {
                name.clone()
            } else {
                format!(".{name}")
            };
            let json = self.convert_step(&step, *start, value);
            self.twice |= out.insert(name, json).is_some();
        }
        Json::Object(out.into_iter().collect())
    }

    /// Converts a value one step further down.
    fn convert_step(&mut self, step: &str, start: Mark, value: &Value) -> Json {
        let length = self.path.len();
        if length + step.len() > MAX_PATH {
            // A path of this length names no field, so its positions are not collected.
            let positions = std::mem::take(&mut self.positions);
            let json = self.convert_value(value);
            self.positions = positions;
            return json;
        }
        self.path.push_str(step);
        let position = Position {
            line: start.line as u64 + 1,
            column: start.column as u64 + 1,
        };
        self.positions.insert(self.path.clone(), position);
        let json = self.convert_value(value);
        self.path.truncate(length);
        json
    }

    fn key_name(&mut self, key: &Key, value: &Value) -> Option<String> {
        match &key.value {
            Plain::Text(text) => Some(text.clone()),
            Plain::Bool(value) => Some(value.to_string()),
            Plain::Integer(value) => Some(value.to_string()),
            Plain::Float(value) => Some(
                match print_float(&format!("{:e}", *value as f32)).as_str() {
                    "+Inf" => ".inf".to_owned(),
                    "-Inf" => "-.inf".to_owned(),
                    "NaN" => ".nan".to_owned(),
                    other => other.to_owned(),
                },
            ),
            unfit @ (Plain::Unsigned(_) | Plain::Null) => {
                let kind = if *unfit == Plain::Null {
                    "%!s(<nil>)"
                } else {
                    "uint64"
                };
                let mut key = String::new();
                print_plain(unfit, &mut key);
                // Two are enough: the first is the error to report, and a second shows that Go's
                // choice is random.
                if self.refused.len() < 2 {
                    let (value, certain) = print_whole(&value.content);
                    self.refused.push((
                        format!("unsupported map key of type: {kind}, key: {key}, value: {value}"),
                        certain,
                    ));
                }
                None
            }
        }
    }
}

/// Returns the first number that JSON cannot represent.
fn no_number(json: &Json) -> Option<&str> {
    match json {
        Json::Number(number) if matches!(number.as_str(), "NaN" | "+Inf" | "-Inf") => Some(number),
        Json::List(items) => items.iter().find_map(no_number),
        Json::Object(members) => members.iter().find_map(|(_, member)| no_number(member)),
        _ => None,
    }
}
