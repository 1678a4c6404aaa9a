//! An AuthenticationConfiguration file as kube-apiserver loads it: YAML or JSON, strictly.

mod document;
mod fault;
mod field_names;
mod other_kind;
mod schema;
mod typed;
mod version;

pub use fault::{FieldFault, LoadFault, Refusal, Undetermined};
pub use keyferry_go_formats::yaml::Position;
pub use schema::{
    Anonymous, AnonymousCondition, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ExtraMapping, Issuer, JwtAuthenticator, PrefixedClaimOrExpression,
    UserValidationRule,
};
pub use version::ApiVersion;

use std::collections::BTreeMap;

use crate::Minor;
use version::FileKind;

/// The longest file that is read, in bytes. A ConfigMap or Secret cannot be longer either.
pub const MAX_BYTES: usize = 1 << 20;

/// A file that the apiserver would load. [`crate::validate`] decides whether it is valid.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The content of the file.
    pub configuration: AuthenticationConfiguration,
    /// The API version that the file is written in.
    pub version: ApiVersion,
    /// The position of every field, by its path, like `jwt[0].issuer.url`.
    pub positions: BTreeMap<String, Position>,
    /// Whether more YAML documents follow, which the apiserver ignores.
    pub second_document: bool,
}

/// Loads a file as an apiserver of that minor does.
///
/// # Errors
/// [`LoadFault::Refused`] in the apiserver's words, or [`LoadFault::Undetermined`].
pub fn load_configuration(bytes: &[u8], minor: Minor) -> Result<Loaded, LoadFault> {
    let document = document::read_first_document(bytes, minor)?;
    let version = match version::find_version(&document.value, bytes, minor)? {
        FileKind::Authentication(version) => version,
        FileKind::Other(kind) => {
            let duplicates = document
                .duplicates
                .as_ref()
                .map(|fault| fault.message.as_str());
            return Err(other_kind::refuse_kind(kind, &document.value, duplicates, minor).into());
        }
    };
    let typed = typed::read_typed(&document.value, version, minor)?;
    let mut fields: Vec<FieldFault> = document
        .duplicates
        .into_iter()
        .chain(typed.strict)
        .collect();
    if let Some(first) = fields.first() {
        let texts: Vec<&str> = fields.iter().map(|field| field.message.as_str()).collect();
        let message = format!("strict decoding error: {}", texts.join(", "));
        let refusal = Refusal::exact(first.code, message);
        for field in &mut fields {
            field.position = document.positions.get(&field.path).copied();
        }
        return Err(Refusal { fields, ..refusal }.into());
    }
    Ok(Loaded {
        configuration: typed.configuration,
        version,
        positions: document.positions,
        second_document: document.second_document,
    })
}

#[cfg(test)]
mod tests;
