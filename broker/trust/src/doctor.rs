//! Where the way of a token to a target is broken: from what was seen to the first broken hop, its
//! cause and its fix.
//!
//! Nothing is asked here: [`Evidence`] holds what was found, and what was not found is
//! undetermined, never guessed.

mod documents;
mod evidence;
mod name;
mod prediction;
mod report;
mod review;
mod target;
mod token;

pub use evidence::{
    Answer, Asked, ConfigurationFile, Evidence, Fetched, FluxReady, Held, Identity,
    MistakenBinding, Problem, Review, Target,
};
pub use name::name_fault;
pub(crate) use prediction::well_known;
pub use prediction::{Entry, Prediction, entry_for, hash_of, issuers_of, predict};
pub use report::{Mode, Report, ReportedHop, SCHEMA};
pub use review::cause_of;

use keyferry_core::reason::Reason;
use serde::{Serialize, Serializer};

use crate::Code;

/// A place on the way, in the order of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Hop {
    /// What was started from: an access, a Secret, an object of Flux.
    Start,
    /// Getting the token.
    Token,
    /// The issuer that the token names.
    Issuer,
    /// The published discovery document.
    Discovery,
    /// The published keys.
    Keys,
    /// The token's key among them.
    KeyId,
    /// The token's claims, by the clock here.
    Claims,
    /// The target's AuthenticationConfiguration.
    Configuration,
    /// What the target itself knows of the issuer and its keys.
    TargetKeys,
    /// The target's clock.
    Clock,
    /// The connection to the target, with its CA.
    Connection,
    /// The target says who the bearer is.
    Authentication,
    /// The right to impersonate, where the object asks for it.
    Impersonation,
    /// What the user may do.
    Rights,
    /// The probe by which client-go finds out whether it must slow itself down.
    FlowControl,
    /// What Flux says of the object that was started from.
    Flux,
}

/// How it stands with a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Status {
    /// All is well.
    Well,
    /// It works, but something is to be known.
    Warning,
    /// Here the way is broken.
    Broken,
    /// It cannot be said with what was given.
    Undetermined,
    /// Nothing asks for it.
    NotAsked,
}

/// Why a hop is broken, by a name that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// One of this crate's.
    Code(Code),
    /// One of the broker's.
    Reason(Reason),
}

/// What was found about a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub hop: Hop,
    /// How it stands.
    pub status: Status,
    /// Why, where it is not well.
    pub cause: Option<Cause>,
    /// What was seen, in a line.
    pub detail: String,
}

/// The whole in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Every hop holds.
    Well,
    /// A hop is broken.
    Broken,
    /// It is not known whether, or where.
    Undetermined,
}

/// All hops, in their order, and what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The whole in a word.
    pub verdict: Verdict,
    /// The first broken hop, where the verdict is `Broken`.
    pub broken: Option<Hop>,
    /// Every hop.
    pub findings: Vec<Finding>,
}

/// Walks the hops.
#[must_use]
pub fn examine(evidence: &Evidence) -> Diagnosis {
    let seen = token::Seen::of(evidence);
    let mut findings = vec![
        token::start(evidence),
        token::token(evidence, &seen),
        token::issuer(evidence, &seen),
        documents::discovery(evidence, &seen),
        documents::keys(evidence),
        documents::key_id(evidence, &seen),
        token::claims(evidence, &seen),
    ];
    let (configuration, target_keys) = target::trust(evidence, &seen);
    findings.extend([
        configuration,
        target_keys,
        token::clock(evidence, &seen),
        target::connection(evidence),
    ]);
    findings.extend([
        target::authentication(evidence, &seen),
        target::impersonation(evidence),
        target::rights(evidence),
    ]);
    findings.extend([target::flow_control(evidence), target::flux(evidence)]);
    conclude(findings)
}

fn conclude(findings: Vec<Finding>) -> Diagnosis {
    let first = findings
        .iter()
        .find(|finding| finding.status == Status::Broken);
    let broken = first.map(|finding| finding.hop);
    let refused = first.is_some_and(|finding| finding.cause == Some(Code::TokenRefused.into()));
    let unknown_before = |hop: Hop| {
        findings
            .iter()
            .any(|finding| finding.hop < hop && finding.status == Status::Undetermined)
    };
    let verdict = match broken {
        // A refusal is an effect: while a cause before it is open, the broken hop is not known.
        Some(Hop::Authentication) if refused && unknown_before(Hop::Authentication) => {
            Verdict::Undetermined
        }
        Some(_) => Verdict::Broken,
        None if findings
            .iter()
            .any(|finding| finding.status == Status::Undetermined) =>
        {
            Verdict::Undetermined
        }
        None => Verdict::Well,
    };
    Diagnosis {
        verdict,
        broken: broken.filter(|_| verdict == Verdict::Broken),
        findings,
    }
}

impl Cause {
    /// The name, as reports print it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Code(code) => code.name(),
            Self::Reason(reason) => reason.as_str(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Code(code) => code.fix(),
            Self::Reason(Reason::KeyNotPublished) => {
                "publish the key with this kid; Keyferry does so by itself within 10 s of the hub"
            }
            Self::Reason(Reason::ClockSkew) => "set both clocks by the same time server",
            Self::Reason(Reason::IdentityUnexpected) => {
                "at the target, set claimMappings.username.prefix to the hub's name and a colon, \
                 as keyferry trust prints it"
            }
            Self::Reason(Reason::AudienceIsHubs) => {
                "give the target an audience of its own, in its TargetCluster and at the target"
            }
            Self::Reason(Reason::MintForbidden) => {
                "on the hub, grant create on serviceaccounts/token for this ServiceAccount"
            }
            Self::Reason(Reason::ServiceAccountChanged) => {
                "make the ServiceAccount on the hub, or name the one that is there"
            }
            Self::Reason(_) => "see the section of this name in docs/troubleshooting.md",
        }
    }
}

impl From<Code> for Cause {
    fn from(code: Code) -> Self {
        Self::Code(code)
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason)
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Finding {
    fn new(hop: Hop, status: Status, cause: Option<Cause>, detail: impl Into<String>) -> Self {
        Self {
            hop,
            status,
            cause,
            detail: detail.into(),
        }
    }

    fn well(hop: Hop, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::Well, None, detail)
    }

    fn broken(hop: Hop, cause: impl Into<Cause>, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::Broken, Some(cause.into()), detail)
    }

    fn warning(hop: Hop, cause: impl Into<Cause>, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::Warning, Some(cause.into()), detail)
    }

    fn open(hop: Hop, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::Undetermined, None, detail)
    }

    fn not_asked(hop: Hop, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::NotAsked, None, detail)
    }
}

#[cfg(test)]
mod tests;
