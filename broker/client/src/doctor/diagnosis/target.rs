//! The hops at the target: its file, its view of the issuer, and the bearer's rights.

use keyferry_api::reason::Reason;
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::prediction::{audiences_of, quote_list};
use keyferry_kube_authn::{Code, Minor};

use super::token::ParsedToken;
use super::{
    Asked, ConfigurationFile, Evidence, Fetched, Finding, Hop, Identity, Prediction, Review,
    Status, TokenEvidence, cause_of, hash_of, issuers_of, name_fault, predict_verdict,
};

/// Examines the file and the target's view of the keys, because one TokenReview shows both.
pub(super) fn diagnose_trust(evidence: &Evidence, seen: &ParsedToken) -> (Finding, Finding) {
    let (configuration, keys) = trusted(evidence, seen);
    (with_lint(configuration, evidence), keys)
}

fn trusted(evidence: &Evidence, seen: &ParsedToken) -> (Finding, Finding) {
    let keys = |known: &str| match evidence.accepted() {
        true => Finding::well_finding(Hop::TargetKeys, "the target verified the token"),
        false => Finding::open(Hop::TargetKeys, known),
    };
    if let Some(issuer) = seen.issuer()
        && evidence.target.own_issuers.iter().any(|own| own == issuer)
    {
        let detail = format!(
            "{issuer:?} is also the target's own issuer, so the target refuses a file \
                     that names it"
        );
        return (
            Finding::broken_finding(Hop::Configuration, Code::IssuerIsTargets, detail),
            keys("the target cannot trust another cluster with its own issuer"),
        );
    }
    if let Some(Review::Refused(words)) = &evidence.target.review {
        return by_review(words, evidence, seen);
    }
    let asked = match &evidence.target.review {
        Some(Review::Failed(how)) => format!("the TokenReview failed: {how}"),
        _ => "only a TokenReview at the target shows this; add --target-kubeconfig".to_owned(),
    };
    (configuration(evidence, seen), keys(&asked))
}

fn by_review(words: &str, evidence: &Evidence, seen: &ParsedToken) -> (Finding, Finding) {
    let unread = || Finding::open(Hop::TargetKeys, "the target stopped before this step");
    let (hop, code) = cause_of(words).unwrap_or((Hop::Configuration, Code::TokenRefused));
    let mut detail = format!("the target says: {words}");
    if hop == Hop::TargetKeys {
        return (
            Finding::open(Hop::Configuration, "the target stopped before this step"),
            Finding::broken_finding(Hop::TargetKeys, code, detail),
        );
    }
    if let Some(disagreement) = disagreement(code, evidence, seen) {
        let detail = format!("{detail}; {disagreement}");
        return (
            Finding::broken_finding(Hop::Configuration, Code::ConfigurationNotActive, detail),
            unread(),
        );
    }
    if code == Code::IssuerDiffers {
        let issuer = seen.issuer().unwrap_or_default();
        detail = format!("{detail}: it does not know the issuer {issuer:?}");
        if let Some(file) = &evidence.configuration {
            detail = format!(
                "{detail}; issuer.url of the file is {}",
                quote_list(&issuers_of(&file.bytes))
            );
        }
    }
    if code == Code::AudienceDiffers
        && let Some(file) = &evidence.configuration
    {
        // A target that is a role needs a file with its audience beside the base's.
        let audiences = audiences_of(&file.bytes, seen.issuer().unwrap_or_default());
        detail = format!(
            "{detail}; the audiences of the file are {}",
            quote_list(&audiences)
        );
    }
    // The target's own words are the cause. That it has another file explains them.
    if let Some(file) = &evidence.configuration
        && runs_with(file, evidence) == Some(false)
    {
        detail = format!("{detail}; {}", loaded_instead(file, evidence));
    }
    (
        Finding::broken_finding(Hop::Configuration, code, detail),
        unread(),
    )
}

/// Explains why the file accepts a token that the target refuses: the target does not use the file.
fn disagreement(code: Code, evidence: &Evidence, seen: &ParsedToken) -> Option<String> {
    let file = evidence.configuration.as_ref()?;
    // These do not depend on the file alone: the target's own issuer, the clocks, the token itself.
    let elsewhere = [
        Code::IssuerIsTargets,
        Code::TokenExpired,
        Code::TokenNotYetValid,
        Code::MalformedJwt,
        Code::AlgorithmUnsupported,
    ];
    if elsewhere.contains(&code) || code == Code::TokenRefused {
        return None;
    }
    let prediction = predict_verdict(
        &file.bytes,
        evidence.target.minor?,
        &[],
        seen.token.as_ref()?,
        jwks(evidence),
        evidence.target_time(),
    );
    if !matches!(prediction, Prediction::Accepted(_)) {
        return None;
    }
    let theirs = if code == Code::IssuerDiffers {
        "but the target does not know its issuer"
    } else {
        "but the target refuses it"
    };
    Some(match runs_with(file, evidence) {
        Some(false) => format!(
            "the file accepts this token, {theirs}: the file is not active: {}",
            loaded_instead(file, evidence)
        ),
        Some(true) => {
            format!(
                "the file accepts this token, {theirs}, although an apiserver there has loaded \
                 the file: other apiservers behind the same address may not have"
            )
        }
        None => format!(
            "the file accepts this token, {theirs}: the file is not active. Was kube-apiserver \
             restarted with --authentication-config and this file?"
        ),
    })
}

/// Reports an error of lint, because such a file gives rights away whatever it does with this
/// token.
fn with_lint(finding: Finding, evidence: &Evidence) -> Finding {
    let (Some(file), Some(minor)) = (&evidence.configuration, evidence.target.minor) else {
        return finding;
    };
    let first_error = lint_file(&file.bytes, minor, &[])
        .into_iter()
        .find(|found| found.severity == Severity::Error);
    let Some(found) = first_error.filter(|found| finding.cause != Some(found.code.into())) else {
        return finding;
    };
    let line = found
        .line
        .map_or_else(String::new, |line| format!(" (line {line})"));
    let words = format!(
        "{} at {}{line} of the file: {}",
        found.code, found.path, found.message
    );
    match finding.status {
        Status::Broken => Finding {
            detail: format!("{}; also {words}", finding.detail),
            ..finding
        },
        _ => Finding::broken_finding(Hop::Configuration, found.code, words),
    }
}

fn jwks(evidence: &Evidence) -> Option<&[u8]> {
    match &evidence.keys {
        Fetched::Response(answer) if answer.status == 200 => Some(answer.body.as_slice()),
        _ => None,
    }
}

/// The first release whose metrics show the hash of the loaded file.
const SHOWS_HASH: Minor = Minor::V1_34;

/// Whether the target's metrics show this file's hash; `None` if they cannot.
fn runs_with(file: &ConfigurationFile, evidence: &Evidence) -> Option<bool> {
    let active = evidence.target.active.as_ref()?;
    let can_show = evidence
        .target
        .minor
        .is_some_and(|minor| minor >= SHOWS_HASH);
    (can_show || !active.hashes.is_empty()).then(|| active.hashes.contains(&hash_of(&file.bytes)))
}

/// Describes the file that the target has loaded instead of this one.
fn loaded_instead(file: &ConfigurationFile, evidence: &Evidence) -> String {
    let active = evidence.target.active.clone().unwrap_or_default();
    let loaded = if active.hashes.is_empty() {
        "has loaded no file".to_owned()
    } else {
        format!("has loaded {}", active.hashes.join(", "))
    };
    let reload = active.reload_failed.map_or_else(String::new, |at| {
        format!("; its last reload failed at {at}")
    });
    format!(
        "this file has the hash {}, the target {loaded}{reload}",
        hash_of(&file.bytes)
    )
}

fn configuration(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let hop = Hop::Configuration;
    let accepted = evidence.accepted();
    let Some(file) = &evidence.configuration else {
        return if accepted {
            Finding::well_finding(hop, "the target accepts the token")
        } else {
            Finding::open(hop, "add --auth-config or --target-kubeconfig")
        };
    };
    let same = runs_with(file, evidence);
    let instead = || loaded_instead(file, evidence);
    let Some(token) = &seen.token else {
        // The hashes need no token, and a token may be what the admin waits for.
        return match same {
            Some(false) => Finding::broken_finding(hop, Code::ConfigurationNotActive, instead()),
            Some(true) => Finding::open(
                hop,
                "this file is active; there is no token to check against it",
            ),
            None => Finding::open(hop, "there is no token to check against the file"),
        };
    };
    let Some(minor) = evidence.target.minor else {
        return Finding::open(
            hop,
            "the target's release is unknown, or not one of 1.30 to 1.37; add --kubernetes",
        );
    };
    let own = &evidence.target.own_issuers;
    let prediction = predict_verdict(
        &file.bytes,
        minor,
        own,
        token,
        jwks(evidence),
        evidence.target_time(),
    );
    compare_prediction(prediction, same, accepted, &instead())
}

/// Compares the prediction from a file with what the target did. `same`: whether the target runs
/// with this file, if that is known. `instead`: what it runs with otherwise.
fn compare_prediction(
    prediction: Prediction,
    same: Option<bool>,
    accepted: bool,
    instead: &str,
) -> Finding {
    let hop = Hop::Configuration;
    let compared = match same {
        Some(true) => "this file is active".to_owned(),
        Some(false) => format!("another file is active: {instead}"),
        None => "whether this file is active is unknown".to_owned(),
    };
    match (prediction, same, accepted) {
        (Prediction::Refused(code, words), ..) => {
            Finding::broken_finding(hop, code, format!("the target refuses the file: {words}"))
        }
        (_, Some(false), true) => Finding::warning(
            hop,
            Code::ConfigurationNotActive,
            format!("the target accepts the token, but with another file: {instead}"),
        ),
        (_, Some(false), false) => Finding::broken_finding(
            hop,
            Code::ConfigurationNotActive,
            format!("the target's metrics show the hash of another file: {instead}"),
        ),
        (Prediction::Rejected(_, words), _, true) => {
            let detail = format!(
                "the file refuses the token ({words}), but the target accepts it: the file is \
                 not active"
            );
            Finding::warning(hop, Code::ConfigurationNotActive, detail)
        }
        (Prediction::Rejected(code, words), ..) => {
            Finding::broken_finding(hop, code, format!("with this file: {words}; {compared}"))
        }
        (Prediction::Undetermined(_, why), _, false) => Finding::open(hop, why),
        (Prediction::Accepted(_), Some(true), _) | (_, _, true) => {
            Finding::well_finding(hop, format!("the file accepts the token; {compared}"))
        }
        (Prediction::Accepted(_), None, false) => {
            Finding::open(hop, format!("the file accepts the token; {compared}"))
        }
    }
}

/// Marks a hop that only a Kubernetes cluster has, for a target that is another relying party.
pub(super) fn without_cluster(finding: &mut Finding) {
    let of_cluster = (Hop::Configuration..=Hop::FlowControl).contains(&finding.hop);
    if of_cluster && finding.status == Status::Undetermined {
        let hop = finding.hop;
        *finding = Finding::not_asked(hop, "the target is no Kubernetes cluster");
    }
}

pub(super) fn diagnose_connection(evidence: &Evidence) -> Finding {
    let hop = Hop::Connection;
    match &evidence.target.connection {
        Fetched::NotTried => {
            Finding::open(hop, "the target's address is unknown; add --target-address")
        }
        Fetched::Unreachable(how) => Finding::broken_finding(hop, Code::TargetUnreachable, how),
        Fetched::Untrusted(how) => Finding::broken_finding(hop, Code::TargetUntrusted, how),
        Fetched::AddressRefused(how) => {
            Finding::broken_finding(hop, Reason::TargetAddressRefused, how)
        }
        Fetched::Response(_) => {
            let release = evidence
                .target
                .minor
                .map_or("of an unknown release".to_owned(), |minor| {
                    minor.to_string()
                });
            Finding::well_finding(hop, format!("the target answers, {release}"))
        }
    }
}

pub(super) fn diagnose_authentication(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let hop = Hop::Authentication;
    let username = match (&evidence.target.identity, &evidence.target.review) {
        (Identity::Known(name), _) => name,
        // The target did not name the bearer, but a TokenReview by another user did.
        (
            Identity::NotAsked | Identity::Failed(_) | Identity::Forbidden(_),
            Some(Review::Authenticated(name)),
        ) => name,
        (Identity::Refused, _) => {
            return Finding::broken_finding(hop, Code::TokenRefused, "the target answers 401");
        }
        (Identity::NotAsked, _) => return Finding::open(hop, not_asked(evidence)),
        (Identity::Failed(how) | Identity::Forbidden(how), _) => return Finding::open(hop, how),
    };
    if let Some((cause, detail)) =
        name_fault(username, seen.subject(), evidence.hub_name.as_deref())
    {
        return Finding::broken_finding(hop, cause, detail);
    }
    match &evidence.target.identity {
        Identity::Known(name) if name.is_empty() => Finding::well_finding(
            hop,
            "the target accepts the bearer, but does not return a username",
        ),
        Identity::Failed(how) | Identity::Forbidden(how) => Finding::open(hop, how),
        Identity::NotAsked => Finding::open(hop, not_asked(evidence)),
        _ => Finding::well_finding(hop, username),
    }
}

/// Says why the target was not asked who the bearer is.
fn not_asked(evidence: &Evidence) -> &'static str {
    match evidence.token_evidence {
        TokenEvidence::NotAToken(_) => {
            "undecided: doctor sends no other credential than a token; see Token"
        }
        _ => "there is no target address or no token",
    }
}

/// Examines the right to impersonate, and whether Flux will find the ServiceAccount on the hub: its
/// finalizer looks there, not at the target, and skips pruning where there is none.
pub(super) fn diagnose_impersonation(evidence: &Evidence) -> Finding {
    let finding = impersonation_at_target(evidence);
    let Some(account) = &evidence.flux_account_missing else {
        return finding;
    };
    let missing = format!("ServiceAccount {account} missing on the hub, Flux will not prune");
    match finding.status {
        Status::Broken => Finding {
            detail: format!("{}; also {missing}", finding.detail),
            ..finding
        },
        Status::Undetermined => Finding {
            detail: format!("{missing}; {}", finding.detail),
            cause: Some(Code::FluxAccountMissing.into()),
            ..finding
        },
        _ => Finding::warning(Hop::Impersonation, Code::FluxAccountMissing, missing),
    }
}

fn impersonation_at_target(evidence: &Evidence) -> Finding {
    if let Some(name) = &evidence.target.impersonation_ignored {
        let detail = format!("the target answers as {name:?}, not as the impersonated user");
        return Finding::broken_finding(Hop::Impersonation, Code::ImpersonationIgnored, detail);
    }
    question(
        Hop::Impersonation,
        &evidence.target.impersonation,
        Code::ImpersonationDenied,
        Status::Broken,
    )
}

pub(super) fn diagnose_rights(evidence: &Evidence) -> Finding {
    let finding = question(
        Hop::Rights,
        &evidence.target.rights,
        Code::NoRights,
        Status::Broken,
    );
    let mistaken = &evidence.target.mistaken_bindings;
    if finding.cause.is_none() || mistaken.is_empty() {
        return finding;
    }
    let name = match &evidence.target.identity {
        Identity::Known(name) => name.as_str(),
        _ => "",
    };
    let bindings = mistaken
        .iter()
        .take(3)
        .map(|found| format!("{} names {}", found.binding, found.subject))
        .collect::<Vec<_>>()
        .join("; ");
    Finding {
        detail: format!(
            "{}. {bindings}; the subject must have kind User and name {name}",
            finding.detail
        ),
        ..finding
    }
}

/// Reports what Flux says. It comes last, because it is the effect of an earlier hop, or of
/// something outside the way to the target.
pub(super) fn diagnose_flux(evidence: &Evidence) -> Finding {
    let Some(ready) = &evidence.flux else {
        return Finding::not_asked(Hop::Flux, "not needed");
    };
    let detail = format!("Ready is {}: {}", ready.status, ready.message);
    match ready.status.as_str() {
        "True" => Finding::well_finding(Hop::Flux, detail),
        _ => Finding::warning(Hop::Flux, Code::FluxNotReady, detail),
    }
}

pub(super) fn diagnose_flow_control(evidence: &Evidence) -> Finding {
    question(
        Hop::FlowControl,
        &evidence.target.ping,
        Code::FlowControlForbidden,
        Status::Warning,
    )
}

fn question(hop: Hop, asked: &Asked, code: Code, if_not: Status) -> Finding {
    match asked {
        Asked::NotAsked => Finding::not_asked(hop, "not needed"),
        Asked::Yes(detail) => Finding::well_finding(hop, detail),
        Asked::No(detail) => Finding::new(hop, if_not, Some(code.into()), detail),
        Asked::NothingYet(detail) => Finding::warning(hop, code, detail),
        Asked::Unknown(detail) => Finding::open(hop, detail),
    }
}
