//! No input makes the evaluator panic, and whatever it says about one it says in time.
#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::batch::Batch;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::lint::lint_file;
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::validate_configuration;
use keyferry_kube_authn::verify::{Keys, verify_token};
use proptest::prelude::*;

const CONFIG: &str = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: https://hub, audiences: \
                      [a]}\n  claimMappings:\n    username: {claim: sub, prefix: 'hub:'}\n    groups: {claim: g, prefix: ''}\n";
const PAYLOAD: &str = r#"{"iss":"https://hub","aud":["a"],"exp":1790000000,"sub":"s","g":["x"],"nbf":1,"_claim_names":{"g":"s"}}"#;
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ","kid":"k"},{"kty":"RSA","n":"AQAB","e":"AQAB","x5c":["YWI="]}]}"#;

/// A certificate with extensions.
static CERTIFICATE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
    let mut parameters = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(1));
    parameters.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    parameters.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName(".example".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    let key = rcgen::KeyPair::generate().unwrap();
    parameters.self_signed(&key).unwrap().der().to_vec()
});

/// What means something in YAML, to the scanner most of all.
const PIECES: &[&str] = &[
    "a",
    "b: c",
    ": ",
    ":",
    "- ",
    "-",
    "? ",
    "?",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "\n  ",
    "\n    ",
    " ",
    "\t",
    "\"",
    "'",
    "\\",
    "|",
    ">",
    "|-\n",
    "#",
    " #",
    "&a ",
    "*a",
    "!",
    "!!int ",
    "!<x>",
    "%",
    "%YAML 1.1\n",
    "---",
    "...",
    "<<: ",
    "~",
    "1",
    "0x",
    ".nan",
    "\r",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{0}",
    "ü",
];

/// A text with a few pieces put in, taken out or doubled.
fn mutated(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (
        0..text.len(),
        0..40_usize,
        prop::collection::vec(any::<u8>(), 0..6),
        any::<bool>(),
    );
    prop::collection::vec(change, 0..4).prop_map(move |changes| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, length, insert, double) in changes {
            let at = at.min(bytes.len());
            let end = (at + length).min(bytes.len());
            let cut: Vec<u8> = bytes.get(at..end).unwrap().to_vec();
            let middle = if double {
                [cut.clone(), cut].concat()
            } else {
                insert
            };
            bytes.splice(at..end, middle);
        }
        bytes
    })
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_file(bytes in prop_oneof![mutated(CONFIG), prop::collection::vec(any::<u8>(), 0..200)], number in 0..8_usize) {
        let minor = Minor::ALL[number];
        if let Ok(loaded) = load_configuration(&bytes, minor) {
            let _ = validate_configuration(&loaded.configuration, minor, &["https://hub".to_owned()]);
        }
        let _ = lint_file(&bytes, minor, &[]);
    }

    #[test]
    fn any_certificate(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(), number in 0..8_usize) {
        use base64::Engine;
        let mut der = CERTIFICATE.clone();
        for (at, byte) in changes {
            let at = at.index(der.len());
            der[at] = byte;
        }
        // Half of them keep their end.
        der.truncate(cut.index(2 * der.len()).max(1));
        let body = base64::engine::general_purpose::STANDARD.encode(&der);
        let config = CONFIG.replace("audiences", &format!("certificateAuthority: \"-----BEGIN CERTIFICATE-----\\n{body}\\n-----END CERTIFICATE-----\", audiences"));
        let minor = Minor::ALL[number];
        let loaded = load_configuration(config.as_bytes(), minor).unwrap();
        let _ = validate_configuration(&loaded.configuration, minor, &[]);
        let keys = Keys::for_all(KEYS.replace("YWI=", &body).as_bytes());
        let loaded = load_configuration(CONFIG.as_bytes(), minor).unwrap();
        let compiled = validate_configuration(&loaded.configuration, minor, &[]).unwrap();
        let token = Token::read(format!("{}.{}.AA", encode(br#"{"alg":"ES256"}"#), encode(PAYLOAD.as_bytes())).as_bytes()).unwrap();
        let _ = verify_token(&compiled, &token, &keys, Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn any_yaml(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60), number in 0..8_usize) {
        let text = format!("{}{}", if number % 2 == 0 { "" } else { CONFIG }, pieces.concat());
        let _ = load_configuration(text.as_bytes(), Minor::ALL[number]);
    }

    #[test]
    fn any_token(header in mutated(r#"{"alg":"ES256","kid":"k","crit":["b64"],"x5c":["YWI="]}"#), payload in mutated(PAYLOAD), now in any::<i32>()) {
        let compiled = {
            let loaded = load_configuration(CONFIG.as_bytes(), Minor::V1_36).unwrap();
            validate_configuration(&loaded.configuration, Minor::V1_36, &[]).unwrap()
        };
        let text = format!("{}.{}.{}", encode(&header), encode(&payload), encode(&[0; 64]));
        if let Ok(token) = Token::read(text.as_bytes()) {
            let _ = verify_token(&compiled, &token, &Keys::for_all(KEYS.as_bytes()), Timestamp::from_second(i64::from(now)).unwrap());
            let _ = verify_token(&compiled, &token, &Keys::none(), Timestamp::from_second(i64::from(now)).unwrap());
        }
    }

    #[test]
    fn any_bytes_for_a_token_and_keys(token in prop::collection::vec(any::<u8>(), 0..300), keys in mutated(KEYS)) {
        let _ = Token::read(&token);
        let _ = Keys::for_all(&keys);
    }

    #[test]
    fn any_line(line in mutated(r#"{"id":1,"minor":"1.33","config":"kind: X","now":5,"token":"a.b.c","keys":"{}"}"#)) {
        let answer = Batch::new().report_line(&String::from_utf8_lossy(&line));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&answer).is_ok());
    }
}
