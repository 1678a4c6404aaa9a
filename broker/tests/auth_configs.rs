//! The files of auth-configs/ do what their vectors say, for every release, with tokens that are signed here.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use keyferry_trust::Minor;
use keyferry_trust::config::load;
use keyferry_trust::lint::{Severity, lint};
use keyferry_trust::token::Token;
use keyferry_trust::validate::validate;
use keyferry_trust::verify::{Keys, Outcome, Union, User, verify};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const NOW: i64 = 1_790_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    lifetime: i64,
    claims: Map<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    claims: Map<String, Value>,
    lifetime: Option<i64>,
    #[serde(default)]
    age: i64,
    signed: Option<String>,
    accepted: Option<Expected>,
    rejected: Option<String>,
    skipped: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

struct Signer {
    key: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        Signer { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    fn sign(&self, claims: &Map<String, Value>) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let input = format!("{}.{}", encode(&json!({"alg": "ES256", "kid": "k"})), encode(&Value::Object(claims.clone())));
        let signature = self.key.sign(&SystemRandom::new(), input.as_bytes()).unwrap();
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn key_set(&self) -> String {
        let point = &self.key.public_key().as_ref()[1..];
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[..32]), URL_SAFE_NO_PAD.encode(&point[32..]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "use": "sig", "alg": "ES256", "x": x, "y": y}]}).to_string()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../auth-configs")
}

/// Name and text of every file, with a certificate where the reader is to put one.
fn files() -> Vec<(String, String)> {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml") && !name.ends_with(".vectors.yaml")).collect();
    names.sort();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let certificate = certificate.trim().replace('\n', "\n        ");
    let read = |name: &String| std::fs::read_to_string(folder().join(name)).unwrap();
    let filled = |text: String| match text.split_once("-----BEGIN CERTIFICATE-----") {
        Some((before, rest)) => format!("{before}{certificate}{}", rest.split_once("-----END CERTIFICATE-----").unwrap().1),
        None => text,
    };
    names.iter().map(|name| (name.clone(), filled(read(name)))).collect()
}

#[test]
fn every_file_does_what_its_vectors_say() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let keys = Keys::for_all(signer.key_set().as_bytes());
    let now = Timestamp::from_second(NOW).unwrap();
    let mut asked = 0;
    for (name, text) in files() {
        let path = folder().join(name.replace(".yaml", ".vectors.yaml"));
        let vectors: Vectors = serde_saphyr::from_str(&std::fs::read_to_string(&path).expect("every file has its vectors")).unwrap();
        for minor in Minor::ALL {
            let compiled = validate(&load(text.as_bytes(), minor).unwrap().configuration, minor, &[]).unwrap();
            for case in &vectors.cases {
                let signer = match case.signed.as_deref() {
                    None => &signer,
                    Some("by another key") => &stranger,
                    Some(other) => panic!("{name}: signed: {other}"),
                };
                let token = Token::read(signer.sign(&claims(&vectors, case)).as_bytes()).unwrap();
                let verdict = verify(&compiled, &token, &keys, now);
                compare(&format!("{name}, {minor}, {}", case.name), case, verdict.union(), &verdict.outcomes);
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
}

fn claims(vectors: &Vectors, case: &Case) -> Map<String, Value> {
    let issued_at = NOW - case.age;
    let mut claims = vectors.claims.clone();
    claims.insert("iat".to_owned(), issued_at.into());
    claims.insert("nbf".to_owned(), issued_at.into());
    claims.insert("exp".to_owned(), (issued_at + case.lifetime.unwrap_or(vectors.lifetime)).into());
    claims.extend(case.claims.clone());
    claims.retain(|_, value| !value.is_null());
    claims
}

fn compare(what: &str, case: &Case, union: Union<'_>, outcomes: &[Outcome]) {
    match (&case.accepted, &case.rejected, &case.skipped, union) {
        (Some(expected), None, None, Union::Accepted(user)) => {
            let mut extra = user.extra.clone();
            extra.remove("authentication.kubernetes.io/credential-id");
            let Expected { username, groups, uid, extra: expected_extra } = expected;
            let expected = User { username: username.clone(), uid: uid.clone(), groups: groups.clone(), extra: expected_extra.clone() };
            assert_eq!(User { extra, ..user.clone() }, expected, "{what}");
        }
        (None, Some(code), None, Union::Rejected(rejection)) => assert_eq!(rejection.code.name(), code, "{what}: {}", rejection.message),
        (None, None, Some(code), Union::Skipped) => {
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Skipped(skipped) if skipped.name() == code)), "{what}");
        }
        (.., other) => panic!("{what}: {other:?}"),
    }
}

#[test]
fn no_file_has_a_finding_but_those_it_is_about() {
    for (name, text) in files() {
        let known: &[&str] = match name.as_str() {
            "several-hubs.yaml" | "groups-from-claims.yaml" => &["ManyIssuers"],
            // As the flags were: a file that maps the same users bounds nothing that they did not.
            "from-oidc-flags.yaml" => &["NoLifetimeBound", "NoAudienceCount"],
            _ => &[],
        };
        for minor in Minor::ALL {
            let findings = lint(text.as_bytes(), minor, &["https://kubernetes.default.svc.cluster.local".to_owned()]);
            assert!(findings.iter().all(|finding| finding.severity != Severity::Error), "{name}, {minor}: {findings:?}");
            let mut codes: Vec<&str> = findings.iter().map(|finding| finding.code.name()).collect();
            codes.dedup();
            assert_eq!(codes, known, "{name}, {minor}: {findings:?}");
        }
    }
}

#[test]
fn every_file_is_documented() {
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for (name, _) in files() {
        assert!(readme.contains(&format!("[{name}]({name})")), "auth-configs/README.md does not name {name}");
    }
}
