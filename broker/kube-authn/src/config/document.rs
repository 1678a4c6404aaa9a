//! Decodes bytes to one JSON value, as the apiserver's codec does for JSON and YAML.

use std::collections::BTreeMap;

use keyferry_go_formats::json::{Json, JsonFault, MAX_DEPTH};
use keyferry_go_formats::yaml::{self, Fault, Limit, Position};

use super::{FieldFault, LoadFault, MAX_BYTES, Refusal, Undetermined};
use crate::{Code, Minor};

/// The first document of a file.
pub(super) struct Document {
    pub(super) value: Json,
    /// The position of every field, by its path.
    pub(super) positions: BTreeMap<String, Position>,
    /// The strict error about the YAML: one text for all duplicate keys.
    pub(super) duplicates: Option<FieldFault>,
    pub(super) second_document: bool,
}

/// Reads the first document of a file.
pub(super) fn read_first_document(bytes: &[u8], minor: Minor) -> Result<Document, LoadFault> {
    if bytes.is_empty() {
        return Err(Refusal::exact(Code::EmptyFile, "empty config data").into());
    }
    if bytes.len() > MAX_BYTES {
        return Err(Undetermined::new(
            Code::TooLarge,
            format!("the file is longer than {MAX_BYTES} bytes"),
        )
        .into());
    }
    if String::from_utf8_lossy(bytes).trim_start().starts_with('{') {
        read_json(bytes)
    } else {
        read_yaml(bytes, minor)
    }
}

fn read_json(bytes: &[u8]) -> Result<Document, LoadFault> {
    let value = Json::parse(bytes).map_err(|fault| match fault {
        // The codec reads version and kind first, so broken JSON fails there.
        JsonFault::Syntax(reason) => LoadFault::from(Refusal::exact(
            Code::NotJson,
            format!("couldn't get version/kind; json parse error: {reason}"),
        )),
    })?;
    if value.nests_below(MAX_DEPTH) {
        return Err(too_deep());
    }
    // JSON is also YAML, so the YAML reader can give the positions.
    let positions = yaml::read(bytes)
        .map(|document| document.positions)
        .unwrap_or_default();
    Ok(Document {
        value,
        positions,
        duplicates: None,
        second_document: false,
    })
}

fn read_yaml(bytes: &[u8], minor: Minor) -> Result<Document, LoadFault> {
    let document = yaml::read(bytes).map_err(|fault| match fault {
        Fault::Refused {
            mut message,
            exact,
            line,
        } => {
            // The YAML library of 1.30 begins this message with a capital letter.
            if minor == Minor::V1_30 && message.starts_with("unsupported map key") {
                message.replace_range(..1, "U");
            }
            LoadFault::from(Refusal {
                code: Code::NotYaml,
                message,
                exact,
                line,
                fields: Vec::new(),
            })
        }
        Fault::Undetermined(Limit::Depth) => too_deep(),
        Fault::Undetermined(Limit::Size) => Undetermined::new(
            Code::TooLarge,
            "the file has too many nodes, or its aliases expand to too much text",
        )
        .into(),
        Fault::Undetermined(Limit::Unusual(what)) => {
            Undetermined::new(Code::UnusualYaml, format!("the file has {what}")).into()
        }
    })?;
    // The text names the line of each key. It is one error, and has no path.
    let duplicates = document
        .duplicates
        .map(|text| FieldFault::new(Code::DuplicateField, String::new(), text));
    Ok(Document {
        value: document.value,
        positions: document.positions,
        duplicates,
        second_document: document.more,
    })
}

fn too_deep() -> LoadFault {
    Undetermined::new(Code::TooDeep, "the file nests too deep to be read here").into()
}
