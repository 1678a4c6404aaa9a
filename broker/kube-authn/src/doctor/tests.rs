#![allow(clippy::unwrap_used, clippy::expect_used)]

mod file;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::reason::Reason;
use serde_json::{Value, json};

use super::*;
use crate::Minor;

const ISSUER: &str = "https://hub.example.com";
const NOW: i64 = 1_800_000_000;

fn token(edit: impl FnOnce(&mut Value)) -> TokenEvidence {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = json!({ "iss": ISSUER, "sub": "system:serviceaccount:a:b", "aud": ["t"], "exp": NOW + 600, "iat": NOW, "nbf": NOW });
    edit(&mut claims);
    TokenEvidence::Token(
        format!(
            "{}.{}.{}",
            encode(&json!({ "alg": "RS256", "kid": "k1" })),
            encode(&claims),
            URL_SAFE_NO_PAD.encode("x")
        )
        .into(),
    )
}

fn answer(status: u16, body: &Value) -> Fetched {
    Fetched::Response(HttpResponse {
        status,
        body: body.to_string().into(),
    })
}

fn file(rules: &str) -> Option<ConfigurationFile> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {ISSUER}\n    audiences: [t]\n\
         {rules}  claimMappings:\n    username: {{claim: sub, prefix: 'hub:'}}\n"
    );
    Some(ConfigurationFile { bytes: text.into() })
}

/// Evidence without a fault. The keys are left out, because no key signed the token.
fn sound() -> Evidence {
    Evidence {
        now: Timestamp::from_second(NOW).unwrap(),
        start: "flags".to_owned(),
        held: token(|_| {}),
        issuer: Some(ISSUER.to_owned()),
        audiences: vec!["t".to_owned()],
        discovery_url: Some(format!("{ISSUER}/.well-known/openid-configuration")),
        discovery_stated: true,
        discovery: answer(
            200,
            &json!({ "issuer": ISSUER, "jwks_uri": "https://hub.example.com/keys" }),
        ),
        target: Target {
            connection: answer(200, &json!({})),
            skew: Some(SignedDuration::ZERO),
            minor: Some(Minor::V1_36),
            identity: Identity::Known("hub:system:serviceaccount:a:b".to_owned()),
            rights: Asked::Yes("some".to_owned()),
            ping: Asked::Yes(String::new()),
            ..Target::default()
        },
        ..Evidence::default()
    }
}

fn finding(diagnosis: &Diagnosis, hop: Hop) -> Finding {
    diagnosis
        .findings
        .iter()
        .find(|finding| finding.hop == hop)
        .unwrap()
        .clone()
}

#[track_caller]
fn assert_broken(edit: impl FnOnce(&mut Evidence), hop: Hop, cause: impl Into<Cause>) {
    let mut evidence = sound();
    edit(&mut evidence);
    let diagnosis = examine(&evidence);
    assert_eq!(diagnosis.broken, Some(hop), "{diagnosis:#?}");
    assert_eq!(finding(&diagnosis, hop).cause, Some(cause.into()));
}

#[track_caller]
fn assert_undetermined(edit: impl FnOnce(&mut Evidence)) {
    let mut evidence = sound();
    edit(&mut evidence);
    let diagnosis = examine(&evidence);
    assert_eq!(
        (diagnosis.verdict, diagnosis.broken),
        (Verdict::Undetermined, None),
        "{diagnosis:#?}"
    );
}

fn loaded(hash: &str) -> ActiveConfiguration {
    ActiveConfiguration {
        hashes: vec![hash.to_owned()],
        reload_failed: None,
    }
}

fn refused(evidence: &mut Evidence) {
    evidence.target.identity = Identity::Refused;
}

#[test]
fn each_hop_stands_once_and_in_its_order() {
    let findings = examine(&sound()).findings;
    assert_eq!(findings.len(), 16);
    assert!(findings.is_sorted_by(|one, next| one.hop < next.hop));
    assert!(
        examine(&Evidence::default())
            .findings
            .iter()
            .all(|finding| finding.status != Status::Broken),
        "nothing seen, nothing broken"
    );
}

#[test]
fn the_first_broken_hop_is_named_with_its_cause() {
    assert_broken(
        |e| {
            e.start_problem = Some(Problem {
                cause: Code::StartUnread.into(),
                detail: String::new(),
            })
        },
        Hop::Start,
        Code::StartUnread,
    );
    assert_broken(
        |e| e.held = TokenEvidence::Token(b"x".to_vec()),
        Hop::Token,
        Code::TokenUnreadable,
    );
    let deleted = Problem {
        cause: Reason::ServiceAccountChanged.into(),
        detail: String::new(),
    };
    assert_broken(
        |e| e.held = TokenEvidence::Failed(deleted),
        Hop::Token,
        Reason::ServiceAccountChanged,
    );
    assert_broken(
        |e| e.issuer = Some(format!("{ISSUER}/")),
        Hop::Issuer,
        Code::IssuerDiffers,
    );
    assert_broken(
        |e| e.held = token(|c| c["iss"] = json!("http://hub")),
        Hop::Issuer,
        Code::UrlNotHttps,
    );
    assert_broken(
        |e| e.discovery = Fetched::Untrusted(String::new()),
        Hop::Discovery,
        Code::DiscoveryUntrusted,
    );
    assert_broken(
        |e| e.discovery = answer(403, &json!({})),
        Hop::Discovery,
        Code::DiscoveryForbidden,
    );
    assert_broken(
        |e| e.discovery = answer(404, &json!({})),
        Hop::Discovery,
        Code::DiscoveryNotServed,
    );
    assert_broken(
        |e| e.discovery = answer(200, &json!({ "issuer": ISSUER })),
        Hop::Discovery,
        Code::DiscoveryMalformed,
    );
    let other = json!({ "issuer": "https://other", "jwks_uri": "https://other/keys" });
    assert_broken(
        |e| e.discovery = answer(200, &other),
        Hop::Discovery,
        Code::DiscoveryIssuerDiffers,
    );
    assert_broken(
        |e| e.keys = answer(404, &json!({})),
        Hop::Keys,
        Code::KeysNotServed,
    );
    assert_broken(
        |e| e.keys = answer(200, &json!({ "keys": [{ "kty": "odd" }] })),
        Hop::Keys,
        Code::KeySetUndecodable,
    );
    assert_broken(
        |e| e.keys = answer(200, &json!({ "keys": [] })),
        Hop::KeyId,
        Reason::KeyNotPublished,
    );
    assert_broken(
        |e| e.audiences = vec!["u".to_owned()],
        Hop::Claims,
        Code::AudienceDiffers,
    );
    assert_broken(
        |e| e.held = token(|c| c["exp"] = json!(NOW - 1)),
        Hop::Claims,
        Code::TokenExpired,
    );
    assert_broken(
        |e| e.held = token(|c| c["nbf"] = json!(NOW + 61)),
        Hop::Claims,
        Code::TokenNotYetValid,
    );
    assert_broken(
        |e| e.target.own_issuers = vec![ISSUER.to_owned()],
        Hop::Configuration,
        Code::IssuerIsTargets,
    );
    assert_broken(
        |e| e.target.skew = Some(SignedDuration::from_secs(601)),
        Hop::Clock,
        Reason::ClockSkew,
    );
    assert_broken(
        |e| e.target.connection = Fetched::Untrusted(String::new()),
        Hop::Connection,
        Code::TargetUntrusted,
    );
    assert_broken(
        |e| e.target.impersonation = Asked::No(String::new()),
        Hop::Impersonation,
        Code::ImpersonationDenied,
    );
    assert_broken(
        |e| e.target.rights = Asked::No(String::new()),
        Hop::Rights,
        Code::NoRights,
    );
}

#[test]
fn a_refusal_without_a_cause_is_undetermined() {
    assert_undetermined(refused);
    assert_undetermined(|e| e.held = TokenEvidence::None);
    // The file accepts the token, but whether the target uses it is unknown.
    assert_undetermined(|e| (refused(e), e.configuration = file("")).1);
    // The file is active and accepts the token, so the target's view of the keys is undetermined.
    assert_undetermined(|e| {
        refused(e);
        e.configuration = file("");
        e.target.active = e
            .configuration
            .as_ref()
            .map(|file| loaded(&hash_of(&file.bytes)));
    });
    // The document's URL was not given, so its absence at the default URL proves nothing.
    assert_undetermined(|e| {
        (
            refused(e),
            e.discovery_stated = false,
            e.discovery = Fetched::Unreachable(String::new()),
        )
            .2
    });
}

#[test]
fn rights_that_nobody_asked_for_are_a_warning_and_a_wrong_subject_is_named() {
    let mut evidence = sound();
    evidence.target.rights = Asked::NothingYet("no rights".to_owned());
    let found = MistakenBinding {
        binding: "RoleBinding apps/x".to_owned(),
        subject: "kind ServiceAccount a/b".to_owned(),
    };
    evidence.target.mistaken_bindings = vec![found];
    let diagnosis = examine(&evidence);
    let rights = finding(&diagnosis, Hop::Rights);
    assert_eq!(
        (diagnosis.broken, rights.status, rights.cause),
        (None, Status::Warning, Some(Code::NoRights.into()))
    );
    assert!(
        rights.detail.contains(
            "RoleBinding apps/x names kind ServiceAccount a/b; the subject must have \
             kind User and name hub:system:"
        ),
        "{rights:?}"
    );
}

#[test]
fn impersonation_that_is_ignored_is_broken_and_flux_is_quoted() {
    assert_broken(
        |e| e.target.impersonation_ignored = Some("hub:x".to_owned()),
        Hop::Impersonation,
        Code::ImpersonationIgnored,
    );
    let mut evidence = sound();
    evidence.flux = Some(FluxReady {
        status: "False".to_owned(),
        message: "BuildFailed: no such file".to_owned(),
    });
    let flux = finding(&examine(&evidence), Hop::Flux);
    assert_eq!(
        (flux.status, flux.cause),
        (Status::Warning, Some(Code::FluxNotReady.into()))
    );
    assert!(
        flux.detail.contains("BuildFailed: no such file"),
        "{flux:?}"
    );
}

#[test]
fn a_review_names_the_cause_of_a_refusal() {
    let cases = [
        (
            "invalid bearer token",
            Hop::Configuration,
            Code::IssuerDiffers,
        ),
        (
            "[invalid bearer token, oidc: authenticator not initialized]",
            Hop::TargetKeys,
            Code::AuthenticatorNotInitialized,
        ),
        (
            "[invalid bearer token, oidc: verify token: oidc: expected audience \"a\" got [\"x\"]]",
            Hop::Configuration,
            Code::AudienceDiffers,
        ),
        (
            "[invalid bearer token, oidc: verify token: failed to verify signature: failed to \
             verify id token signature]",
            Hop::TargetKeys,
            Code::SignatureInvalid,
        ),
        (
            "[invalid bearer token, oidc: verify token: failed to verify signature: fetching keys \
             oidc: get keys failed x]",
            Hop::TargetKeys,
            Code::TargetCannotReadKeys,
        ),
        (
            "[invalid bearer token, oidc: error evaluating claim validation expression: validation \
             expression 'token is expired' failed: no]",
            Hop::Configuration,
            Code::ClaimRuleFalse,
        ),
        (
            "[invalid bearer token, invalid signature, no keys found]",
            Hop::Configuration,
            Code::IssuerIsTargets,
        ),
        (
            "[invalid bearer token, something new]",
            Hop::Configuration,
            Code::TokenRefused,
        ),
    ];
    for (words, hop, code) in cases {
        assert_broken(
            |e| {
                (
                    refused(e),
                    e.target.review = Some(Review::Refused(words.to_owned())),
                )
                    .1
            },
            hop,
            code,
        );
    }
}

#[test]
fn evidence_does_not_print_the_token() {
    let TokenEvidence::Token(bytes) = token(|_| {}) else {
        panic!("no token")
    };
    let text = String::from_utf8(bytes).unwrap();
    let printed = format!("{:?}", sound());
    assert!(
        text.split('.')
            .filter(|part| part.len() > 8)
            .all(|part| !printed.contains(part)),
        "{printed}"
    );
    assert!(
        !printed.contains(
            &format!("{:?}", text.as_bytes())
                .trim_matches(['[', ']'])
                .to_owned()
        ),
        "as numbers"
    );
}

#[test]
fn what_only_we_cannot_reach_is_no_break_while_the_target_takes_the_token() {
    let mut evidence = sound();
    evidence.discovery = Fetched::Unreachable("no route".to_owned());
    let diagnosis = examine(&evidence);
    assert_eq!(finding(&diagnosis, Hop::Discovery).status, Status::Warning);
    refused(&mut evidence);
    assert_eq!(examine(&evidence).broken, Some(Hop::Discovery));
}

#[test]
fn every_cause_has_a_fix_and_the_report_holds_no_control_characters() {
    let mut evidence = sound();
    evidence.target.review = Some(Review::Refused("a\u{1b}[31m\nb".to_owned()));
    refused(&mut evidence);
    let report = Report::of("flags", vec![Mode::Network], &examine(&evidence));
    let text = serde_json::to_string(&report).unwrap();
    assert!(!text.contains("\\u001b") && !text.contains("\\n"), "{text}");
    assert_eq!(report.broken.unwrap().fix, Some(Code::TokenRefused.fix()));
}
