#![allow(clippy::unwrap_used)]

use base64::Engine;
use josekit::jwk::Jwk;
use josekit::jwk::JwkSet;
use josekit::jwk::alg::ec::EcCurve;
use josekit::jwk::alg::ed::EdCurve;
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::{Value, json};

use super::rsa::{RsaFault, check_authority_key, check_signing_key};
use super::{JwksError, KeySetLimits, PublicKey, PublicKeySet, RejectReason, RejectedKey};
use crate::json::JsonError;
use crate::jwt::{BASE64URL, SigningAlgorithm};
use crate::testing::{key, set};

fn read(document: &Value) -> Result<(PublicKeySet, Vec<RejectedKey>), JwksError> {
    PublicKeySet::from_upstream(document.to_string().as_bytes(), KeySetLimits::default())
}

fn good() -> Value {
    key(SigningAlgorithm::Es256).entry()
}

fn rsa() -> Value {
    key(SigningAlgorithm::Rs256).entry()
}

fn changed(mut entry: Value, member: &str, value: Value) -> Value {
    entry[member] = value;
    entry
}

fn removed(mut entry: Value, member: &str) -> Value {
    entry.as_object_mut().unwrap().remove(member).unwrap();
    entry
}

/// Why an entry is left out of a set that also contains a good key.
fn why(entry: &Value) -> RejectReason {
    let sound = changed(key(SigningAlgorithm::Es384).entry(), "kid", json!("sound"));
    let (set, rejected) = read(&json!({"keys": [entry, sound]})).unwrap();
    assert_eq!(set.kids().collect::<Vec<_>>(), ["sound"], "{entry}");
    assert_eq!(rejected.len(), 1);
    rejected[0].why
}

fn refused(document: &Value) -> JwksError {
    read(document).unwrap_err()
}

#[test]
fn a_set_leaves_in_one_spelling() {
    let members = concat!(
        r#""n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknj"#,
        r#"hMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5h"#,
        r#"ajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","#,
        r#""e":"AQAB""#
    );
    // RFC 7638 section 3.1 gives the key and its thumbprint.
    let upstream = format!(
        r#"{{"x":1,"keys":[{{"kid":"2011-04-29","x5c":["junk"],"x5u":"http://a",{members},"kty":"RSA","ext":{{"y":[]}}}}]}}"#
    );
    let (set, rejected) =
        PublicKeySet::from_upstream(upstream.as_bytes(), KeySetLimits::default()).unwrap();
    assert_eq!(rejected, []);
    let expected = format!(
        r#"{{"keys":[{{"kty":"RSA","use":"sig","alg":"RS256","kid":"2011-04-29",{members}}}]}}"#
    );
    assert_eq!(String::from_utf8(set.to_bytes()).unwrap(), expected);
    assert_eq!(
        set.get("2011-04-29").unwrap().thumbprint(),
        "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    );
}

#[test]
fn order_and_spelling_of_the_upstream_do_not_show() {
    let entries: Vec<Value> = SigningAlgorithm::ALL
        .into_iter()
        .map(|algorithm| key(algorithm).entry())
        .collect();
    let forward = set(entries.clone());
    let backward = set(entries.into_iter().rev().map(|entry| {
        let mut members: Vec<_> = entry.as_object().unwrap().clone().into_iter().collect();
        members.reverse();
        members.into_iter().collect()
    }));
    assert_eq!(forward.to_bytes(), backward.to_bytes());
    assert_eq!(forward.len(), 9);
    assert_eq!(
        forward.kids().collect::<Vec<_>>(),
        SigningAlgorithm::ALL.map(SigningAlgorithm::as_str)
    );
    assert_eq!(
        forward.algorithms().into_iter().collect::<Vec<_>>(),
        SigningAlgorithm::ALL
    );
    let (again, rejected) =
        PublicKeySet::from_upstream(&forward.to_bytes(), KeySetLimits::default()).unwrap();
    assert_eq!((again, rejected), (forward, vec![]));
}

#[test]
fn josekit_reads_what_leaves() {
    let set = set(SigningAlgorithm::ALL
        .into_iter()
        .map(|algorithm| key(algorithm).entry()));
    let theirs = JwkSet::from_bytes(set.to_bytes()).unwrap();
    assert_eq!(theirs.keys().len(), set.len());
    for algorithm in SigningAlgorithm::ALL {
        let found = theirs.get(algorithm.as_str());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key_use(), Some("sig"));
        assert!(found[0].parameter("d").is_none());
    }
    let library: jsonwebtoken::jwk::JwkSet = serde_json::from_slice(&set.to_bytes()).unwrap();
    for algorithm in SigningAlgorithm::ALL {
        let jwk = library.find(algorithm.as_str()).unwrap();
        let thumbprint = jwk
            .thumbprint(jsonwebtoken::jwk::ThumbprintHash::SHA256)
            .unwrap();
        assert_eq!(
            set.get(algorithm.as_str()).unwrap().thumbprint(),
            thumbprint
        );
    }
}

#[test]
fn w1_to_w5_a_set_is_an_array_of_distinct_keys() {
    for document in [
        json!({}),
        json!({"keys": null}),
        json!({"keys": {}}),
        json!({"keys": "a"}),
        json!({"Keys": [good()]}),
    ] {
        assert_eq!(refused(&document), JwksError::NoKeysArray, "{document}");
    }
    assert_eq!(refused(&json!({"keys": []})), JwksError::NoUsableKey(0));
    assert_eq!(
        refused(&json!({"keys": [{"kty": "AKP"}, 1]})),
        JwksError::NoUsableKey(2)
    );
    assert_eq!(
        refused(&json!({"keys": vec![json!({}); 10_001]})),
        JwksError::TooManyKeys {
            found: 10_001,
            limit: 200
        }
    );
    assert!(read(&json!({"keys": vec![good(); 200]})).is_ok());
    assert_eq!(
        refused(&json!({"keys": vec![good(); 201]})),
        JwksError::TooManyKeys {
            found: 201,
            limit: 200
        }
    );
    let other = changed(rsa(), "kid", good()["kid"].clone());
    assert_eq!(
        refused(&json!({"keys": [good(), other]})),
        JwksError::KidClash
    );
    let other_alg = changed(rsa(), "alg", json!("PS256"));
    assert_eq!(
        refused(&json!({"keys": [rsa(), other_alg]})),
        JwksError::KidClash
    );
    let (twice, _) = read(&json!({"keys": [good(), good()]})).unwrap();
    assert_eq!(twice, set([good()]));
    let cases = set([
        changed(good(), "kid", json!("k")),
        changed(rsa(), "kid", json!("K")),
    ]);
    assert_eq!(cases.kids().collect::<Vec<_>>(), ["K", "k"]);
    assert_eq!(why(&removed(good(), "kid")), RejectReason::Kid);
    for kid in [json!(""), json!(1), json!(null), json!("k".repeat(1025))] {
        assert_eq!(why(&changed(good(), "kid", kid)), RejectReason::Kid);
    }
    for entry in [json!(1), json!(null), json!("a"), json!([])] {
        assert_eq!(why(&entry), RejectReason::NotAnObject);
    }
}

#[test]
fn a_document_that_is_no_strict_json_is_refused() {
    let read =
        |bytes: &[u8]| PublicKeySet::from_upstream(bytes, KeySetLimits::default()).unwrap_err();
    let duplicate = format!(r#"{{"keys":[],"keys":[{}]}}"#, good());
    assert!(matches!(
        read(duplicate.as_bytes()),
        JwksError::Json(JsonError::DuplicateMember { .. })
    ));
    assert!(matches!(
        read(b"<html>"),
        JwksError::Json(JsonError::Syntax { .. })
    ));
    assert!(matches!(
        read(b""),
        JwksError::Json(JsonError::Syntax { .. })
    ));
    let truncated = &json!({"keys": [good()]}).to_string().into_bytes()[..80];
    assert!(matches!(
        read(truncated),
        JwksError::Json(JsonError::Syntax { .. })
    ));
    assert!(matches!(
        read(&vec![b' '; (1 << 20) + 1]),
        JwksError::Json(JsonError::TooLarge { .. })
    ));
}

#[test]
fn w6_to_w10_a_private_member_spoils_the_whole_set() {
    for member in ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"] {
        for value in [json!("AQAB"), json!(null), json!([])] {
            let spoilt = changed(rsa(), member, value);
            assert_eq!(
                refused(&json!({"keys": [good(), spoilt]})),
                JwksError::PrivateKeyInSet,
                "{member}"
            );
        }
    }
    let symmetric = json!({"kty": "oct", "kid": "s", "k": "c2VjcmV0"});
    assert_eq!(
        refused(&json!({"keys": [symmetric, good()]})),
        JwksError::PrivateKeyInSet
    );
    let unusable = json!({"kty": "OKP", "crv": "Ed25519", "x": "AA", "d": "AA"});
    assert_eq!(
        refused(&json!({"keys": [unusable, good()]})),
        JwksError::PrivateKeyInSet
    );
    let mut crowd = vec![json!({}); 300];
    crowd.push(changed(rsa(), "d", json!("AQAB")));
    assert_eq!(
        refused(&json!({"keys": crowd})),
        JwksError::PrivateKeyInSet,
        "said before the number of keys"
    );
    let whole: Value = serde_json::to_value(key(SigningAlgorithm::Rs256).private.as_ref()).unwrap();
    assert_eq!(
        refused(&json!({"keys": [whole]})),
        JwksError::PrivateKeyInSet
    );
}

#[test]
fn key_types_that_poison_old_verifiers_are_left_out() {
    let ed = serde_json::to_value(
        Jwk::generate_ed_key(EdCurve::Ed25519)
            .unwrap()
            .to_public_key()
            .unwrap()
            .as_ref(),
    )
    .unwrap();
    for entry in [
        changed(ed, "kid", json!("k")),
        json!({"kty": "AKP", "alg": "ML-DSA-65", "kid": "k", "pub": "AAAA"}),
        json!({"kty": "OKP", "crv": "X25519", "kid": "k", "x": "AA"}),
        json!({"kty": "oct", "kid": "k"}),
        json!({"kty": "rsa", "kid": "k"}),
        json!({"kty": 1, "kid": "k"}),
        json!({"kid": "k"}),
    ] {
        assert_eq!(why(&entry), RejectReason::KeyType, "{entry}");
    }
    let bitcoin = serde_json::to_value(
        Jwk::generate_ec_key(EcCurve::Secp256k1)
            .unwrap()
            .to_public_key()
            .unwrap()
            .as_ref(),
    )
    .unwrap();
    assert_eq!(
        why(&changed(bitcoin, "kid", json!("k"))),
        RejectReason::Curve
    );
    let (set, rejected) =
        read(&json!({"keys": [good(), {"kty": "AKP", "kid": "pq", "pub": "AAAA"}]})).unwrap();
    assert_eq!(
        rejected,
        [RejectedKey {
            kid: Some("pq".into()),
            why: RejectReason::KeyType
        }]
    );
    assert!(!String::from_utf8(set.to_bytes()).unwrap().contains("AKP"));
}

#[test]
fn w6_to_w10_a_key_for_another_purpose_is_left_out() {
    for value in [
        json!("enc"),
        json!("SIG"),
        json!(""),
        json!(null),
        json!(["sig"]),
    ] {
        assert_eq!(why(&changed(good(), "use", value)), RejectReason::Use);
    }
    for value in [
        json!([]),
        json!(["sign"]),
        json!(["encrypt"]),
        json!("verify"),
        json!(null),
        json!(["verify", 1]),
        json!(["Verify"]),
    ] {
        assert_eq!(
            why(&changed(good(), "key_ops", value)),
            RejectReason::Operations
        );
    }
    assert_eq!(set([removed(good(), "use")]), set([good()]));
    assert_eq!(
        set([changed(good(), "key_ops", json!(["verify"]))]),
        set([good()])
    );
}

#[test]
fn w11_to_w16_alg_fits_the_key() {
    for alg in [
        "none", "HS256", "ES224", "ES256K", "ES384", "RS256", "PS256", "EdDSA", "es256", "",
    ] {
        assert_eq!(
            why(&changed(good(), "alg", json!(alg))),
            RejectReason::Algorithm,
            "{alg}"
        );
    }
    for alg in ["none", "HS256", "ES256", "RSA-OAEP", "RS1", ""] {
        assert_eq!(
            why(&changed(rsa(), "alg", json!(alg))),
            RejectReason::Algorithm,
            "{alg}"
        );
    }
    for alg in [json!(null), json!(1), json!(["ES256"])] {
        assert_eq!(why(&changed(good(), "alg", alg)), RejectReason::Algorithm);
    }
    assert_eq!(set([removed(good(), "alg")]), set([good()]));
    assert_eq!(set([removed(rsa(), "alg")]), set([rsa()]));
    let es512 = key(SigningAlgorithm::Es512).entry();
    assert_eq!(set([removed(es512.clone(), "alg")]), set([es512]));
    assert_eq!(
        set([changed(rsa(), "alg", json!("PS512"))])
            .algorithms()
            .into_iter()
            .collect::<Vec<_>>(),
        [SigningAlgorithm::Ps512]
    );
}

fn bytes(entry: &Value, member: &str) -> Vec<u8> {
    BASE64URL.decode(entry[member].as_str().unwrap()).unwrap()
}

fn with_bytes(entry: Value, member: &str, bytes: impl AsRef<[u8]>) -> Value {
    changed(entry, member, json!(BASE64URL.encode(bytes)))
}

#[test]
fn w11_to_w16_a_point_lies_on_its_curve() {
    for algorithm in [
        SigningAlgorithm::Es256,
        SigningAlgorithm::Es384,
        SigningAlgorithm::Es512,
    ] {
        let entry = key(algorithm).entry();
        let (x, y) = (bytes(&entry, "x"), bytes(&entry, "y"));
        let mut off = y.clone();
        *off.last_mut().unwrap() ^= 1;
        let zero = vec![0; y.len()];
        let ones = vec![0xff; y.len()];
        assert_eq!(
            why(&with_bytes(entry.clone(), "y", off)),
            RejectReason::Point
        );
        assert_eq!(
            why(&with_bytes(
                with_bytes(entry.clone(), "x", &zero),
                "y",
                &zero
            )),
            RejectReason::Point,
            "infinity"
        );
        assert_eq!(
            why(&with_bytes(entry.clone(), "y", &zero)),
            RejectReason::Point
        );
        assert_eq!(
            why(&with_bytes(entry.clone(), "x", ones)),
            RejectReason::Point,
            "not below the field's prime"
        );
        assert_eq!(
            why(&with_bytes(with_bytes(entry.clone(), "x", &y), "y", &x)),
            RejectReason::Point,
            "swapped"
        );
        for member in ["x", "y"] {
            let right = bytes(&entry, member);
            for wrong in [
                [&[0][..], &right].concat(),
                [&right[..], &[0]].concat(),
                right[1..].to_vec(),
                vec![],
            ] {
                assert_eq!(
                    why(&with_bytes(entry.clone(), member, wrong)),
                    RejectReason::Encoding(member)
                );
            }
            assert_eq!(
                why(&removed(entry.clone(), member)),
                RejectReason::Member(member)
            );
            assert_eq!(
                why(&changed(entry.clone(), member, json!(1))),
                RejectReason::Member(member)
            );
        }
        for curve in [
            json!("P-224"),
            json!("p-256"),
            json!("secp256k1"),
            json!("Ed25519"),
            json!(null),
            json!(""),
        ] {
            assert_eq!(
                why(&changed(entry.clone(), "crv", curve)),
                RejectReason::Curve
            );
        }
    }
    assert_eq!(
        why(&changed(removed(good(), "alg"), "crv", json!("P-384"))),
        RejectReason::Encoding("x")
    );
}

#[test]
fn numbers_have_one_spelling() {
    for (entry, member) in [(rsa(), "n"), (rsa(), "e"), (good(), "x")] {
        let text = entry[member].as_str().unwrap().to_owned();
        for wrong in [
            format!("{text}="),
            format!("{text}\n"),
            format!(" {text}"),
            text.replacen(&text[..1], "+", 1),
            "!".into(),
        ] {
            assert_eq!(
                why(&changed(entry.clone(), member, json!(wrong))),
                RejectReason::Encoding(member),
                "{wrong:?}"
            );
        }
    }
    let n = rsa()["n"].as_str().unwrap().to_owned();
    assert_eq!(
        n.len() % 4,
        2,
        "256 bytes leave one over, so the last character has four unused bits"
    );
    let respelt = format!(
        "{}{}",
        &n[..n.len() - 1],
        if n.ends_with('A') {
            'B'
        } else {
            char::from(n.as_bytes()[n.len() - 1] + 1)
        }
    );
    assert_eq!(
        why(&changed(rsa(), "n", json!(respelt))),
        RejectReason::Encoding("n")
    );
    let padded = [&[0][..], &bytes(&rsa(), "n")].concat();
    assert_eq!(
        why(&with_bytes(rsa(), "n", padded)),
        RejectReason::Encoding("n")
    );
    assert_eq!(
        why(&with_bytes(rsa(), "e", [0, 1, 0, 1])),
        RejectReason::Encoding("e")
    );
    assert_eq!(
        why(&with_bytes(rsa(), "n", [])),
        RejectReason::Encoding("n")
    );
}

#[test]
fn w11_to_w16_an_rsa_key_is_of_a_safe_size_and_make() {
    let n = bytes(&rsa(), "n");
    let fault = |entry: Value| match why(&entry) {
        RejectReason::Rsa(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        fault(with_bytes(rsa(), "n", &n[..128])),
        RsaFault::Size(1024)
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", [&[1][..], &n].concat())),
        RsaFault::Size(2049)
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", n.repeat(8))),
        RsaFault::Size(16_384)
    );
    for e in [
        &[1][..],
        &[2],
        &[3],
        &[1, 0, 0],
        &[1, 0, 0, 0, 0, 0],
        &[1, 0, 1, 0, 1],
    ] {
        assert_eq!(
            fault(with_bytes(rsa(), "e", e)),
            RsaFault::Exponent,
            "{e:?}"
        );
    }
    let mut even = n.clone();
    *even.last_mut().unwrap() &= 0xfe;
    assert_eq!(fault(with_bytes(rsa(), "n", even)), RsaFault::SmallFactor);
    assert_eq!(
        fault(with_bytes(rsa(), "n", times(&n[..255], 251))),
        RsaFault::SmallFactor
    );
    assert_eq!(
        fault(with_bytes(rsa(), "n", broken_generator())),
        RsaFault::Roca
    );
    let weak = Jwk::generate_rsa_key(1024)
        .unwrap()
        .to_public_key()
        .unwrap();
    let weak = changed(
        serde_json::to_value(weak.as_ref()).unwrap(),
        "kid",
        json!("k"),
    );
    assert_eq!(fault(weak), RsaFault::Size(1024));
}

#[test]
fn a_ca_may_have_an_older_exponent() {
    let n = bytes(&rsa(), "n");
    for e in [&[3][..], &[0, 1, 0, 1], &[17], &[0xff, 0xff, 0xff, 0xff]] {
        assert_eq!(
            check_authority_key(&[&[0][..], &n].concat(), e),
            Ok(()),
            "{e:?}"
        );
    }
    for e in [
        &[][..],
        &[0],
        &[1],
        &[0, 1],
        &[2],
        &[1, 0, 0],
        &[1, 0, 0, 0, 1],
    ] {
        assert_eq!(check_authority_key(&n, e), Err(RsaFault::Exponent), "{e:?}");
    }
    assert_eq!(
        check_authority_key(&n[..255], &[1, 0, 1]),
        Err(RsaFault::Size(8 * 255 - n[0].leading_zeros() as usize))
    );
    assert_eq!(check_authority_key(&[], &[1, 0, 1]), Err(RsaFault::Size(0)));
    assert_eq!(
        check_authority_key(&broken_generator(), &[1, 0, 1]),
        Err(RsaFault::Roca)
    );
}

/// A modulus of 2048 bits that is 1, and so a power of 65537, modulo each of the 17 primes.
fn broken_generator() -> Vec<u8> {
    let primes = [
        11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157,
    ];
    let product = primes
        .iter()
        .fold(vec![1], |number, prime| times(&number, *prime));
    // Their product has 100 bits: from this start it comes to 2048.
    for start in 0x1000_u32..0x1800 {
        let mut number = [&start.to_be_bytes()[2..], &[0; 256][..]].concat();
        number.truncate(257 - product.len());
        for prime in primes {
            number = times(&number, prime);
        }
        *number.last_mut().unwrap() |= 1;
        if number.len() == 256 && check_signing_key(&number, &[1, 0, 1]) == Err(RsaFault::Roca) {
            return number;
        }
    }
    panic!("no such number found");
}

fn times(number: &[u8], factor: u32) -> Vec<u8> {
    let mut carry = 0;
    let mut product: Vec<u8> = number
        .iter()
        .rev()
        .map(|byte| {
            carry += u32::from(*byte) * factor;
            let low = (carry & 0xff) as u8;
            carry >>= 8;
            low
        })
        .collect();
    while carry > 0 {
        product.push((carry & 0xff) as u8);
        carry >>= 8;
    }
    product.reverse();
    product
}

#[test]
fn a_kid_is_found_by_its_exact_bytes() {
    let ours = set([good(), rsa()]);
    assert!(ours.get("ES256").is_some());
    assert!(ours.get("es256").is_none());
}

#[test]
fn sets_are_made_of_keys_of_other_sets() {
    let both = set([good(), rsa()]);
    let keys: Vec<PublicKey> = set([rsa()]).keys().chain(both.keys()).cloned().collect();
    assert_eq!(PublicKeySet::from_keys(keys), Ok(both));
    assert_eq!(PublicKeySet::from_keys([]), Err(JwksError::NoUsableKey(0)));
    let clash = set([changed(rsa(), "kid", json!("ES256"))]);
    assert_eq!(
        PublicKeySet::from_keys(clash.keys().chain(set([good()]).keys()).cloned()),
        Err(JwksError::KidClash)
    );
}

#[test]
fn any_kid_is_escaped_as_json() {
    let kid = "\"\\\u{0}\n\u{2028}\u{1f600}</script>";
    let ours = set([changed(good(), "kid", json!(kid))]);
    let value: Value = serde_json::from_slice(&ours.to_bytes()).unwrap();
    assert_eq!(value["keys"][0]["kid"], json!(kid));
}

/// A good key with some members replaced by those of other keys or by junk.
fn entry() -> impl Strategy<Value = Value> {
    let member = prop::sample::select(vec![
        "kty", "kid", "use", "alg", "crv", "x", "y", "n", "e", "key_ops", "d", "x5c",
    ]);
    let value = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(Value::from),
        ".{0,16}".prop_map(Value::from),
        prop::sample::select(vec!["RSA", "EC", "sig", "ES256", "RS256", "P-256", "AQAB"])
            .prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| BASE64URL.encode(bytes).into()),
    ];
    let start = prop::sample::select(SigningAlgorithm::ALL.to_vec())
        .prop_map(|algorithm| key(algorithm).entry());
    (start, prop::collection::vec((member, value), 0..3)).prop_map(|(mut entry, changes)| {
        for (member, value) in changes {
            entry[member] = value;
        }
        entry
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = PublicKeySet::from_upstream(&bytes, KeySetLimits::default());
    }

    #[test]
    fn whatever_is_accepted_leaves_clean_and_comes_back_the_same(entries in prop::collection::vec(entry(), 0..6)) {
        let Ok((set, rejected)) = read(&json!({"keys": entries})) else { return Ok(()) };
        prop_assert!(set.len() + rejected.len() <= entries.len());
        let bytes = set.to_bytes();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        for published in document["keys"].as_array().unwrap() {
            for member in published.as_object().unwrap().keys() {
                prop_assert!(["kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"].contains(&member.as_str()));
            }
        }
        let (again, none) = PublicKeySet::from_upstream(&bytes, KeySetLimits::default()).unwrap();
        prop_assert_eq!(none, vec![]);
        prop_assert_eq!(again.to_bytes(), bytes);
        prop_assert_eq!(again, set);
    }
}
