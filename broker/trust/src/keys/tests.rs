#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;

/// Made by Go 1.26's crypto over the text "the input".
const SIGNATURES: &str = include_str!("tests/signatures.json");

fn vectors() -> Vec<Value> {
    serde_json::from_str(SIGNATURES).unwrap()
}

fn read(keys: &Value) -> Result<KeySet, KeySetFault> {
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn signatures_that_go_makes_hold_and_hold_for_nothing_else() {
    for vector in vectors() {
        let keys = read(&json!([vector["key"]])).unwrap();
        let signature = crate::go::base64::decode_raw_url(text(&vector["signature"]).as_bytes()).unwrap();
        let name = text(&vector["algorithm"]);
        for other in Algorithm::NAMES {
            let holds = keys.verifies("", Algorithm::named(other).unwrap(), b"the input", &signature);
            assert_eq!(holds, other == name, "{} {name} as {other}", vector["name"]);
        }
        let algorithm = Algorithm::named(name).unwrap();
        assert!(!keys.verifies("", algorithm, b"the inpuT", &signature), "{}", vector["name"]);
        let mut broken = signature.clone();
        *broken.last_mut().unwrap() ^= 1;
        assert!(!keys.verifies("", algorithm, b"the input", &broken), "{}", vector["name"]);
        assert!(!keys.verifies("", algorithm, b"the input", signature.get(1..).unwrap()), "{}", vector["name"]);
    }
}

#[test]
fn a_kid_is_compared_only_where_the_token_has_one() {
    let vector = vectors().into_iter().find(|vector| vector["algorithm"] == "ES256").unwrap();
    let mut key = vector["key"].clone();
    key["kid"] = json!("k");
    key["alg"] = json!("RS256");
    key["use"] = json!("enc");
    let keys = read(&json!([key])).unwrap();
    let signature = crate::go::base64::decode_raw_url(text(&vector["signature"]).as_bytes()).unwrap();
    let holds = |kid| keys.verifies(kid, Algorithm::named("ES256").unwrap(), b"the input", &signature);
    assert!(holds("") && holds("k") && !holds("other"));
}

#[test]
fn one_odd_key_spoils_the_set() {
    let good = vectors().into_iter().find(|vector| vector["algorithm"] == "ES256").unwrap()["key"].clone();
    let with = |name: &str, value: Value| {
        let mut key = good.clone();
        key[name] = value;
        key
    };
    for odd in [
        json!({"kty": "AKP"}),
        json!({}),
        json!(null),
        json!(5),
        json!({"kty": "RSA", "n": "AQ"}),
        json!({"kty": "EC", "crv": "secp256k1"}),
        json!({"kty": "OKP", "crv": "X25519", "x": "AQ"}),
        json!({"kty": "oct"}),
        with("x", json!("AQ")),
        with("y", good["x"].clone()),
        with("kid", json!(5)),
        with("use", json!(5)),
        with("x", json!("===")),
        with("x5u", json!("https://a")),
        with("x5c", json!(["!"])),
        with("x5c", json!(["YWI="])),
        with("x5t", json!("AQ")),
        with("x5t#S256", json!("!")),
        with("d", json!("AQ")),
    ] {
        assert!(matches!(read(&json!([good, odd])), Err(KeySetFault::Undecodable(_))), "{odd}");
    }
    let twice = r#"{"keys":[{"kty":"oct","k":"AQ","k":"AQ"}]}"#;
    assert!(matches!(KeySet::read(twice.as_bytes()), Err(KeySetFault::Undecodable(_))));
}

#[test]
fn harmless_keys_do_not() {
    let good = vectors().into_iter().find(|vector| vector["algorithm"] == "ES256").unwrap()["key"].clone();
    let others = [
        json!({"kty": "oct", "k": ""}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AQ"}),
        json!({"kty": "RSA", "n": "", "e": "AQAB", "x5u": null}),
        json!({"kty": "oct", "k": "AQ", "unknown": [1, {}]}),
    ];
    for other in others {
        assert_eq!(read(&json!([good, other])).unwrap().len(), 2, "{other}");
    }
}

#[test]
fn the_set_itself_is_read_as_go_reads_it() {
    let length = |text: &str| KeySet::read(text.as_bytes()).map(|keys| keys.len());
    let key = "{\"kty\":\"oct\",\"k\":\"AQ\"}";
    assert_eq!(length("null"), Ok(0));
    assert_eq!(length("{}"), Ok(0));
    assert_eq!(length("{\"keys\":null}"), Ok(0));
    assert_eq!(length(&format!("{{\"KEYS\":[{key}],\"x\":1}}")), Ok(1));
    assert_eq!(length(&format!("{{\"keys\":[{key}],\"Keys\":[{key},{key}]}}")), Ok(2));
    for broken in ["", "[]", "5", "{\"keys\":{}}", "{\"keys\":[]} x", "<html>"] {
        assert!(matches!(length(broken), Err(KeySetFault::Undecodable(_))), "{broken}");
    }
}

#[test]
fn weak_keys_verify_nothing() {
    let vector = vectors().into_iter().find(|vector| vector["algorithm"] == "RS256" && vector["name"] == "2048 bits").unwrap();
    let signature = crate::go::base64::decode_raw_url(text(&vector["signature"]).as_bytes()).unwrap();
    for exponent in ["AQ", "AA", "Ag", "gAAAAQ", "__________8"] {
        let mut key = vector["key"].clone();
        key["e"] = json!(exponent);
        let keys = read(&json!([key])).unwrap();
        assert!(!keys.verifies("", Algorithm::named("RS256").unwrap(), b"the input", &signature), "{exponent}");
    }
}
