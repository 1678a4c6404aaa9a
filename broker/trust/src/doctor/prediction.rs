//! What a file says about a token, if the target runs with it.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;

use crate::config::{self, LoadFault};
use crate::token::Token;
use crate::validate::{Invalid, validate};
use crate::verify::{Keys, Union, User, verify};
use crate::{Code, Minor};

/// What a target would make of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prediction {
    /// It names the user; `system:authenticated` comes to its groups.
    Accepted(User),
    /// It refuses the token.
    Rejected(Code, String),
    /// It does not take the file.
    Refused(Code, String),
    /// It cannot be said.
    Undetermined(Code, String),
}

/// Where an entry of a file has its issuer's document read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `issuer.url`.
    pub issuer: String,
    /// The discovery document's URL.
    pub discovery_url: String,
    /// `issuer.certificateAuthority`; none where the host's roots count.
    pub certificate_authority: Option<String>,
}

/// Finds the entry of the file for an issuer; the only entry where none fits.
#[must_use]
pub fn entry_for(bytes: &[u8], issuer: Option<&str>) -> Option<Entry> {
    let loaded = Minor::ALL
        .into_iter()
        .rev()
        .find_map(|minor| config::load(bytes, minor).ok())?;
    let entries = &loaded.configuration.jwt;
    let found = entries
        .iter()
        .find(|entry| Some(entry.issuer.url.as_str()) == issuer);
    let only = || {
        if let [only] = entries.as_slice() {
            Some(only)
        } else {
            None
        }
    };
    let found = &found.or_else(only)?.issuer;
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

/// Every `issuer.url` of a file, in its order; none where the file cannot be read.
#[must_use]
pub fn issuers_of(bytes: &[u8]) -> Vec<String> {
    let loaded = Minor::ALL
        .into_iter()
        .rev()
        .find_map(|minor| config::load(bytes, minor).ok());
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

/// Where an issuer has its discovery document by itself (OpenID Connect Discovery 1.0, section 4).
pub(crate) fn well_known(issuer: &str) -> String {
    format!(
        "{}/.well-known/openid-configuration",
        issuer.strip_suffix('/').unwrap_or(issuer)
    )
}

/// Predicts what a target of that minor, with these own issuers and this file, makes of the token.
#[must_use]
pub fn predict(
    file: &[u8],
    minor: Minor,
    own_issuers: &[String],
    token: &Token,
    jwks: Option<&[u8]>,
    now: Timestamp,
) -> Prediction {
    let loaded = match config::load(file, minor) {
        Ok(loaded) => loaded,
        Err(LoadFault::Refused(refusal)) => {
            return Prediction::Refused(refusal.code, refusal.message);
        }
        Err(LoadFault::Undetermined(undetermined)) => {
            return Prediction::Undetermined(undetermined.code, undetermined.reason);
        }
    };
    let compiled = match validate(&loaded.configuration, minor, own_issuers) {
        Ok(compiled) => compiled,
        Err(invalid) => return refused(&invalid),
    };
    let keys = jwks.map_or_else(Keys::none, Keys::for_all);
    let verdict = verify(&compiled, token, &keys, now);
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
                "no entry of the file is for the token's issuer: its iss is {theirs:?}, issuer.url \
                 is {}",
                listed(&ours)
            );
            Prediction::Rejected(Code::IssuerDiffers, words)
        }
    }
}

/// Texts, quoted.
pub(super) fn listed(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| format!("{text:?}"))
        .collect::<Vec<_>>()
        .join(" or ")
}

fn refused(invalid: &Invalid) -> Prediction {
    match (invalid.errors.first(), invalid.undetermined.first()) {
        (Some(error), _) => Prediction::Refused(error.code, invalid.message()),
        (None, Some(undetermined)) => {
            Prediction::Undetermined(undetermined.code, undetermined.reason.clone())
        }
        (None, None) => Prediction::Undetermined(
            Code::ConfigurationRefused,
            "the file is refused without a reason".to_owned(),
        ),
    }
}

/// The hash of a file as the target's metrics show it.
#[must_use]
pub fn hash_of(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
