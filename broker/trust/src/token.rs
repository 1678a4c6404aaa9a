//! A token as the apiserver reads it: first a glance at its issuer, then go-jose's parse, then the
//! registered claims.

mod header;
mod number;
mod registered;
mod service_account;

pub use service_account::ServiceAccountToken;

pub(crate) use header::Signed;
pub(crate) use number::{ClaimFault, Numbers, to_claim};
pub(crate) use registered::Registered;

use crate::Code;
use crate::config::Undetermined;
use crate::go::base64::decode_raw_url;
use crate::go::json::{Json, JsonFault, folds_to};

/// The longest token that is read. An apiserver's header limit is 1 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// A token, looked at once for all authenticators.
#[derive(Debug)]
pub struct Token {
    pub(crate) form: Form,
    /// `iss`, where the glance found one; else why every authenticator skips the token.
    pub(crate) issuer: Result<String, Code>,
    /// The payload; an object wherever `issuer` is known.
    pub(crate) payload: Json,
}

/// Where the claims come from.
#[derive(Debug)]
pub(crate) enum Form {
    /// A token that was signed.
    Signed(Result<Signed, TokenFault>),
    /// The claims of a token that does not exist yet: nothing to parse, nothing to verify.
    Imagined,
}

/// Why go-jose does not parse a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// Its words; whether they are exact.
    Malformed(String, bool),
    /// It cannot be said here.
    Undetermined(Undetermined),
}

impl Token {
    /// `iss`, unverified.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref().ok()
    }

    /// `sub`, unverified.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self.payload.member("sub") {
            Some(Json::Text(subject)) => Some(subject),
            _ => None,
        }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`Undetermined`] where it is too large.
    pub fn read(bytes: &[u8]) -> Result<Self, Undetermined> {
        if bytes.len() > MAX_BYTES {
            return Err(Undetermined::new(
                Code::TooLarge,
                format!("the token is longer than {MAX_BYTES} bytes"),
            ));
        }
        let text = String::from_utf8_lossy(bytes);
        let skipped = |code| {
            Ok(Self {
                form: Form::Imagined,
                issuer: Err(code),
                payload: Json::Null,
            })
        };
        if text.trim_start().starts_with('{') {
            return skipped(Code::NotCompact);
        }
        let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'.').collect();
        let [_, payload, _] = parts.as_slice() else {
            return skipped(Code::NotThreeParts);
        };
        let Ok(payload) = decode_raw_url(payload) else {
            return skipped(Code::PayloadNotBase64);
        };
        let payload = match Json::parse(&payload) {
            Ok(payload) => payload,
            Err(JsonFault::Syntax(_)) => return skipped(Code::PayloadNotJson),
        };
        match issuer(&payload) {
            Some(issuer) => Ok(Self {
                form: Form::Signed(Signed::parse(&text)),
                issuer: Ok(issuer),
                payload,
            }),
            None => skipped(Code::PayloadNotJson),
        }
    }

    /// The token that a hub would mint.
    #[must_use]
    pub fn imagine(token: &ServiceAccountToken) -> Self {
        Self {
            form: Form::Imagined,
            issuer: Ok(token.issuer.clone()),
            payload: token.claims(),
        }
    }

    /// Whether there is a signature that keys could verify.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        matches!(self.form, Form::Signed(_))
    }
}

/// The issuer as the glance finds it: whatever the case of the name, the last one counts, null
/// changes nothing.
fn issuer(payload: &Json) -> Option<String> {
    if !matches!(payload, Json::Object(_) | Json::Null) {
        return None;
    }
    let mut issuer = String::new();
    for (_, value) in payload
        .members()
        .iter()
        .filter(|(name, _)| folds_to(name, "iss"))
    {
        match value {
            Json::Null => {}
            Json::Text(text) => issuer.clone_from(text),
            _ => return None,
        }
    }
    Some(if issuer == "accounts.google.com" {
        "https://accounts.google.com".to_owned()
    } else {
        issuer
    })
}

#[cfg(test)]
mod tests;
