#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;

/// Signatures by Go 1.26's crypto over the text "the input".
const SIGNATURES: &str = include_str!("tests/signatures.json");

fn vectors() -> Vec<Value> {
    serde_json::from_str(SIGNATURES).unwrap()
}

fn read(keys: &Value) -> Result<KeySet, KeySetFault> {
    KeySet::read(
        json!({ "keys": keys }).to_string().as_bytes(),
        &GoRelease::ALL,
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn signatures_that_go_makes_hold_and_hold_for_nothing_else() {
    for vector in vectors() {
        let keys = read(&json!([vector["key"]])).unwrap();
        let signature =
            keyferry_go_formats::base64::decode_raw_url(text(&vector["signature"]).as_bytes())
                .unwrap();
        let name = text(&vector["algorithm"]);
        for other in Algorithm::NAMES {
            let holds = keys.verifies(
                "",
                Algorithm::named(other).unwrap(),
                b"the input",
                &signature,
            );
            assert_eq!(holds, other == name, "{} {name} as {other}", vector["name"]);
        }
        let algorithm = Algorithm::named(name).unwrap();
        assert!(
            !keys.verifies("", algorithm, b"the inpuT", &signature),
            "{}",
            vector["name"]
        );
        let mut broken = signature.clone();
        *broken.last_mut().unwrap() ^= 1;
        assert!(
            !keys.verifies("", algorithm, b"the input", &broken),
            "{}",
            vector["name"]
        );
        assert!(
            !keys.verifies("", algorithm, b"the input", signature.get(1..).unwrap()),
            "{}",
            vector["name"]
        );
    }
}

#[test]
fn a_kid_is_compared_only_where_the_token_has_one() {
    let vector = vectors()
        .into_iter()
        .find(|vector| vector["algorithm"] == "ES256")
        .unwrap();
    let mut key = vector["key"].clone();
    key["kid"] = json!("k");
    key["alg"] = json!("RS256");
    key["use"] = json!("enc");
    let keys = read(&json!([key])).unwrap();
    let signature =
        keyferry_go_formats::base64::decode_raw_url(text(&vector["signature"]).as_bytes()).unwrap();
    let holds = |kid| {
        keys.verifies(
            kid,
            Algorithm::named("ES256").unwrap(),
            b"the input",
            &signature,
        )
    };
    assert!(holds("") && holds("k") && !holds("other"));
}

#[test]
fn one_odd_key_spoils_the_set() {
    let good = vectors()
        .into_iter()
        .find(|vector| vector["algorithm"] == "ES256")
        .unwrap()["key"]
        .clone();
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
        assert!(
            matches!(read(&json!([good, odd])), Err(KeySetFault::Undecodable(_))),
            "{odd}"
        );
    }
    let twice = r#"{"keys":[{"kty":"oct","k":"AQ","k":"AQ"}]}"#;
    assert!(matches!(
        KeySet::read(twice.as_bytes(), &GoRelease::ALL),
        Err(KeySetFault::Undecodable(_))
    ));
}

#[test]
fn the_odd_key_is_named() {
    let good = json!({"kty": "oct", "k": "AQ", "kid": "fine"});
    let odd = json!({"kty": "EC", "crv": "secp256k1", "x": "AQ", "y": "AQ", "kid": "odd\nkey"});
    let Err(KeySetFault::Undecodable(reason)) = read(&json!([good, odd])) else {
        panic!("it is read");
    };
    let expected = "go-jose/go-jose: unsupported elliptic curve 'secp256k1'; it is keys[1] with \
                    the kid \"odd\\nkey\"";
    assert_eq!(reason, expected);
}

#[test]
fn what_has_no_keys_is_named() {
    let instead = |text: &str| {
        let set = KeySet::read(text.as_bytes(), &GoRelease::ALL).unwrap();
        set.instead_of_keys()
    };
    assert_eq!(
        instead(r#"{"issuer": "https://a", "jwks_uri": "https://a/keys"}"#),
        Some(InsteadOfKeys::DiscoveryDocument)
    );
    let key = r#"{"kty": "oct", "k": "AQ"}"#;
    assert_eq!(instead(key), Some(InsteadOfKeys::SingleKey));
    for neither in ["{}", r#"{"keys": []}"#, &format!(r#"{{"keys": [{key}]}}"#)] {
        assert_eq!(instead(neither), None, "{neither}");
    }
}

#[test]
fn harmless_keys_do_not() {
    let good = vectors()
        .into_iter()
        .find(|vector| vector["algorithm"] == "ES256")
        .unwrap()["key"]
        .clone();
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
    let length = |text: &str| KeySet::read(text.as_bytes(), &GoRelease::ALL).map(|keys| keys.len());
    let key = "{\"kty\":\"oct\",\"k\":\"AQ\"}";
    assert_eq!(length("null"), Ok(0));
    assert_eq!(length("{}"), Ok(0));
    assert_eq!(length("{\"keys\":null}"), Ok(0));
    assert_eq!(length(&format!("{{\"KEYS\":[{key}],\"x\":1}}")), Ok(1));
    assert_eq!(
        length(&format!("{{\"keys\":[{key}],\"Keys\":[{key},{key}]}}")),
        Ok(2)
    );
    for broken in ["", "[]", "5", "{\"keys\":{}}", "{\"keys\":[]} x", "<html>"] {
        assert!(
            matches!(length(broken), Err(KeySetFault::Undecodable(_))),
            "{broken}"
        );
    }
}

#[test]
fn weak_keys_verify_nothing() {
    let vector = vectors()
        .into_iter()
        .find(|vector| vector["algorithm"] == "RS256" && vector["name"] == "2048 bits")
        .unwrap();
    let signature =
        keyferry_go_formats::base64::decode_raw_url(text(&vector["signature"]).as_bytes()).unwrap();
    for exponent in ["AQ", "AA", "Ag", "gAAAAQ", "__________8"] {
        let mut key = vector["key"].clone();
        key["e"] = json!(exponent);
        let keys = read(&json!([key])).unwrap();
        assert!(
            !keys.verifies(
                "",
                Algorithm::named("RS256").unwrap(),
                b"the input",
                &signature
            ),
            "{exponent}"
        );
    }
}

/// Splits off the content of the first DER value, and returns it with the rest.
fn der(bytes: &[u8]) -> (&[u8], &[u8]) {
    let long = usize::from(bytes[1].saturating_sub(0x80));
    let length = if bytes[1] < 0x80 {
        usize::from(bytes[1])
    } else {
        bytes[2..2 + long]
            .iter()
            .fold(0, |n, byte| n << 8 | usize::from(*byte))
    };
    bytes[2 + long..].split_at(length)
}

/// Returns a private RSA key with every member, read from a PKCS #8 document.
fn private_rsa() -> Value {
    use aws_lc_rs::encoding::AsDer;
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let document = pair.as_der().unwrap();
    let (_, rest) = der(der(document.as_ref()).0);
    let mut rest = der(der(der(rest).1).0).0;
    let mut key = json!({"kty": "RSA"});
    for name in ["version", "n", "e", "d", "p", "q", "dp", "dq", "qi"] {
        let (number, after) = der(rest);
        key[name] = json!(keyferry_go_formats::base64::encode_raw_url(
            number.strip_prefix(&[0]).unwrap_or(number)
        ));
        rest = after;
    }
    key
}

#[test]
fn a_private_rsa_key_is_judged_by_its_numbers() {
    let key = private_rsa();
    let with = |name: &str, value: Value| {
        let mut key = key.clone();
        key[name] = value;
        read(&json!([key]))
    };
    assert_eq!(
        read(&json!([key])).unwrap().len(),
        1,
        "a sound one does no harm"
    );
    let input: [&[u8]; 2] = [b"the input", &[0; 256]];
    assert!(!read(&json!([key])).unwrap().verifies(
        "",
        Algorithm::named("RS256").unwrap(),
        input[0],
        input[1]
    ));
    for absent in ["dp", "dq", "qi"] {
        assert_eq!(
            with(absent, Value::Null).unwrap().len(),
            1,
            "Go computes {absent}"
        );
    }
    for (name, value) in [
        ("p", json!("AQAB")),
        ("q", key["p"].clone()),
        ("n", json!("AQAB")),
        ("d", json!("AQAB")),
        ("q", Value::Null),
    ] {
        assert!(
            matches!(with(name, value), Err(KeySetFault::Undecodable(_))),
            "{name}"
        );
    }
    // Releases of Go differ about these.
    for (name, value) in [("dp", json!("AQAB")), ("e", json!("Ag"))] {
        assert!(
            matches!(with(name, value), Err(KeySetFault::Undetermined(_))),
            "{name}"
        );
    }
    let long = json!(keyferry_go_formats::base64::encode_raw_url(&[0xff; 5000]));
    assert!(matches!(with("p", long), Err(KeySetFault::Undetermined(_))));
}

#[test]
fn a_certificate_must_be_of_its_key() {
    use base64::Engine;
    let certificate = |algorithm| {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let made = rcgen::CertificateParams::new(vec!["a".to_owned()])
            .unwrap()
            .self_signed(&pair)
            .unwrap();
        (
            pair,
            json!([base64::engine::general_purpose::STANDARD.encode(made.der())]),
        )
    };
    let (p256, of_p256) = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (ed25519, of_ed25519) = certificate(&rcgen::PKCS_ED25519);
    let text = |bytes: &[u8]| json!(keyferry_go_formats::base64::encode_raw_url(bytes));
    let point = rcgen::PublicKeyData::der_bytes(&p256);
    let ec =
        json!({"kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])});
    let okp = json!({"kty": "OKP", "crv": "Ed25519", "x": text(rcgen::PublicKeyData::der_bytes(&ed25519))});
    let holds = |key: &Value, chain: &Value| {
        let mut key = key.clone();
        key["x5c"] = chain.clone();
        read(&json!([key])).is_ok()
    };
    assert!(holds(&ec, &of_p256) && holds(&okp, &of_ed25519));
    assert!(!holds(&ec, &of_ed25519) && !holds(&okp, &of_p256));
    assert!(!holds(&json!({"kty": "oct", "k": "AQ"}), &of_p256));
    let mut private = ec.clone();
    private["d"] = text(&[1; 32]);
    assert!(
        holds(&private, &of_p256) && !holds(&private, &of_ed25519),
        "the public half is compared"
    );
}
