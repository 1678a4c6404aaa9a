//! Writes objects as YAML that a person reads and applies, and results as YAML for programs.

use keyferry_api::foreign_text;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

/// An object cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("writing YAML: {0}")]
pub(crate) struct YamlError(String);

/// Names and expressions stay on their line, however long they are.
const MAX_LINE_CHARS: usize = 4096;

/// Writes an object as one YAML document, with text of several lines as a literal block.
///
/// # Errors
/// [`YamlError`].
pub(crate) fn yaml_document(object: &Value) -> Result<String, YamlError> {
    let options = serde_saphyr::ser_options! { compact_list_indent: false, folded_wrap_chars: MAX_LINE_CHARS };
    serde_saphyr::to_string_with_options(object, options)
        .map_err(|error| YamlError(error.to_string()))
}

/// Writes a value as the YAML of its JSON document. Each text is on one line, and characters that
/// could mislead a person at a terminal are escaped, which changes no value.
///
/// # Errors
/// [`YamlError`].
pub(crate) fn yaml_of_document(value: &impl Serialize) -> Result<String, YamlError> {
    let options =
        serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: false };
    let document = serde_json::to_value(value).map_err(|error| YamlError(error.to_string()))?;
    let text = serde_saphyr::to_string_with_options(&Document(&document), options)
        .map_err(|error| YamlError(error.to_string()))?;
    Ok(foreign_text::escape_yaml(&text))
}

/// A JSON document whose texts with hidden characters are quoted, so that these can be escaped.
struct Document<'a>(&'a Value);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) => Text(text).serialize(serializer),
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Self(item))?;
                }
                list.end()
            }
            Value::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, member) in members {
                    map.serialize_entry(&Text(name), &Self(member))?;
                }
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}

struct Text<'a>(&'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if foreign_text::misleads(self.0) {
            DoubleQuoted(self.0).serialize(serializer)
        } else {
            serializer.serialize_str(self.0)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn the_yaml_of_a_document_has_its_values() {
        let document = json!({
            "schema": "keyferry.dev/whoami/v1", "none": null, "empty": {}, "items": [],
            "rows": [{ "name": "a", "ok": true, "count": 3 }, { "name": "yes" }],
            "text": "fix: none", "number": "1.20", "quoted": "a\\b\"c'",
        });
        let printed = yaml_of_document(&document).unwrap();
        assert_eq!(read(&printed), document, "{printed}");
        assert!(
            printed.contains("schema: keyferry.dev/whoami/v1\n"),
            "{printed}"
        );
    }

    #[test]
    fn a_text_of_others_prints_no_line_of_its_own() {
        let hostile = "x\nfix: run this\r\u{85}\u{2028}\u{202e}y\u{e0041}\u{1b}[31m\u{ad}";
        let document = json!({ "detail": hostile, "a": [hostile], hostile: hostile });
        let printed = yaml_of_document(&document).unwrap();
        assert_eq!(read(&printed), document, "{printed}");
        assert!(
            printed.lines().all(|line| !line.trim().starts_with("fix:")),
            "{printed}"
        );
        assert!(
            printed
                .chars()
                .all(|one| one == '\n' || one.is_ascii_graphic() || one == ' '),
            "{printed:?}"
        );
    }

    #[test]
    fn every_character_is_kept() {
        let characters = (0..=0xffff_u32).chain(0xe_0000..=0xe_0fff);
        let texts: Vec<String> = characters
            .filter_map(char::from_u32)
            .flat_map(|one| [format!("a{one}b"), one.to_string()])
            .collect();
        let printed = yaml_of_document(&texts).unwrap();
        assert!(read(&printed) == json!(texts));
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), texts.len());
        assert!(!lines.iter().any(|line| foreign_text::misleads(line)));
    }
}
