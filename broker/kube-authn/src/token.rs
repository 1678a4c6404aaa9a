//! Reads a token as the apiserver does: first only its issuer, then with go-jose's parser, then the
//! registered claims.

mod fault;
mod header;
mod number;
mod registered;
mod service_account;

pub use service_account::ServiceAccountToken;

pub use fault::TokenFault;
pub use header::Signed;
pub(crate) use number::{ClaimFault, Numbers, to_claim};
pub use registered::Registered;

use keyferry_go_formats::base64::decode_raw_url;
use keyferry_go_formats::json::{Json, JsonFault, folds_to};

use crate::Code;
use crate::config::Undetermined;

/// The longest token that is read, in bytes. An apiserver's header limit is 1 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// A token, parsed once for all authenticators.
#[derive(Debug)]
pub struct Token {
    /// Whether it has a signature, and which.
    pub form: Form,
    /// The unverified `iss`, or the reason why every authenticator skips the token.
    pub issuer: Result<String, Code>,
    /// The payload; always an object if `issuer` is `Ok`.
    pub payload: Json,
}

/// Where the claims come from: a signed token, or an imagined one.
#[derive(Debug)]
pub enum Form {
    /// A signed token, or the reason why go-jose does not parse it.
    Signed(Result<Signed, TokenFault>),
    /// The claims of a token that does not exist yet: nothing to parse, nothing to verify.
    Imagined,
}

impl Token {
    /// Returns `iss`, unverified.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref().ok()
    }

    /// Returns `sub`, unverified.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self.payload.member("sub") {
            Some(Json::Text(subject)) => Some(subject),
            _ => None,
        }
    }

    /// Reads a token without verifying it.
    ///
    /// # Errors
    /// [`Undetermined`] if it is too large.
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
        match unverified_issuer(&payload) {
            Some(issuer) => Ok(Self {
                form: Form::Signed(Signed::parse(&text)),
                issuer: Ok(issuer),
                payload,
            }),
            None => skipped(Code::PayloadNotJson),
        }
    }

    /// Builds the token that a hub would mint, without a signature.
    #[must_use]
    pub fn of_service_account(token: &ServiceAccountToken) -> Self {
        Self {
            form: Form::Imagined,
            issuer: Ok(token.issuer.clone()),
            payload: token.claims(),
        }
    }

    /// Builds a token with these claims, without a signature. `iss` is that of the claims.
    pub(crate) fn imagine_claims(claims: Json) -> Self {
        Self {
            form: Form::Imagined,
            issuer: unverified_issuer(&claims).ok_or(Code::PayloadNotJson),
            payload: claims,
        }
    }

    /// Whether there is a signature that keys could verify.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        matches!(self.form, Form::Signed(_))
    }
}

/// Returns the issuer as the apiserver's first, unverified read finds it. The member's name may be
/// in any case, the last one counts, and null changes nothing.
fn unverified_issuer(payload: &Json) -> Option<String> {
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
