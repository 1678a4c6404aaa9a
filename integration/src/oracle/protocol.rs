//! The line protocol of the oracle: one question, one answer. The Go side is `protocol.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One configuration file and tokens for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// An ID that the answer repeats.
    pub id: u64,
    /// The text of the AuthenticationConfiguration file.
    pub config: String,
    /// The target's own issuers (`--service-account-issuer`).
    pub disallowed_issuers: Vec<String>,
    /// Seconds since 1970. The authenticator uses no other clock.
    pub now: i64,
    /// The responses to a GET, by URL. Every other URL refuses the connection.
    pub http: BTreeMap<String, Document>,
    /// The tokens.
    pub tokens: Vec<String>,
}

/// Expressions to evaluate, instead of a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ExpressionsQuestion {
    pub(crate) id: u64,
    pub(crate) observed: Expressions,
}

/// Expressions and the values of their variables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Expressions {
    /// The value of `claims`.
    pub(crate) claims: serde_json::Value,
    /// The value of `user`, with the field names of Go's `user.DefaultInfo`.
    pub(crate) user: serde_json::Value,
    pub(crate) expressions: Vec<Expression>,
}

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Expression {
    /// `claims` or `user`.
    pub(crate) scope: &'static str,
    pub(crate) text: String,
}

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The status code.
    pub status: u16,
    /// The Content-Type header; not sent when empty.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// The authenticator's result for a question: a load error, else validation errors, else verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// The ID of the question.
    pub id: u64,
    /// Why the file could not be decoded.
    pub load_error: Option<String>,
    /// Why the configuration is refused.
    #[serde(default)]
    pub validation_errors: Vec<ValidationError>,
    /// The state of the authenticator of each jwt entry.
    #[serde(default)]
    pub authenticators: Vec<AuthenticatorState>,
    /// For each token, one verdict of each jwt entry.
    #[serde(default)]
    pub tokens: Vec<Vec<OracleVerdict>>,
    /// The result of each expression, as `observe.go` prints it.
    #[serde(default)]
    pub(crate) observations: Vec<String>,
    /// The panic of the authenticator. A real kube-apiserver would die at its start, or answer with
    /// an internal error.
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
    /// The error as kube-apiserver prints it.
    pub text: String,
}

/// How an authenticator started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuthenticatorState {
    /// The error of the constructor.
    pub new_error: Option<String>,
    /// Why the discovery document was refused.
    pub not_ready: Option<String>,
}

/// The verdict of one authenticator on one token; exactly one field is set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OracleVerdict {
    /// The token is of another issuer.
    #[serde(default)]
    pub skipped: bool,
    /// Why the token is refused.
    pub error: Option<String>,
    /// The user of an accepted token.
    pub user: Option<OracleUser>,
}

/// A user before groups like `system:authenticated` are added.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OracleUser {
    /// The username.
    pub name: String,
    /// The UID; empty if there is none.
    #[serde(default)]
    pub uid: String,
    /// The groups, in the authenticator's order.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The extra values by key.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}
