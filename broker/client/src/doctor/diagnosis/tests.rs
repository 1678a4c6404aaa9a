#![allow(clippy::unwrap_used, clippy::expect_used)]

mod file;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::reason::Reason;
use keyferry_kube_authn::Minor;
use serde_json::{Value, json};

use super::*;

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

fn fetched_response(status: u16, body: &Value) -> Fetched {
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
        token_evidence: token(|_| {}),
        issuer: Some(ISSUER.to_owned()),
        audiences: vec!["t".to_owned()],
        discovery_url: Some(format!("{ISSUER}/.well-known/openid-configuration")),
        discovery_stated: true,
        discovery: fetched_response(
            200,
            &json!({ "issuer": ISSUER, "jwks_uri": "https://hub.example.com/keys" }),
        ),
        target: Target {
            connection: fetched_response(200, &json!({})),
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

/// Of the credential of a Cluster API Secret, nothing but the connection can be checked.
#[test]
fn a_credential_that_is_no_token_is_not_called_broken() {
    let mut evidence = sound();
    evidence.token_evidence = TokenEvidence::NotAToken("a client certificate".to_owned());
    evidence.discovery = Fetched::NotTried;
    evidence.target.identity = Identity::NotAsked;
    evidence.target.rights = Asked::NotAsked;
    evidence.target.ping = Asked::NotAsked;
    let diagnosis = examine(&evidence);
    assert_eq!(
        (diagnosis.verdict, diagnosis.broken),
        (Verdict::Undetermined, None),
        "{diagnosis:#?}"
    );
    let status = |hop| finding(&diagnosis, hop).status;
    assert_eq!(
        finding(&diagnosis, Hop::Token).detail,
        "a client certificate"
    );
    assert_eq!(status(Hop::Keys), Status::NotAsked);
    assert_eq!(status(Hop::Connection), Status::Well);
    assert_eq!(status(Hop::Authentication), Status::Undetermined);
    evidence.target.connection = Fetched::Unreachable("refused".to_owned());
    assert_eq!(examine(&evidence).broken, Some(Hop::Connection));
}

#[test]
fn a_right_that_the_user_lacks_is_no_broken_hop() {
    for edit in [
        |e: &mut Evidence| e.start_unknown = Some("you may not get it".to_owned()),
        |e: &mut Evidence| e.token_evidence = TokenEvidence::Unknown("you may not".to_owned()),
    ] {
        let mut evidence = sound();
        edit(&mut evidence);
        let diagnosis = examine(&evidence);
        assert_eq!(diagnosis.broken, None, "{diagnosis:#?}");
        assert_eq!(diagnosis.verdict, Verdict::Undetermined);
    }
}

/// A target that verified the token has read the keys, wherever it reads them.
#[test]
fn an_accepted_token_needs_no_documents_at_an_unknown_place() {
    for (discovery, keys) in [
        (Fetched::NotTried, Fetched::NotTried),
        (
            Fetched::Untrusted("another CA".to_owned()),
            Fetched::NotTried,
        ),
        (fetched_response(404, &json!({})), Fetched::NotTried),
    ] {
        let mut evidence = sound();
        (evidence.discovery, evidence.keys) = (discovery, keys);
        evidence.discovery_stated = false;
        let diagnosis = examine(&evidence);
        assert_eq!(diagnosis.verdict, Verdict::Well, "{diagnosis:#?}");
        assert_eq!(finding(&diagnosis, Hop::KeyId).status, Status::NotAsked);
        evidence.discovery_stated = true;
        assert_ne!(examine(&evidence).verdict, Verdict::Well, "a stated place");
        evidence.discovery_stated = false;
        evidence.target.identity = Identity::Refused;
        assert_eq!(examine(&evidence).verdict, Verdict::Undetermined);
    }
}

#[test]
fn a_fix_of_the_finding_goes_before_that_of_its_cause() {
    let mut evidence = sound();
    let problem = Problem::new(Code::KubeconfigUnusable, "it has no token");
    evidence.start_problem = Some(problem.clone());
    let fix = |evidence: &Evidence| {
        let report = Report::of("s", vec![Mode::Network], &examine(evidence));
        report.broken.and_then(|hop| hop.fix)
    };
    assert_eq!(fix(&evidence), Some(Code::KubeconfigUnusable.fix()));
    evidence.start_problem = Some(problem.with_fix("write a token"));
    assert_eq!(fix(&evidence), Some("write a token"));
}

#[test]
fn the_first_broken_hop_is_named_with_its_cause() {
    assert_broken(
        |e| {
            e.start_problem = Some(Problem::new(Code::StartUnread, ""));
        },
        Hop::Start,
        Code::StartUnread,
    );
    assert_broken(
        |e| e.token_evidence = TokenEvidence::Token(b"x".to_vec()),
        Hop::Token,
        Code::TokenUnreadable,
    );
    let deleted = Problem::new(Reason::ServiceAccountChanged, "");
    assert_broken(
        |e| e.token_evidence = TokenEvidence::Failed(deleted),
        Hop::Token,
        Reason::ServiceAccountChanged,
    );
    assert_broken(
        |e| e.issuer = Some(format!("{ISSUER}/")),
        Hop::Issuer,
        Code::IssuerDiffers,
    );
    assert_broken(
        |e| e.token_evidence = token(|c| c["iss"] = json!("http://hub")),
        Hop::Issuer,
        Code::UrlNotHttps,
    );
    assert_broken(
        |e| e.discovery = Fetched::Untrusted(String::new()),
        Hop::Discovery,
        Code::DiscoveryUntrusted,
    );
    assert_broken(
        |e| e.discovery = fetched_response(403, &json!({})),
        Hop::Discovery,
        Code::DiscoveryForbidden,
    );
    assert_broken(
        |e| e.discovery = fetched_response(404, &json!({})),
        Hop::Discovery,
        Code::DiscoveryNotServed,
    );
    assert_broken(
        |e| e.discovery = fetched_response(200, &json!({ "issuer": ISSUER })),
        Hop::Discovery,
        Code::DiscoveryMalformed,
    );
    let other = json!({ "issuer": "https://other", "jwks_uri": "https://other/keys" });
    assert_broken(
        |e| e.discovery = fetched_response(200, &other),
        Hop::Discovery,
        Code::DiscoveryIssuerDiffers,
    );
    assert_broken(
        |e| e.keys = fetched_response(404, &json!({})),
        Hop::Keys,
        Code::KeysNotServed,
    );
    assert_broken(
        |e| e.keys = fetched_response(200, &json!({ "keys": [{ "kty": "odd" }] })),
        Hop::Keys,
        Code::KeySetUndecodable,
    );
    assert_broken(
        |e| e.keys = fetched_response(200, &json!({ "keys": [] })),
        Hop::KeyId,
        Reason::KeyNotPublished,
    );
    assert_broken(
        |e| e.audiences = vec!["u".to_owned()],
        Hop::Claims,
        Code::AudienceDiffers,
    );
    assert_broken(
        |e| e.token_evidence = token(|c| c["exp"] = json!(NOW - 1)),
        Hop::Claims,
        Code::TokenExpired,
    );
    assert_broken(
        |e| e.token_evidence = token(|c| c["nbf"] = json!(NOW + 61)),
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
    assert_undetermined(|e| e.token_evidence = TokenEvidence::None);
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
fn an_account_that_the_hub_lacks_is_a_warning_and_never_hides_a_broken_hop() {
    let mut evidence = sound();
    evidence.target.impersonation = Asked::Yes("granted".to_owned());
    evidence.flux_account_missing = Some("tenant-a/applier".to_owned());
    let diagnosis = examine(&evidence);
    let hop = finding(&diagnosis, Hop::Impersonation);
    assert_eq!(
        (hop.status, hop.cause),
        (Status::Warning, Some(Code::FluxAccountMissing.into()))
    );
    assert_eq!(
        hop.detail,
        "ServiceAccount tenant-a/applier missing on the hub, Flux will not prune"
    );
    assert_eq!(diagnosis.broken, None);
    evidence.target.impersonation = Asked::No("not granted".to_owned());
    let diagnosis = examine(&evidence);
    let hop = finding(&diagnosis, Hop::Impersonation);
    assert_eq!(hop.cause, Some(Code::ImpersonationDenied.into()));
    assert!(hop.detail.contains("missing on the hub"), "{hop:?}");
}

#[test]
fn a_relying_party_has_no_hops_of_a_cluster() {
    let mut evidence = sound();
    evidence.target = Target::default();
    evidence.relying_party = true;
    let diagnosis = examine(&evidence);
    for hop in [
        Hop::Configuration,
        Hop::TargetKeys,
        Hop::Clock,
        Hop::Connection,
        Hop::Authentication,
        Hop::Rights,
    ] {
        assert_eq!(finding(&diagnosis, hop).status, Status::NotAsked, "{hop:?}");
    }
    // What is published is looked at as for a cluster.
    assert_eq!(finding(&diagnosis, Hop::Discovery).status, Status::Well);
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
