//! Predicts what a target does with a token if it runs with a given file.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;

use crate::config::{self, LoadFault};
use crate::token::Token;
use crate::validate::{Invalid, validate_configuration};
use crate::verify::{Keys, Union, User, verify_token};
use crate::{Code, Minor};

/// The predicted decision of a target about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prediction {
    /// The target accepts the token. It adds `system:authenticated` to the user's groups.
    Accepted(User),
    /// The target refuses the token.
    Rejected(Code, String),
    /// The target refuses the file.
    Refused(Code, String),
    /// The decision cannot be predicted.
    Undetermined(Code, String),
}

/// Where the target fetches the discovery document of one entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `issuer.url`.
    pub issuer: String,
    /// The discovery document's URL.
    pub discovery_url: String,
    /// `issuer.certificateAuthority`; `None` if the host's root certificates apply.
    pub certificate_authority: Option<String>,
}

/// Finds the entry of the file for an issuer, or the only entry if none matches.
#[must_use]
pub fn entry_for(bytes: &[u8], issuer: Option<&str>) -> Option<Entry> {
    let loaded = Minor::ALL
        .into_iter()
        .rev()
        .find_map(|minor| config::load_configuration(bytes, minor).ok())?;
    let entries = &loaded.configuration.jwt;
    let matching_entry = entries
        .iter()
        .find(|entry| Some(entry.issuer.url.as_str()) == issuer);
    let only = || {
        if let [only] = entries.as_slice() {
            Some(only)
        } else {
            None
        }
    };
    let found = &matching_entry.or_else(only)?.issuer;
    Some(Entry {
        issuer: found.url.clone(),
        discovery_url: if found.discovery_url.is_empty() {
            well_known(&found.url)
        } else {
            found.discovery_url.clone()
        },
        certificate_authority: Some(found.certificate_authority.clone())
            .filter(|pem| !pem.is_empty()),
    })
}

/// Lists every `issuer.url` of a file, in order; empty if the file cannot be read.
#[must_use]
pub fn issuers_of(bytes: &[u8]) -> Vec<String> {
    let loaded = Minor::ALL
        .into_iter()
        .rev()
        .find_map(|minor| config::load_configuration(bytes, minor).ok());
    loaded
        .map(|loaded| {
            loaded
                .configuration
                .jwt
                .into_iter()
                .map(|entry| entry.issuer.url)
                .collect()
        })
        .unwrap_or_default()
}

/// Lists the audiences of the entry of an issuer, in order; empty if the file cannot be read.
#[must_use]
pub fn audiences_of(bytes: &[u8], issuer: &str) -> Vec<String> {
    let loaded = Minor::ALL
        .into_iter()
        .rev()
        .find_map(|minor| config::load_configuration(bytes, minor).ok());
    let entries = loaded.into_iter().flat_map(|it| it.configuration.jwt);
    let mut ours = entries.filter(|entry| entry.issuer.url == issuer);
    ours.next()
        .map(|entry| entry.issuer.audiences)
        .unwrap_or_default()
}

/// Returns the default URL of an issuer's discovery document (OpenID Connect Discovery 1.0, section
/// 4).
pub(crate) fn well_known(issuer: &str) -> String {
    format!(
        "{}/.well-known/openid-configuration",
        issuer.strip_suffix('/').unwrap_or(issuer)
    )
}

/// Predicts what a target of that minor, with these own issuers and this file, does with the token.
#[must_use]
pub fn predict_verdict(
    file: &[u8],
    minor: Minor,
    own_issuers: &[String],
    token: &Token,
    jwks: Option<&[u8]>,
    now: Timestamp,
) -> Prediction {
    let loaded = match config::load_configuration(file, minor) {
        Ok(loaded) => loaded,
        Err(LoadFault::Refused(refusal)) => {
            return Prediction::Refused(refusal.code, refusal.message);
        }
        Err(LoadFault::Undetermined(undetermined)) => {
            return Prediction::Undetermined(undetermined.code, undetermined.reason);
        }
    };
    let compiled = match validate_configuration(&loaded.configuration, minor, own_issuers) {
        Ok(compiled) => compiled,
        Err(invalid) => return refused_prediction(&invalid),
    };
    let keys = jwks.map_or_else(Keys::none, Keys::for_all);
    let verdict = verify_token(&compiled, token, &keys, now);
    match verdict.union() {
        Union::Accepted(user) => Prediction::Accepted(user.clone()),
        Union::Rejected(rejection) => {
            Prediction::Rejected(rejection.code, rejection.message.clone())
        }
        Union::Undetermined(undetermined) => {
            Prediction::Undetermined(undetermined.code, undetermined.reason.clone())
        }
        Union::Skipped => {
            let (theirs, ours) = (
                token.issuer.as_deref().unwrap_or_default(),
                issuers_of(file),
            );
            let words = format!(
                "no entry of the file has the token's issuer: its iss is {theirs:?}, issuer.url \
                 is {}",
                quote_list(&ours)
            );
            Prediction::Rejected(Code::IssuerDiffers, words)
        }
    }
}

/// Joins texts into a list, each of them quoted.
pub fn quote_list(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| format!("{text:?}"))
        .collect::<Vec<_>>()
        .join(" or ")
}

fn refused_prediction(invalid: &Invalid) -> Prediction {
    match (invalid.errors.first(), invalid.undetermined.first()) {
        (Some(error), _) => Prediction::Refused(error.code, invalid.message()),
        (None, Some(undetermined)) => {
            Prediction::Undetermined(undetermined.code, undetermined.reason.clone())
        }
        (None, None) => Prediction::Undetermined(
            Code::ConfigurationRefused,
            "the target refuses the file without a reason".to_owned(),
        ),
    }
}

/// Returns the hash of a file in the form that the target's metrics show.
#[must_use]
pub fn hash_of(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
