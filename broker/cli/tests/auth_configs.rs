//! The files of auth-configs/ do what their vectors say, for every release, with tokens that are
//! signed here.
#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use jiff::Timestamp;
use keyferry_integration::auth_configs::{self, Case, Expected, VectorSigner};
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::validate_configuration;
use keyferry_kube_authn::verify::{Keys, Outcome, Union, User, verify_token};

const NOW: i64 = 1_790_000_000;

fn certificate() -> String {
    rcgen::CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&rcgen::KeyPair::generate().unwrap())
        .unwrap()
        .pem()
}

#[test]
fn every_file_does_what_its_vectors_say() {
    let (signer, certificate) = (VectorSigner::new().unwrap(), certificate());
    let keys = Keys::for_all(signer.key_set().to_string().as_bytes());
    let now = Timestamp::from_second(NOW).unwrap();
    let mut asked = 0;
    for file in auth_configs::all().unwrap() {
        let text = file.with_certificate(&certificate);
        for minor in Minor::ALL {
            let compiled = validate_configuration(
                &load_configuration(text.as_bytes(), minor)
                    .unwrap()
                    .configuration,
                minor,
                &[],
            )
            .unwrap();
            for case in &file.vectors.cases {
                let token = Token::read(signer.token(&file.vectors, case, NOW).unwrap().as_bytes())
                    .unwrap();
                let verdict = verify_token(&compiled, &token, &keys, now);
                compare(
                    &format!("{}, {minor}, {}", file.name, case.name),
                    case,
                    verdict.union(),
                    &verdict.outcomes,
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
}

fn compare(what: &str, case: &Case, union: Union<'_>, outcomes: &[Outcome]) {
    match (case.expected().unwrap(), union) {
        (Expected::Accepted(expected), Union::Accepted(user)) => {
            let mut extra = user.extra.clone();
            extra.remove("authentication.kubernetes.io/credential-id");
            let auth_configs::User {
                username,
                groups,
                uid,
                extra: expected_extra,
            } = expected.clone();
            assert_eq!(
                User {
                    extra,
                    ..user.clone()
                },
                User {
                    username,
                    uid,
                    groups,
                    extra: expected_extra
                },
                "{what}"
            );
        }
        (Expected::Rejected(code), Union::Rejected(rejection)) => {
            assert_eq!(rejection.code.name(), code, "{what}: {}", rejection.message)
        }
        (Expected::Skipped(code), Union::Skipped) => {
            assert!(
                outcomes.iter().all(
                    |outcome| matches!(outcome, Outcome::Skipped(skipped) if skipped.name() == code)
                ),
                "{what}"
            );
        }
        (.., other) => panic!("{what}: {other:?}"),
    }
}

#[test]
fn no_file_has_a_finding_but_those_it_is_about() {
    let certificate = certificate();
    for file in auth_configs::all().unwrap() {
        let (name, text) = (&file.name, file.with_certificate(&certificate));
        let accepted_codes: &[&str] = match name.as_str() {
            "several-hubs.yaml" | "groups-from-claims.yaml" => &["ManyIssuers"],
            // As the flags were: a file that maps the same users bounds nothing that they did not.
            "from-oidc-flags.yaml" => &["NoLifetimeBound", "NoAudienceCount"],
            _ => &[],
        };
        for minor in Minor::ALL {
            let findings = lint_file(
                text.as_bytes(),
                minor,
                &["https://kubernetes.default.svc.cluster.local".to_owned()],
            );
            assert!(
                findings
                    .iter()
                    .all(|finding| finding.severity != Severity::Error),
                "{name}, {minor}: {findings:?}"
            );
            let mut codes: Vec<&str> = findings.iter().map(|finding| finding.code.name()).collect();
            codes.dedup();
            // The files are for every distribution, and only K3s and RKE2 need the section.
            assert_eq!(codes.pop(), Some("AnonymousNotStated"), "{name}, {minor}");
            assert_eq!(codes, accepted_codes, "{name}, {minor}: {findings:?}");
        }
    }
}

#[test]
fn every_file_is_documented() {
    let readme = std::fs::read_to_string(auth_configs::folder().join("README.md")).unwrap();
    for auth_configs::AuthConfig { name, .. } in auth_configs::all().unwrap() {
        assert!(
            readme.contains(&format!("[{name}]({name})")),
            "auth-configs/README.md does not name {name}"
        );
    }
}
