//! The JWS that the RFCs print, in `rfc_vectors.tsv`. Each signature of an asymmetric key verifies,
//! so the values are those of the RFCs. None of the tokens is accepted, and each row says why.

#![allow(clippy::unwrap_used)]

use base64::Engine;
use serde_json::{Value, json};

use super::{signature_holds, verify_signature};
use crate::jwks::{KeySetLimits, PublicKeySet};
use crate::jwt::{BASE64URL, UnverifiedJwt};
use crate::testing::set;

const VECTORS: &str = include_str!("rfc_vectors.tsv");

/// Why each token is refused. The claims are plain text in RFC 7520 and in A.4 of RFC 7515; a key set
/// has no secret keys; Kubernetes always names a `kid`, and writes the compact serialisation.
const VERDICTS: [(&str, &str); 17] = [
    ("RFC 7515 A.1", "AlgorithmRefused"),
    ("RFC 7515 A.2", "NoKid"),
    ("RFC 7515 A.3", "NoKid"),
    ("RFC 7515 A.4", "Claims(Syntax { line: 1, column: 1 })"),
    ("RFC 7515 A.5", "AlgorithmRefused"),
    ("RFC 7515 A.6", "DotCount(0)"),
    ("RFC 7515 A.7", "DotCount(0)"),
    ("RFC 7515 E", "AlgorithmRefused"),
    ("RFC 7520 4.1", "Claims(Syntax { line: 1, column: 1 })"),
    ("RFC 7520 4.2", "Claims(Syntax { line: 1, column: 1 })"),
    ("RFC 7520 4.3", "Claims(Syntax { line: 1, column: 1 })"),
    ("RFC 7520 4.4", "AlgorithmRefused"),
    ("RFC 7520 4.5", "AlgorithmRefused"),
    ("RFC 7520 4.6", "DotCount(0)"),
    ("RFC 7520 4.7", "DotCount(0)"),
    ("RFC 7520 4.8", "DotCount(4)"),
    ("RFC 8037 A.4", "AlgorithmRefused"),
];

struct Vector {
    section: &'static str,
    algorithm: &'static str,
    /// The key set with the vector's key, if one may have it.
    keys: Option<PublicKeySet>,
    token: &'static str,
}

fn vectors() -> Vec<Vector> {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let vector = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [section, algorithm, key, token] = columns[..] else {
            panic!("{line}");
        };
        let keys = serde_json::from_str(key).ok().map(|mut entry: Value| {
            entry["kid"] = json!("bilbo.baggins@hobbiton.example");
            entry["alg"] = json!(algorithm);
            set([entry])
        });
        Vector {
            section,
            algorithm,
            keys,
            token,
        }
    };
    lines.map(vector).collect()
}

#[test]
fn each_vector_is_refused_for_its_reason() {
    let none = || set([crate::testing::key(crate::jwt::SigningAlgorithm::Es256).entry()]);
    let verdicts: Vec<(&str, String)> = vectors()
        .into_iter()
        .map(|vector| {
            let keys = vector.keys.unwrap_or_else(none);
            let verdict = match UnverifiedJwt::parse(vector.token) {
                Err(error) => format!("{error:?}"),
                Ok(jwt) => match verify_signature(&jwt, &keys) {
                    Err(error) => format!("{error:?}"),
                    Ok(_) => "accepted".to_owned(),
                },
            };
            (vector.section, verdict)
        })
        .collect();
    assert_eq!(
        verdicts,
        VERDICTS.map(|(section, why)| (section, why.to_owned()))
    );
}

#[test]
fn each_signature_of_an_asymmetric_key_verifies_and_no_other_does() {
    let mut verified = Vec::new();
    for vector in vectors() {
        let Some(keys) = vector.keys else {
            continue;
        };
        let key = keys.get("bilbo.baggins@hobbiton.example").unwrap();
        let (input, signature) = vector.token.rsplit_once('.').unwrap();
        assert!(
            signature_holds(input.as_bytes(), signature, key),
            "{}",
            vector.section
        );
        let mut bytes = BASE64URL.decode(signature).unwrap();
        bytes[20] ^= 1;
        assert!(!signature_holds(
            input.as_bytes(),
            &BASE64URL.encode(bytes),
            key
        ));
        assert!(!signature_holds(&input.as_bytes()[1..], signature, key));
        verified.push(vector.algorithm);
    }
    assert_eq!(
        verified,
        ["RS256", "ES256", "ES512", "RS256", "PS384", "ES512"]
    );
}

/// The key of RFC 7520 section 3.5: a set with it proves nothing about who signed.
#[test]
fn a_secret_key_of_the_rfcs_is_in_no_set() {
    let secret = json!({ "keys": [{
        "kty": "oct", "kid": "018c0ae5-4d9b-471b-bfd6-eef314bc7037", "use": "sig", "alg": "HS256",
        "k": "hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg",
    }] });
    let secret = secret.to_string();
    assert!(PublicKeySet::from_upstream(secret.as_bytes(), KeySetLimits::default()).is_err());
}
