//! The hops with public documents: the discovery document, the keys, and the token's key among
//! them.

use keyferry_api::reason::Reason;
use keyferry_go_formats::GoRelease;
use keyferry_kube_authn::keys::{Algorithm, KeySet, KeySetFault, PublishedSecret};
use keyferry_kube_authn::lint::not_read;
use keyferry_kube_authn::{Code, go_releases};
use serde_json::Value;

use super::token::ParsedToken;
use super::{Evidence, Fetched, Finding, Hop, HttpResponse};

pub(super) fn diagnose_discovery(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let hop = Hop::Discovery;
    let at = evidence.discovery_url.as_deref().unwrap_or_default();
    let document = match &evidence.discovery {
        Fetched::NotTried if evidence.accepted() => return not_needed(hop),
        Fetched::NotTried => {
            return Finding::open(
                hop,
                "the URL from which the target reads it is unknown; add --discovery-url",
            );
        }
        Fetched::Unreachable(how) => {
            Finding::broken_finding(hop, Code::DiscoveryUnreachable, format!("{at}: {how}"))
        }
        Fetched::Untrusted(how) => {
            Finding::broken_finding(hop, Code::DiscoveryUntrusted, format!("{at}: {how}"))
        }
        // The target may be able to read it.
        Fetched::AddressRefused(how) => return Finding::open(hop, not_read(at, how)),
        Fetched::Response(HttpResponse {
            status: status @ (401 | 403),
            ..
        }) => Finding::broken_finding(
            hop,
            Code::DiscoveryForbidden,
            format!("{at} refuses anonymous requests with status {status}"),
        ),
        Fetched::Response(HttpResponse { status: 200, body }) => document(at, body, seen),
        Fetched::Response(HttpResponse { status, .. }) => Finding::broken_finding(
            hop,
            Code::DiscoveryNotServed,
            format!("{at} answers with status {status}"),
        ),
    };
    if document.status == super::Status::Broken && !evidence.discovery_stated && evidence.accepted()
    {
        return not_needed(hop);
    }
    if document.status == super::Status::Broken && !evidence.discovery_stated {
        let detail = format!(
            "{}; the target may read it from another URL or with another CA: add --discovery-url \
             and --discovery-ca",
            document.detail
        );
        return Finding::open(hop, detail);
    }
    soften(document, Code::DiscoveryUnreachable, evidence)
}

fn document(at: &str, body: &[u8], seen: &ParsedToken) -> Finding {
    let hop = Hop::Discovery;
    let malformed = |detail: &str| {
        Finding::broken_finding(hop, Code::DiscoveryMalformed, format!("{at}: {detail}"))
    };
    let Ok(document) = serde_json::from_slice::<Value>(body) else {
        return malformed("the document is not JSON");
    };
    let text = |name: &str| {
        document
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let issuer = text("issuer");
    if let Some(wanted) = seen.issuer()
        && wanted != issuer
    {
        let detail = format!(
            "{at} is the document of {issuer:?}, but the token's iss is \
                              {wanted:?}"
        );
        return Finding::broken_finding(hop, Code::DiscoveryIssuerDiffers, detail);
    }
    if text("jwks_uri").is_empty() {
        return malformed("the document has no jwks_uri");
    }
    Finding::well_finding(hop, at)
}

pub(super) fn diagnose_keys(evidence: &Evidence) -> Finding {
    let hop = Hop::Keys;
    let at = evidence.jwks_uri.as_deref().unwrap_or_default();
    let keys_document = match &evidence.keys {
        Fetched::NotTried if evidence.accepted() && !evidence.discovery_stated => {
            return not_needed(hop);
        }
        Fetched::NotTried => return Finding::open(hop, "the URL of the keys is unknown"),
        Fetched::Unreachable(how) => {
            Finding::broken_finding(hop, Code::KeysUnreachable, format!("{at}: {how}"))
        }
        Fetched::Untrusted(how) => {
            Finding::broken_finding(hop, Code::KeysUntrusted, format!("{at}: {how}"))
        }
        Fetched::AddressRefused(how) => return Finding::open(hop, not_read(at, how)),
        Fetched::Response(HttpResponse { status: 200, body }) => match read_keys(body, evidence) {
            Ok(set) => match set.published_secret() {
                Some(PublishedSecret { index, kind }) => Finding::warning(
                    hop,
                    Code::PrivateKeyPublished,
                    format!("{at}: keys[{index}] is {kind}"),
                ),
                None => Finding::well_finding(hop, format!("{} at {at}", set.len())),
            },
            Err(KeySetFault::Undecodable(reason)) => {
                Finding::broken_finding(hop, Code::KeySetUndecodable, format!("{at}: {reason}"))
            }
            Err(KeySetFault::Undetermined(undetermined)) => {
                Finding::open(hop, format!("{at}: {}", undetermined.reason))
            }
        },
        Fetched::Response(HttpResponse { status, .. }) => Finding::broken_finding(
            hop,
            Code::KeysNotServed,
            format!("{at} answers with status {status}"),
        ),
    };
    if keys_document.status == super::Status::Broken
        && !evidence.discovery_stated
        && evidence.accepted()
    {
        return not_needed(hop);
    }
    soften(keys_document, Code::KeysUnreachable, evidence)
}

/// Reads the published keys as the target does. If its release is unknown, every release of Go that
/// a supported one uses has to agree.
fn read_keys(body: &[u8], evidence: &Evidence) -> Result<KeySet, KeySetFault> {
    let releases = evidence
        .target
        .minor
        .map_or(&GoRelease::ALL[..], go_releases);
    KeySet::read(body, releases)
}

pub(super) fn diagnose_key_id(evidence: &Evidence, seen: &ParsedToken) -> Finding {
    let hop = Hop::KeyId;
    if evidence.keys == Fetched::NotTried && evidence.accepted() && !evidence.discovery_stated {
        return not_needed(hop);
    }
    let Fetched::Response(HttpResponse { status: 200, body }) = &evidence.keys else {
        return Finding::open(hop, "the published keys could not be read");
    };
    let Ok(keys) = read_keys(body, evidence) else {
        return Finding::open(hop, "the published keys could not be read");
    };
    let Some(signed) = seen.signed() else {
        return Finding::open(hop, "there is no token with a kid");
    };
    if !signed.kid.is_empty() && !keys.kids().any(|kid| kid == signed.kid) {
        let detail = format!(
            "the token's kid {:?} is not one of the published ones: {:?}",
            signed.kid,
            keys.kids().collect::<Vec<_>>()
        );
        return Finding::broken_finding(hop, Reason::KeyNotPublished, detail);
    }
    let Some(algorithm) = Algorithm::named(&signed.algorithm) else {
        return Finding::broken_finding(
            hop,
            Code::AlgorithmUnsupported,
            format!("the token is signed with {:?}", signed.algorithm),
        );
    };
    if !signed.critical_understood
        || !keys.verifies(&signed.kid, algorithm, &signed.input, &signed.signature)
    {
        return Finding::broken_finding(
            hop,
            Code::SignatureInvalid,
            format!("the published key {:?} did not sign this token", signed.kid),
        );
    }
    Finding::well_finding(hop, format!("{:?} signed the token", signed.kid))
}

/// Where the target reads the documents is not known, but it verified the token with them. A fault
/// at another place would say nothing about the target.
fn not_needed(hop: Hop) -> Finding {
    Finding::not_asked(
        hop,
        "not checked here: the target verified the token; --discovery-url says where it reads",
    )
}

/// Downgrades an unreachable document to a warning if the target accepted the token. The target can
/// then reach it, although this machine cannot.
fn soften(found: Finding, unreachable: Code, evidence: &Evidence) -> Finding {
    if evidence.accepted() && found.cause == Some(unreachable.into()) {
        let detail = format!(
            "{}; only from here: the target accepts the token",
            found.detail
        );
        return Finding::warning(found.hop, unreachable, detail);
    }
    found
}
