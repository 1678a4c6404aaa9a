//! What comes out: for each authenticator skipped, rejected, accepted or undetermined.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Code;
use crate::config::Undetermined;

/// A user as an authenticator maps it. `system:authenticated` is added by the apiserver later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// The name; empty only where a claim is empty and the prefix too.
    pub username: String,
    /// The UID; empty where none is mapped.
    pub uid: String,
    /// In the token's order.
    pub groups: Vec<String>,
    /// With `authentication.kubernetes.io/credential-id` from 1.32, where the token has a `jti`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Where a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// The parse of the JWS.
    Parse,
    /// `alg`.
    Algorithm,
    /// The signature.
    Signature,
    /// The types of the registered claims.
    Claims,
    /// `aud`.
    Audience,
    /// `exp`.
    Expiry,
    /// `nbf`.
    NotBefore,
    /// Distributed claims.
    DistributedClaims,
    /// `claimMappings.username`.
    Username,
    /// `claimMappings.groups`.
    Groups,
    /// `claimMappings.uid`.
    Uid,
    /// `claimMappings.extra`.
    Extra,
    /// Claim rules by `claim`.
    RequiredClaims,
    /// Claim rules by `expression`.
    ClaimRules,
    /// User rules.
    UserRules,
}

/// A rejection: the apiserver answers 401, and logs the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Where.
    pub stage: Stage,
    /// Why.
    pub code: Code,
    /// The apiserver's words.
    pub message: String,
    /// Whether they are exact. Times are printed as on a machine in UTC.
    pub exact: bool,
    /// What else it may say instead, since it walks a map in random order.
    pub others: Vec<(Code, String)>,
}

impl Rejection {
    pub(crate) fn new(stage: Stage, code: Code, message: impl Into<String>) -> Self {
        Self {
            stage,
            code,
            message: message.into(),
            exact: true,
            others: Vec::new(),
        }
    }

    pub(crate) fn near(self) -> Self {
        Self {
            exact: false,
            ..self
        }
    }
}

/// What one authenticator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The token is not its business.
    Skipped(Code),
    /// It refuses the token.
    Rejected(Rejection),
    /// It names the user.
    Accepted(User),
    /// It cannot be said here.
    Undetermined(Undetermined),
}

/// Whether signatures were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SignatureCheck {
    /// Against the keys given.
    Checked,
    /// There were no keys, or there was no signature: the verdict holds if the signature does.
    NotChecked,
}

/// What all authenticators say, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// One for each entry of `jwt`.
    pub outcomes: Vec<Outcome>,
    /// Whether signatures were verified.
    pub signature: SignatureCheck,
}

/// What the union of the authenticators says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Union<'a> {
    /// The first that accepts.
    Accepted(&'a User),
    /// Nobody accepts, somebody rejects; the union fails at the first that does.
    Rejected(&'a Rejection),
    /// The token is nobody's business.
    Skipped,
    /// It cannot be said here.
    Undetermined(&'a Undetermined),
}

impl Verdict {
    /// The overall answer: authenticators are asked in order, and the first that does not skip
    /// decides.
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
