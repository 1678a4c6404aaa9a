//! Diagnoses why a token does not work at a target: finds the first broken hop, its cause and its
//! fix.
//!
//! Nothing is fetched here. [`Evidence`] contains what was observed; whatever was not observed is
//! undetermined, never guessed.

mod documented_fix;
mod documents;
mod evidence;
mod name;
mod report;
mod review;
mod target;
mod token;

pub use evidence::{
    ActiveConfiguration, Asked, ConfigurationFile, Evidence, FluxReady, Identity, MistakenBinding,
    Problem, Review, Target, TokenEvidence,
};
use keyferry_api::reason::Reason;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::fetched::{Fetched, HttpResponse};
use keyferry_kube_authn::prediction::{Prediction, hash_of, issuers_of, predict_verdict};
pub use name::name_fault;
pub use report::{Mode, Report, ReportedHop};
use review::cause_of;
use serde::{Serialize, Serializer};

/// A step between getting a token and using it at the target, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Hop {
    /// The object that the diagnosis starts from: an access, a Secret, an object of Flux.
    Start,
    /// Obtaining the token.
    Token,
    /// The issuer that the token names.
    Issuer,
    /// The published discovery document.
    Discovery,
    /// The published keys.
    Keys,
    /// Whether the published keys contain the token's key.
    KeyId,
    /// The token's claims, checked against the local clock.
    Claims,
    /// The target's AuthenticationConfiguration.
    Configuration,
    /// The target's own view of the issuer and its keys.
    TargetKeys,
    /// The target's clock.
    Clock,
    /// The connection to the target, with its CA.
    Connection,
    /// The user that the target takes the token's bearer for.
    Authentication,
    /// The right to impersonate, if the object asks for it.
    Impersonation,
    /// The user's rights at the target.
    Rights,
    /// The probe with which client-go finds out whether it must throttle itself.
    FlowControl,
    /// What Flux reports about the object that the diagnosis starts from.
    Flux,
}

/// The result of one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Status {
    /// The hop works.
    Well,
    /// The hop works, but something about it needs attention.
    Warning,
    /// The hop is broken.
    Broken,
    /// The evidence does not suffice to decide.
    Undetermined,
    /// Nothing needs this hop.
    NotAsked,
}

/// Why a hop is broken, under a stable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A reason code of this crate.
    Code(Code),
    /// A reason code of the broker.
    Reason(Reason),
}

/// The result of one hop, with its cause and details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The hop that was examined.
    pub hop: Hop,
    /// Whether the hop works.
    pub status: Status,
    /// The cause, if the hop does not simply work.
    pub cause: Option<Cause>,
    /// What was observed, in one line.
    pub detail: String,
    /// What to do about exactly this, where the cause has several fixes.
    pub fix: Option<&'static str>,
}

/// The overall result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Every hop works.
    Well,
    /// At least one hop is broken.
    Broken,
    /// Whether or where a hop is broken is unknown.
    Undetermined,
}

/// The result of every hop, in order, and the overall verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The overall result.
    pub verdict: Verdict,
    /// The first broken hop, if the verdict is `Broken`.
    pub broken: Option<Hop>,
    /// The result of every hop, in order.
    pub findings: Vec<Finding>,
}

/// Examines every hop and finds the first broken one.
#[must_use]
pub fn examine(evidence: &Evidence) -> Diagnosis {
    let parsed_token = token::ParsedToken::of(evidence);
    let mut findings = vec![
        token::start(evidence),
        token::token(evidence, &parsed_token),
        token::issuer(evidence, &parsed_token),
        documents::diagnose_discovery(evidence, &parsed_token),
        documents::diagnose_keys(evidence),
        documents::diagnose_key_id(evidence, &parsed_token),
        token::claims(evidence, &parsed_token),
    ];
    let (configuration, target_keys) = target::diagnose_trust(evidence, &parsed_token);
    findings.extend([
        configuration,
        target_keys,
        token::clock(evidence, &parsed_token),
        target::diagnose_connection(evidence),
    ]);
    findings.extend([
        target::diagnose_authentication(evidence, &parsed_token),
        target::diagnose_impersonation(evidence),
        target::diagnose_rights(evidence),
    ]);
    findings.extend([
        target::diagnose_flow_control(evidence),
        target::diagnose_flux(evidence),
    ]);
    if evidence.relying_party {
        for finding in &mut findings {
            target::without_cluster(finding);
        }
    }
    if matches!(evidence.token_evidence, TokenEvidence::NotAToken(_)) {
        findings.iter_mut().for_each(leave_out_token);
    }
    conclude(findings)
}

/// Marks a hop that only a token passes as not needed, because the credential is none.
fn leave_out_token(finding: &mut Finding) {
    let of_token = matches!(
        finding.hop,
        Hop::Issuer
            | Hop::Discovery
            | Hop::Keys
            | Hop::KeyId
            | Hop::Claims
            | Hop::Configuration
            | Hop::TargetKeys
    );
    if of_token && finding.status == Status::Undetermined {
        *finding = Finding::not_asked(finding.hop, "there is no token to check");
    }
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
        // A refusal is only an effect: while an earlier hop is undetermined, the broken hop is
        // unknown.
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
                "publish the key with this kid; Keyferry publishes a new key of the hub within \
                 10 s"
            }
            Self::Reason(Reason::ClockSkew) => "synchronize both clocks with the same time server",
            Self::Reason(Reason::IdentityUnexpected) => {
                "at the target, set claimMappings.username.prefix to the hub's name and a colon, \
                 as keyferry trust prints it"
            }
            Self::Reason(Reason::AudienceIsHubs) => {
                "give the target its own audience, in its TargetCluster and at the target"
            }
            Self::Reason(Reason::MintForbidden) => {
                "on the hub, grant create on serviceaccounts/token for this ServiceAccount"
            }
            Self::Reason(Reason::ServiceAccountChanged) => {
                "create the ServiceAccount on the hub, or name the existing one"
            }
            Self::Reason(Reason::TargetAddressRefused) => {
                "correct the target's address or its DNS records; if the target really is there, \
                 name its network with --allow-target-cidr"
            }
            Self::Reason(reason) => documented_fix::of(reason),
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
            fix: None,
        }
    }

    fn of_problem(hop: Hop, status: Status, problem: &Problem) -> Self {
        Self {
            fix: problem.fix,
            ..Self::new(hop, status, Some(problem.cause), &problem.detail)
        }
    }

    fn well_finding(hop: Hop, detail: impl Into<String>) -> Self {
        Self::new(hop, Status::Well, None, detail)
    }

    fn broken_finding(hop: Hop, cause: impl Into<Cause>, detail: impl Into<String>) -> Self {
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
