//! What was seen on the way. Built by whoever asked; an empty one knows nothing.

use jiff::{SignedDuration, Timestamp};

use super::Cause;
use crate::Minor;

/// Something that was found wrong before the way was walked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its name.
    pub cause: Cause,
    /// What was seen. Never a token.
    pub detail: String,
}

/// The token, or why there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Held {
    /// None was given and none could be asked for; why.
    #[default]
    None,
    /// None could be had.
    Failed(Problem),
    /// Its bytes. Never printed.
    Token(Vec<u8>),
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Failed(problem) => f.debug_tuple("Failed").field(problem).finish(),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// What came of fetching a document anonymously.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fetched {
    /// Nobody knew where from.
    #[default]
    NotTried,
    /// There was no connection, or no answer; the text says which.
    Unreachable(String),
    /// The server's certificate is not from the given authority.
    Untrusted(String),
    /// An answer.
    Answer(Answer),
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, bounded by who fetched it.
    pub body: Vec<u8>,
}

/// The file that the target is said to run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What a TokenReview at the target said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// The token is good, for this user.
    Authenticated(String),
    /// The token is not; `status.error`.
    Refused(String),
    /// It could not be asked.
    Failed(String),
}

/// What the target says to the token's bearer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nothing was asked.
    #[default]
    NotAsked,
    /// 401.
    Refused,
    /// Known, by this name; empty where the target does not say the name.
    Known(String),
    /// Another answer, or none.
    Failed(String),
}

/// A question to the target with yes or no.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nothing asks for it.
    #[default]
    NotAsked,
    /// Yes.
    Yes(String),
    /// No.
    No(String),
    /// No, but nobody has said what is needed, so that nothing may be missing.
    NothingYet(String),
    /// It could not be asked, or the answer does not say it.
    Unknown(String),
}

/// A binding of the target that names the hub's ServiceAccount by a wrong subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MistakenBinding {
    /// Kind, namespace and name, like `RoleBinding apps/deployers`.
    pub binding: String,
    /// Its subject, in words.
    pub subject: String,
}

/// What an object of Flux says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxReady {
    /// `status` of its condition `Ready`: True, False or Unknown.
    pub status: String,
    /// `reason` and `message` of that condition.
    pub message: String,
}

/// What was seen of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The first call, without credentials.
    pub connection: Fetched,
    /// Its clock minus the one here.
    pub skew: Option<SignedDuration>,
    /// Its release.
    pub minor: Option<Minor>,
    /// Its own ServiceAccount issuers, as far as they are known.
    pub own_issuers: Vec<String>,
    /// The hashes of the configuration in force, where the metrics could be read.
    pub in_force: Option<Vec<String>>,
    /// What a TokenReview said, where one could be sent.
    pub review: Option<Review>,
    /// What it says to the token's bearer.
    pub identity: Identity,
    /// Whether the user may impersonate.
    pub impersonation: Asked,
    /// As whom the target answered to impersonation, where that is not who was impersonated.
    pub impersonation_ignored: Option<String>,
    /// Whether the user may do what is asked for, or anything.
    pub rights: Asked,
    /// Bindings that were meant for the user and name another subject, where they could be read.
    pub mistaken_bindings: Vec<MistakenBinding>,
    /// Whether HEAD /livez/ping is let through.
    pub ping: Asked,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The clock here.
    pub now: Timestamp,
    /// What was started from, in words.
    pub start: String,
    /// What is wrong with it.
    pub start_problem: Option<Problem>,
    /// What is odd about it.
    pub start_warning: Option<Problem>,
    /// The token.
    pub held: Held,
    /// The issuer that is expected, where one is.
    pub issuer: Option<String>,
    /// The audiences of which the token must have one, where they are known.
    pub audiences: Vec<String>,
    /// Where the discovery document was read.
    pub discovery_url: Option<String>,
    /// Whether somebody said so, or it is only where the issuer would have it.
    pub discovery_stated: bool,
    /// The discovery document.
    pub discovery: Fetched,
    /// Where it says the keys are.
    pub jwks_uri: Option<String>,
    /// The keys.
    pub keys: Fetched,
    /// The hub's name, where it is known: `<hubName>:` begins every user name at the target.
    pub hub_name: Option<String>,
    /// What the object of Flux that was started from says of itself.
    pub flux: Option<FluxReady>,
    /// The target's AuthenticationConfiguration, where it was given.
    pub configuration: Option<ConfigurationFile>,
    /// The target.
    pub target: Target,
}

impl Evidence {
    /// Whether the target took the token.
    pub(super) fn accepted(&self) -> bool {
        matches!(self.target.identity, Identity::Known(_))
            || matches!(self.target.review, Some(Review::Authenticated(_)))
    }

    /// The time at the target, or here where it is not known.
    pub(super) fn target_time(&self) -> Timestamp {
        self.target
            .skew
            .and_then(|skew| self.now.checked_add(skew).ok())
            .unwrap_or(self.now)
    }
}
