//! Writes objects as YAML that a person reads and applies.

use serde_json::Value;

/// An object cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("writing YAML: {0}")]
pub(crate) struct YamlError(serde_saphyr::ser::Error);

/// Writes an object as one YAML document, with text of several lines as a literal block.
///
/// # Errors
/// [`YamlError`].
pub(crate) fn yaml_document(object: &Value) -> Result<String, YamlError> {
    // Names and expressions stay on their line, however long they are.
    let options =
        serde_saphyr::ser_options! { compact_list_indent: false, folded_wrap_chars: 4096 };
    serde_saphyr::to_string_with_options(object, options).map_err(YamlError)
}
