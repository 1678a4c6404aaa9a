//! The result of a verification: each authenticator skips, rejects or accepts the token, or is
//! undetermined.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Code;
use crate::config::Undetermined;

/// A user as an authenticator maps it. The apiserver adds `system:authenticated` later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// The name; empty only if both the claim and the prefix are empty.
    pub username: String,
    /// The UID; empty if none is mapped.
    pub uid: String,
    /// The groups, in the token's order.
    pub groups: Vec<String>,
    /// The extra values. From 1.32 they include `authentication.kubernetes.io/credential-id` if the
    /// token has a `jti`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The step of the verification that rejects a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// Parsing the JWS.
    Parse,
    /// The check of `alg`.
    Algorithm,
    /// The check of the signature.
    Signature,
    /// The check of the registered claims' types.
    Claims,
    /// The check of `aud`.
    Audience,
    /// The check of `exp`.
    Expiry,
    /// The check of `nbf`.
    NotBefore,
    /// The check of distributed claims.
    DistributedClaims,
    /// `claimMappings.username`.
    Username,
    /// `claimMappings.groups`.
    Groups,
    /// `claimMappings.uid`.
    Uid,
    /// `claimMappings.extra`.
    Extra,
    /// The claim validation rules with `claim`.
    RequiredClaims,
    /// The claim validation rules with `expression`.
    ClaimRules,
    /// The user validation rules.
    UserRules,
}

/// A rejection: the apiserver responds with 401 and logs the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The step that rejects the token.
    pub stage: Stage,
    /// The stable name of the reason.
    pub code: Code,
    /// The apiserver's message.
    pub message: String,
    /// Whether the message is exact. Times are printed as on a machine in UTC.
    pub exact: bool,
    /// Other messages that the apiserver may give, because it walks a map in random order.
    pub others: Vec<(Code, String)>,
    /// What to do about this token, if it shows more than the reason code.
    pub fix: Option<String>,
}

impl Rejection {
    pub(crate) fn new(stage: Stage, code: Code, message: impl Into<String>) -> Self {
        Self {
            stage,
            code,
            message: message.into(),
            exact: true,
            others: Vec::new(),
            fix: None,
        }
    }

    pub(crate) fn near(self) -> Self {
        Self {
            exact: false,
            ..self
        }
    }
}

/// The verdict of one authenticator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It skips the token, mostly because the token has another issuer.
    Skipped(Code),
    /// It rejects the token.
    Rejected(Rejection),
    /// It accepts the token and names its user.
    Accepted(User),
    /// Its verdict cannot be decided offline.
    Undetermined(Undetermined),
}

/// Whether signatures were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SignatureCheck {
    /// The signature was checked with the given keys.
    Checked,
    /// There were no keys or no signature, so the verdict assumes a valid signature.
    NotChecked,
}

/// The verdicts of all authenticators, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// One verdict for each entry of `jwt`.
    pub outcomes: Vec<Outcome>,
    /// Whether signatures were verified.
    pub signature: SignatureCheck,
}

/// The combined verdict of all authenticators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Union<'a> {
    /// An authenticator accepts the token.
    Accepted(&'a User),
    /// An authenticator rejects the token, and every earlier one skips it.
    Rejected(&'a Rejection),
    /// Every authenticator skips the token.
    Skipped,
    /// The verdict cannot be decided offline.
    Undetermined(&'a Undetermined),
}

impl Verdict {
    /// Returns the combined verdict: the first authenticator, in order, that does not skip decides.
    #[must_use]
    pub fn union(&self) -> Union<'_> {
        let decisive = self
            .outcomes
            .iter()
            .find(|outcome| !matches!(outcome, Outcome::Skipped(_)));
        match decisive {
            None | Some(Outcome::Skipped(_)) => Union::Skipped,
            Some(Outcome::Accepted(user)) => Union::Accepted(user),
            Some(Outcome::Rejected(rejection)) => Union::Rejected(rejection),
            Some(Outcome::Undetermined(undetermined)) => Union::Undetermined(undetermined),
        }
    }
}
