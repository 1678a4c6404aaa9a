//! Checks `issuer`: URLs, audiences, certificates, egress.

use keyferry_go_formats::url::{self, UrlFault};

use super::Check;
use crate::Code;
use crate::certificate::{Judgement, go_releases, judge_authority};
use crate::config::Issuer;

pub(super) fn check_issuer(check: &mut Check, issuer: &Issuer, path: &str) {
    check_issuer_url(check, issuer, &format!("{path}.url"));
    check_discovery_url(check, issuer, &format!("{path}.discoveryURL"));
    check_audiences(check, issuer, path);
    check_authority(check, issuer, &format!("{path}.certificateAuthority"));
    let egress = issuer.egress_selector_type.as_str();
    if !matches!(egress, "" | "controlplane" | "cluster") {
        let detail = "egress selector must be either controlplane or cluster";
        check.invalid_named(
            Code::EgressSelectorUnknown,
            &format!("{path}.egressSelectorType"),
            egress,
            detail,
        );
    }
}

fn check_issuer_url(check: &mut Check, issuer: &Issuer, path: &str) {
    if issuer.url.is_empty() {
        return check.required_with_old_detail(Code::UrlMissing, path, "URL is required");
    }
    if check.disallowed.contains(&issuer.url) {
        let list: Vec<&str> = check.disallowed.iter().map(String::as_str).collect();
        let detail = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            list.join(" ")
        );
        check.add_invalid(Code::IssuerIsTargets, path, &issuer.url, &detail);
    }
    check_url(check, &issuer.url, path);
}

fn check_discovery_url(check: &mut Check, issuer: &Issuer, path: &str) {
    if issuer.discovery_url.is_empty() {
        return;
    }
    if !issuer.url.is_empty()
        && issuer.url.trim_end_matches('/') == issuer.discovery_url.trim_end_matches('/')
    {
        check.add_invalid(
            Code::DiscoveryUrlIsIssuer,
            path,
            &issuer.discovery_url,
            "discoveryURL must be different from URL",
        );
    }
    check_url(check, &issuer.discovery_url, path);
}

fn check_url(check: &mut Check, text: &str, path: &str) {
    let url = match url::parse(text) {
        Ok(url) => url,
        Err(UrlFault::Refused(reason)) => {
            return check.add_invalid(Code::UrlNotParsed, path, text, &reason);
        }
        Err(UrlFault::Undetermined(reason)) => {
            return check.add_undetermined(Code::UnusualUrl, path, reason);
        }
    };
    for (found, code, detail) in [
        (
            url.scheme != "https",
            Code::UrlNotHttps,
            "URL scheme must be https",
        ),
        (
            url.user.is_some(),
            Code::UrlHasUser,
            "URL must not contain a username or password",
        ),
        (
            !url.query.is_empty(),
            Code::UrlHasQuery,
            "URL must not contain a query",
        ),
        (
            !url.fragment.is_empty(),
            Code::UrlHasFragment,
            "URL must not contain a fragment",
        ),
    ] {
        if found {
            check.add_invalid(code, path, text, detail);
        }
    }
}

fn check_audiences(check: &mut Check, issuer: &Issuer, path: &str) {
    let audiences = &issuer.audiences;
    let list = format!("{path}.audiences");
    if audiences.is_empty() {
        return check.add_required(
            Code::AudiencesMissing,
            &list,
            &format!("at least one {list} is required"),
        );
    }
    for (index, audience) in audiences.iter().enumerate() {
        let path = format!("{list}[{index}]");
        if audience.is_empty() {
            let old_detail = "audience can't be empty";
            check.required_with_old_detail(Code::AudienceEmpty, &path, old_detail);
        }
        if audiences
            .iter()
            .take(index)
            .any(|earlier| earlier == audience)
        {
            check.add_duplicate(Code::DuplicateAudience, &path, audience);
        }
    }
    let policy = issuer.audience_match_policy.as_str();
    let path = format!("{path}.audienceMatchPolicy");
    if audiences.len() > 1 && policy != "MatchAny" {
        let detail = "audienceMatchPolicy must be MatchAny for multiple audiences";
        check.invalid_named(Code::MatchPolicyWrong, &path, policy, detail);
    }
    if audiences.len() == 1 && !matches!(policy, "" | "MatchAny") {
        let detail = "audienceMatchPolicy must be empty or MatchAny for single audience";
        check.invalid_named(Code::MatchPolicyWrong, &path, policy, detail);
    }
}

fn check_authority(check: &mut Check, issuer: &Issuer, path: &str) {
    let authority = issuer.certificate_authority.as_bytes();
    if authority.is_empty() {
        return;
    }
    match judge_authority(authority, go_releases(check.minor)) {
        Judgement::Taken(()) => {}
        Judgement::Refused { message, exact } => {
            check.invalid_omitted(Code::AuthorityNotCertificates, path, message, exact);
        }
        Judgement::Unsure { reason } => {
            check.add_undetermined(Code::UnusualCertificate, path, &reason)
        }
    }
}
