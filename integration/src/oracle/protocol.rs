//! The lines of the oracle: one question, one answer. The Go side is `protocol.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One configuration file and tokens for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Comes back in the answer.
    pub id: u64,
    /// The text of the AuthenticationConfiguration file.
    pub config: String,
    /// The target's own issuers (`--service-account-issuer`).
    pub disallowed_issuers: Vec<String>,
    /// Seconds since 1970: the only clock.
    pub now: i64,
    /// What a GET of a URL answers; every other URL refuses the connection.
    pub http: BTreeMap<String, Document>,
    /// The tokens.
    pub tokens: Vec<String>,
}

/// One HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The status code.
    pub status: u16,
    /// The header; none when empty.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// What the authenticator makes of a question: a load error, else validation errors, else verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// That of the question.
    pub id: u64,
    /// Why the file cannot be decoded.
    pub load_error: Option<String>,
    /// Why the configuration is refused.
    #[serde(default)]
    pub validation_errors: Vec<ValidationError>,
    /// One for each jwt entry.
    #[serde(default)]
    pub authenticators: Vec<AuthenticatorState>,
    /// For each token one verdict of each jwt entry.
    #[serde(default)]
    pub tokens: Vec<Vec<OracleVerdict>>,
    /// The authenticator panicked: a real kube-apiserver would die at its start, or answer with an
    /// internal error.
    pub failure: Option<String>,
}

/// One entry of a `field.ErrorList`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ValidationError {
    /// The path, like `jwt[0].issuer.url`.
    pub field: String,
    /// The `field.ErrorType`, like `FieldValueInvalid`.
    #[serde(rename = "type")]
    pub kind: String,
    /// As kube-apiserver prints it.
    pub text: String,
}

/// How an authenticator started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuthenticatorState {
    /// The constructor refused.
    pub new_error: Option<String>,
    /// The discovery document was refused.
    pub not_ready: Option<String>,
}

/// What one authenticator makes of one token; exactly one field is set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OracleVerdict {
    /// The token is of another issuer.
    #[serde(default)]
    pub skipped: bool,
    /// Why the token is refused.
    pub error: Option<String>,
    /// Whom the token is for.
    pub user: Option<OracleUser>,
}

/// A user before groups like `system:authenticated` are added.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OracleUser {
    /// The username.
    pub name: String,
    /// Empty without one.
    #[serde(default)]
    pub uid: String,
    /// In the authenticator's order.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Values by key.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}
