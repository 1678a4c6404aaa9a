//! What a token says, as one document: `keyferry.dev/inspect/v1`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_keys::claims::{BoundObject, ServiceAccountClaims};
use keyferry_keys::jwks::{JwksError, KeySetLimits, PublicKeySet};
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify::{VerifyError, verify_signature};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::local_file::{self, ReadError};

/// The version of the document.
const SCHEMA: &str = "keyferry.dev/inspect/v1";
/// The most entries of `aud` that are shown.
const MAX_AUDIENCES: usize = 50;

/// Why the published keys cannot be compared with the token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("reading the key set from {}: {error}; fix: {}", path.display(), error.fix())]
    KeySet { path: PathBuf, error: JwksError },
}

/// What a token says. Its issuer and its sender chose every text.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenDocument {
    schema: &'static str,
    /// Whether a key was seen to have signed it.
    pub(super) signature: SignatureReport,
    pub(super) algorithm: &'static str,
    pub(super) key_id: Option<ForeignText>,
    pub(super) issuer: Option<ForeignText>,
    pub(super) subject: Option<ForeignText>,
    pub(super) audiences: Vec<ForeignText>,
    /// How many audiences are left out.
    pub(super) more_audiences: usize,
    pub(super) issued_at: Option<Timestamp>,
    pub(super) not_before: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    /// The moment at which it is judged.
    pub(super) judged_at: Timestamp,
    /// Whether it has ended; `None` if it does not say when.
    pub(super) expired: Option<bool>,
    pub(super) token_id: Option<ForeignText>,
    pub(super) service_account: Option<ObjectDocument>,
    pub(super) pod: Option<ObjectDocument>,
    pub(super) node: Option<ObjectDocument>,
    pub(super) secret: Option<ObjectDocument>,
    /// Why it is not read as a bound token of a ServiceAccount.
    pub(super) not_bound: Option<String>,
}

/// An object that a token names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// What is known of the signature.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SignatureReport {
    pub(super) state: SignatureState,
    /// Why it is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    /// The file with the published keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_set: Option<String>,
    /// The kids of that file, if the token's is not among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) published_kids: Vec<ForeignText>,
}

/// Whether the signature was checked, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum SignatureState {
    /// No keys were given.
    NotChecked,
    /// The published key that it names signed it.
    Valid,
    /// The key that it names is not published.
    KeyNotInSet,
    /// The published key that it names did not sign it.
    Invalid,
}

impl TokenDocument {
    /// Reads a token whose signature is not checked.
    pub(super) fn of(token: &UnverifiedJwt, now: Timestamp) -> Self {
        let claims = token.claims();
        let audiences = audiences(claims);
        let expires_at = time(claims, "exp");
        let (bound, not_bound) = match ServiceAccountClaims::read(token) {
            Ok(bound) => (Some(bound), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let object = |object: Option<&BoundObject>| {
            object.map(|object| ObjectDocument {
                namespace: None,
                name: object.name.to_string(),
                uid: object.uid.as_ref().map(|uid| uid.as_str().to_owned()),
            })
        };
        let bound = bound.as_ref();
        Self {
            schema: SCHEMA,
            signature: SignatureReport::of_state(SignatureState::NotChecked),
            algorithm: token.algorithm().as_str(),
            key_id: token.kid().map(ForeignText::new),
            issuer: text(claims, "iss"),
            subject: text(claims, "sub"),
            more_audiences: audiences.len().saturating_sub(MAX_AUDIENCES),
            audiences: audiences.into_iter().take(MAX_AUDIENCES).collect(),
            issued_at: time(claims, "iat"),
            not_before: time(claims, "nbf"),
            expires_at,
            judged_at: now,
            expired: expires_at.map(|end| end <= now),
            token_id: text(claims, "jti"),
            service_account: bound.map(|bound| ObjectDocument {
                namespace: Some(bound.identity.account.namespace.to_string()),
                name: bound.identity.account.name.to_string(),
                uid: Some(bound.identity.uid.as_str().to_owned()),
            }),
            pod: object(bound.and_then(|bound| bound.pod.as_ref())),
            node: object(bound.and_then(|bound| bound.node.as_ref())),
            secret: object(bound.and_then(|bound| bound.secret.as_ref())),
            not_bound,
        }
    }

    /// Checks the signature with the keys of a file.
    ///
    /// # Errors
    /// [`KeySetError`]: the keys cannot be read.
    pub(super) fn checked_against(
        self,
        token: &UnverifiedJwt,
        path: &Path,
    ) -> Result<Self, KeySetError> {
        let limits = KeySetLimits::default();
        let bytes = local_file::read(path, "the key set", limits.bytes)?;
        let (keys, _) =
            PublicKeySet::from_upstream(&bytes, limits).map_err(|error| KeySetError::KeySet {
                path: path.to_owned(),
                error,
            })?;
        let mut signature = match verify_signature(token, &keys) {
            Ok(_) => SignatureReport::of_state(SignatureState::Valid),
            Err(error @ (VerifyError::UnknownKid | VerifyError::NoKid)) => SignatureReport {
                detail: Some(error.to_string()),
                published_kids: keys.kids().map(ForeignText::new).collect(),
                ..SignatureReport::of_state(SignatureState::KeyNotInSet)
            },
            Err(error) => SignatureReport {
                detail: Some(error.to_string()),
                ..SignatureReport::of_state(SignatureState::Invalid)
            },
        };
        signature.key_set = Some(path.display().to_string());
        Ok(Self { signature, ..self })
    }
}

impl SignatureReport {
    fn of_state(state: SignatureState) -> Self {
        Self {
            state,
            detail: None,
            key_set: None,
            published_kids: Vec::new(),
        }
    }
}

fn text(claims: &Map<String, Value>, name: &str) -> Option<ForeignText> {
    claims.get(name)?.as_str().map(ForeignText::new)
}

/// Reads a NumericDate. Issuers other than Kubernetes may write a fraction, which is dropped.
fn time(claims: &Map<String, Value>, name: &str) -> Option<Timestamp> {
    let number = claims.get(name)?;
    let seconds = number.as_i64().or_else(|| {
        let whole = number.as_f64()?.floor();
        // Beyond these bounds there is no timestamp anyway, so the conversion is exact enough.
        (whole.abs() < 1e12).then_some(whole as i64)
    })?;
    Timestamp::from_second(seconds).ok()
}

fn audiences(claims: &Map<String, Value>) -> Vec<ForeignText> {
    match claims.get("aud") {
        Some(Value::String(audience)) => vec![ForeignText::new(audience)],
        Some(Value::Array(entries)) => entries
            .iter()
            .filter_map(Value::as_str)
            .map(ForeignText::new)
            .collect(),
        _ => Vec::new(),
    }
}
