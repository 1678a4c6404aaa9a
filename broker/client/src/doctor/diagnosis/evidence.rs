//! The observations that a diagnosis is based on. The caller collects them; the default has none.

use jiff::{SignedDuration, Timestamp};
use keyferry_kube_authn::Minor;

use super::{Cause, Fetched};
use crate::doctor::resource_attributes::ResourceAttributes;

/// A fault that was found while the evidence was collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The stable name of the fault.
    pub cause: Cause,
    /// What was observed. Never contains a token.
    pub detail: String,
    /// What to do about exactly this, where the cause has several fixes.
    pub fix: Option<&'static str>,
}

impl Problem {
    /// Creates a problem whose fix is that of its cause.
    pub fn new(cause: impl Into<Cause>, detail: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            detail: detail.into(),
            fix: None,
        }
    }

    /// Sets the fix.
    #[must_use]
    pub fn with_fix(self, fix: &'static str) -> Self {
        Self {
            fix: Some(fix),
            ..self
        }
    }

    /// Returns what to do about it.
    pub fn fix(&self) -> &'static str {
        self.fix.unwrap_or_else(|| self.cause.fix())
    }
}

/// The token, or why there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum TokenEvidence {
    /// No token was given, and none could be requested.
    #[default]
    None,
    /// The token could not be obtained.
    Failed(Problem),
    /// The user lacks a right that getting the token takes; the text says which. That says nothing
    /// of the token.
    Unknown(String),
    /// The credential is none that doctor can check, such as a client certificate; the text says
    /// what it is.
    NotAToken(String),
    /// The token's bytes. They are never printed.
    Token(Vec<u8>),
}

impl std::fmt::Debug for TokenEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Failed(problem) => f.debug_tuple("Failed").field(problem).finish(),
            Self::Unknown(why) => f.debug_tuple("Unknown").field(why).finish(),
            Self::NotAToken(what) => f.debug_tuple("NotAToken").field(what).finish(),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// The AuthenticationConfiguration that the target presumably runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationFile {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
}

/// The result of a TokenReview at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// The token is valid and belongs to this user.
    Authenticated(String),
    /// The token is not valid; the text is `status.error`.
    Refused(String),
    /// The TokenReview could not be sent.
    Failed(String),
}

/// The target's response to the token's bearer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// The target was not asked.
    #[default]
    NotAsked,
    /// The target responded with status 401.
    Refused,
    /// The target knows the bearer by this name; empty if it does not return the name.
    Known(String),
    /// The target knows the bearer, who may not impersonate the requested user; the text is the
    /// target's message.
    Forbidden(String),
    /// The target gave another response, or none.
    Failed(String),
}

/// The result of a yes-or-no question to the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nothing needs the answer.
    #[default]
    NotAsked,
    /// The answer is yes; the text describes it.
    Yes(String),
    /// The answer is no; the text says why.
    No(String),
    /// No, but no required rights were named, so perhaps none are missing.
    NothingYet(String),
    /// The question could not be asked, or the response does not answer it.
    Unknown(String),
}

/// What the target's metrics show of its configuration. One apiserver answers for all that share an
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveConfiguration {
    /// The hash of the loaded file. Empty if none is loaded, and before 1.34, which has no such
    /// metric.
    pub hashes: Vec<String>,
    /// When the last reload failed, if none succeeded since.
    pub reload_failed: Option<Timestamp>,
}

/// A binding at the target that names the hub's ServiceAccount by a wrong subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MistakenBinding {
    /// Kind, namespace and name, like `RoleBinding apps/deployers`.
    pub binding: String,
    /// Its subject, described in words.
    pub subject: String,
}

/// The `Ready` condition of an object of Flux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxReady {
    /// `status` of its condition `Ready`: True, False or Unknown.
    pub status: String,
    /// `reason` and `message` of that condition.
    pub message: String,
}

/// The observations of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The response to the first call, made without credentials.
    pub connection: Fetched,
    /// The target's clock minus the local clock.
    pub skew: Option<SignedDuration>,
    /// The target's Kubernetes release.
    pub minor: Option<Minor>,
    /// The target's own ServiceAccount issuers, as far as they are known.
    pub own_issuers: Vec<String>,
    /// What the metrics show of the active configuration, if they could be read.
    pub active: Option<ActiveConfiguration>,
    /// The result of a TokenReview, if one could be sent.
    pub review: Option<Review>,
    /// The target's response to the token's bearer.
    pub identity: Identity,
    /// Whether the user may impersonate, if that is needed.
    pub impersonation: Asked,
    /// The user that the target took an impersonating request for, if that is not the impersonated
    /// one.
    pub impersonation_ignored: Option<String>,
    /// The attributes of the needed rights, with resources as the target's discovery names them.
    pub needs: Vec<ResourceAttributes>,
    /// Whether the user may do what is needed, or anything at all if nothing specific is needed.
    pub rights: Asked,
    /// Bindings that were meant for the user but name another subject, if bindings could be read.
    pub mistaken_bindings: Vec<MistakenBinding>,
    /// Whether the target allows HEAD /livez/ping.
    pub ping: Asked,
}

/// Every observation that a diagnosis uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The local time of the diagnosis.
    pub now: Timestamp,
    /// The object that the diagnosis starts from, described in words.
    pub start: String,
    /// The fault of that object, if it has one.
    pub start_problem: Option<Problem>,
    /// Why that object could not be judged, such as a right that the user lacks.
    pub start_unknown: Option<String>,
    /// A warning about that object, if there is one.
    pub start_warning: Option<Problem>,
    /// The token, or the reason why there is none.
    pub token_evidence: TokenEvidence,
    /// The expected issuer, if there is one.
    pub issuer: Option<String>,
    /// The accepted audiences, if known; the token must have one of them.
    pub audiences: Vec<String>,
    /// The URL that the discovery document was fetched from.
    pub discovery_url: Option<String>,
    /// Whether that URL was given. If not, it is only the issuer's default one.
    pub discovery_stated: bool,
    /// The result of fetching the discovery document.
    pub discovery: Fetched,
    /// The URL of the keys, as the discovery document gives it.
    pub jwks_uri: Option<String>,
    /// The result of fetching the keys.
    pub keys: Fetched,
    /// The hub's name, if known: `<hubName>:` begins every user name at the target.
    pub hub_name: Option<String>,
    /// The `Ready` condition of the Flux object that the diagnosis starts from.
    pub flux: Option<FluxReady>,
    /// The ServiceAccount that Flux impersonates at the target, as `NAMESPACE/NAME`, if the hub has
    /// none of this name.
    pub flux_account_missing: Option<String>,
    /// Whether the target is no Kubernetes cluster but another relying party, which no hop can ask.
    pub relying_party: bool,
    /// The target's AuthenticationConfiguration, if it was given.
    pub configuration: Option<ConfigurationFile>,
    /// The observations of the target.
    pub target: Target,
}

impl Evidence {
    /// Whether the target accepted the token.
    pub(super) fn accepted(&self) -> bool {
        matches!(self.target.identity, Identity::Known(_))
            || matches!(self.target.review, Some(Review::Authenticated(_)))
    }

    /// The time at the target, or the local time if that is unknown.
    pub(super) fn target_time(&self) -> Timestamp {
        self.target
            .skew
            .and_then(|skew| self.now.checked_add(skew).ok())
            .unwrap_or(self.now)
    }
}
