//! An AuthenticationConfiguration file as kube-apiserver loads it: YAML or JSON, strictly.

mod document;
mod fault;
mod schema;
mod typed;
mod version;

pub use fault::{LoadFault, Refusal, Undetermined};
pub use schema::{
    Anonymous, AnonymousCondition, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ExtraMapping, Issuer, JwtAuthenticator, PrefixedClaimOrExpression,
    UserValidationRule,
};
pub use version::ApiVersion;

use std::collections::BTreeMap;

use crate::Minor;

/// The longest file that is read, in bytes. A ConfigMap or Secret cannot be longer either.
pub const MAX_BYTES: usize = 1 << 20;

/// A file that the apiserver would load. [`crate::validate`] decides whether it is valid.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The content of the file.
    pub configuration: AuthenticationConfiguration,
    /// The API version that the file is written in.
    pub version: ApiVersion,
    /// The line of every field, by its path, like `jwt[0].issuer.url`.
    pub lines: BTreeMap<String, u64>,
    /// Whether more YAML documents follow, which the apiserver ignores.
    pub second_document: bool,
}

/// Loads a file as an apiserver of that minor does.
///
/// # Errors
/// [`LoadFault::Refused`] in the apiserver's words, or [`LoadFault::Undetermined`].
pub fn load(bytes: &[u8], minor: Minor) -> Result<Loaded, LoadFault> {
    let document = document::read(bytes, minor)?;
    let version = version::find(&document.value, bytes, minor)?;
    let typed = typed::read(&document.value, version, minor)?;
    let strict: Vec<(crate::Code, String)> = document
        .duplicates
        .into_iter()
        .chain(typed.strict)
        .collect();
    if let Some((code, _)) = strict.first() {
        let texts: Vec<&str> = strict.iter().map(|(_, text)| text.as_str()).collect();
        return Err(Refusal::exact(
            *code,
            format!("strict decoding error: {}", texts.join(", ")),
        )
        .into());
    }
    Ok(Loaded {
        configuration: typed.configuration,
        version,
        lines: document.lines,
        second_document: document.second_document,
    })
}

#[cfg(test)]
mod tests;
