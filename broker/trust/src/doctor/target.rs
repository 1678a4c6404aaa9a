//! The hops that the target shows: its file, what it knows of the issuer, and what it lets the bearer do.

use super::token::Seen;
use super::{Asked, Evidence, Fetched, Finding, Hop, Identity, Prediction, Review, Status, cause_of, hash_of, predict};
use crate::Code;

/// The file and the target's own view of the keys: one question has the answer to both.
pub(super) fn trust(evidence: &Evidence, seen: &Seen) -> (Finding, Finding) {
    let keys = |known: &str| match evidence.accepted() {
        true => Finding::well(Hop::TargetKeys, "the target verified the token"),
        false => Finding::open(Hop::TargetKeys, known),
    };
    if let Some(issuer) = seen.issuer()
        && evidence.target.own_issuers.iter().any(|own| own == issuer)
    {
        let detail = format!("{issuer:?} is the target's own issuer too, so it takes no file that names it");
        return (Finding::broken(Hop::Configuration, Code::IssuerIsTargets, detail), keys("it cannot know the issuer as another's"));
    }
    if let Some(Review::Refused(words)) = &evidence.target.review {
        return by_review(words);
    }
    let asked = match &evidence.target.review {
        Some(Review::Failed(how)) => format!("the TokenReview could not be had: {how}"),
        _ => "only a TokenReview there would say; give --target-kubeconfig".to_owned(),
    };
    (configuration(evidence, seen), keys(&asked))
}

fn by_review(words: &str) -> (Finding, Finding) {
    let detail = format!("the target says: {words}");
    let unread = || Finding::open(Hop::TargetKeys, "the target did not come so far");
    match cause_of(words) {
        Some((Hop::TargetKeys, code)) => {
            (Finding::open(Hop::Configuration, "the target did not come so far"), Finding::broken(Hop::TargetKeys, code, detail))
        }
        Some((_, code)) => (Finding::broken(Hop::Configuration, code, detail), unread()),
        None => (Finding::broken(Hop::Configuration, Code::TokenRefused, detail), unread()),
    }
}

fn configuration(evidence: &Evidence, seen: &Seen) -> Finding {
    let hop = Hop::Configuration;
    let accepted = evidence.accepted();
    let Some(file) = &evidence.configuration else {
        return if accepted {
            Finding::well(hop, "the target takes the token")
        } else {
            Finding::open(hop, "give --auth-config, or --target-kubeconfig")
        };
    };
    let Some(token) = &seen.token else { return Finding::open(hop, "there is no token to try on the file") };
    let Some(minor) = evidence.target.minor else {
        return Finding::open(hop, "the target's release is not known, or not one of 1.30 to 1.37; give --kubernetes");
    };
    let jwks = match &evidence.keys {
        Fetched::Answer(answer) if answer.status == 200 => Some(answer.body.as_slice()),
        _ => None,
    };
    let own = &evidence.target.own_issuers;
    let prediction = predict(&file.bytes, minor, own, token, jwks, evidence.target_time());
    let same = evidence.target.in_force.as_ref().map(|hashes| hashes.contains(&hash_of(&file.bytes)));
    let compared = match same {
        Some(true) => "this file is in force",
        Some(false) => "another file is in force",
        None => "whether this file is in force could not be compared",
    };
    match (prediction, same, accepted) {
        (Prediction::Refused(code, words), ..) => Finding::broken(hop, code, format!("the target does not take the file: {words}")),
        (_, Some(false), true) => Finding::warning(hop, Code::ConfigurationNotInForce, "the target takes the token, but by another file"),
        (_, Some(false), false) => {
            Finding::broken(hop, Code::ConfigurationNotInForce, "the target's metrics show the hash of another file")
        }
        (Prediction::Rejected(_, words), _, true) => {
            let detail = format!("the file refuses the token ({words}), but the target takes it: it is not the file in force");
            Finding::warning(hop, Code::ConfigurationNotInForce, detail)
        }
        (Prediction::Rejected(code, words), ..) => Finding::broken(hop, code, format!("by this file: {words}; {compared}")),
        (Prediction::Undetermined(_, why), _, false) => Finding::open(hop, why),
        (Prediction::Accepted(_), Some(true), _) | (_, _, true) => Finding::well(hop, format!("the file takes the token; {compared}")),
        (Prediction::Accepted(_), None, false) => Finding::open(hop, format!("the file takes the token; {compared}")),
    }
}

pub(super) fn connection(evidence: &Evidence) -> Finding {
    let hop = Hop::Connection;
    match &evidence.target.connection {
        Fetched::NotTried => Finding::open(hop, "the target's address is not known; give --target-address"),
        Fetched::Unreachable(how) => Finding::broken(hop, Code::TargetUnreachable, how),
        Fetched::Untrusted(how) => Finding::broken(hop, Code::TargetUntrusted, how),
        Fetched::Answer(_) => {
            let release = evidence.target.minor.map_or("of an unknown release".to_owned(), |minor| minor.to_string());
            Finding::well(hop, format!("the target answers, {release}"))
        }
    }
}

pub(super) fn authentication(evidence: &Evidence) -> Finding {
    let hop = Hop::Authentication;
    match &evidence.target.identity {
        Identity::NotAsked => Finding::open(hop, "there was nobody to ask, or nothing to show"),
        Identity::Refused => Finding::broken(hop, Code::TokenRefused, "the target answers 401"),
        Identity::Known(name) if name.is_empty() => Finding::well(hop, "the target knows the bearer, and does not say by which name"),
        Identity::Known(name) => Finding::well(hop, name),
        Identity::Failed(how) => Finding::open(hop, how),
    }
}

pub(super) fn impersonation(evidence: &Evidence) -> Finding {
    question(Hop::Impersonation, &evidence.target.impersonation, Code::ImpersonationDenied, Status::Broken)
}

pub(super) fn rights(evidence: &Evidence) -> Finding {
    question(Hop::Rights, &evidence.target.rights, Code::NoRights, Status::Broken)
}

pub(super) fn flow_control(evidence: &Evidence) -> Finding {
    question(Hop::FlowControl, &evidence.target.ping, Code::FlowControlForbidden, Status::Warning)
}

fn question(hop: Hop, asked: &Asked, code: Code, if_not: Status) -> Finding {
    match asked {
        Asked::NotAsked => Finding::not_asked(hop, "nothing asks for it"),
        Asked::Yes(detail) => Finding::well(hop, detail),
        Asked::No(detail) => Finding::new(hop, if_not, Some(code.into()), detail),
        Asked::Unknown(detail) => Finding::open(hop, detail),
    }
}
