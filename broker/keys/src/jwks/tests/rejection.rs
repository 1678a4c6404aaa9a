//! Which key sets are refused, and which keys are left out.

use std::collections::BTreeSet;

use josekit::jwk::Jwk;
use josekit::jwk::alg::ec::EcCurve;
use josekit::jwk::alg::ed::EdCurve;
use serde_json::{Value, json};

use super::{changed, good, read, removed, rsa, why};
use crate::json::JsonError;
use crate::jwks::{JwksError, KeySetLimits, PublicKeySet, RejectReason, RejectedKey, RsaFault};
use crate::jwt::SigningAlgorithm;
use crate::testing::{key, set};

fn refused(document: &Value) -> JwksError {
    read(document).unwrap_err()
}

fn unusable(found: usize, first: Option<RejectReason>) -> JwksError {
    JwksError::NoUsableKey { found, first }
}

fn private(index: usize, kind: &'static str) -> JwksError {
    JwksError::PrivateKeyInSet { index, kind }
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
    assert_eq!(refused(&json!({"keys": []})), unusable(0, None));
    assert_eq!(
        refused(&json!({"keys": [{"kty": "AKP"}, 1]})),
        unusable(2, Some(RejectReason::Kid))
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
                private(1, "a private RSA key"),
                "{member}"
            );
        }
    }
    let symmetric = json!({"kty": "oct", "kid": "s", "k": "c2VjcmV0"});
    assert_eq!(
        refused(&json!({"keys": [symmetric, good()]})),
        private(0, "a symmetric key")
    );
    let odd = json!({"kty": "OKP", "crv": "Ed25519", "x": "AA", "d": "AA"});
    assert_eq!(
        refused(&json!({"keys": [odd, good()]})),
        private(0, "a private OKP key")
    );
    for (entry, kind) in [
        (json!({"kty": "EC", "d": "AA"}), "a private EC key"),
        (json!({"kty": "AKP", "priv": "AA"}), "a private AKP key"),
        (json!({"kty": "new", "priv": "AA"}), "a private key"),
    ] {
        assert_eq!(refused(&json!({"keys": [entry]})), private(0, kind));
    }
    let mut crowd = vec![json!({}); 300];
    crowd.push(changed(rsa(), "d", json!("AQAB")));
    assert_eq!(
        refused(&json!({"keys": crowd})),
        private(300, "a private RSA key"),
        "said before the number of keys"
    );
    let whole: Value = serde_json::to_value(key(SigningAlgorithm::Rs256).private.as_ref()).unwrap();
    assert_eq!(
        refused(&json!({"keys": [whole]})),
        private(0, "a private RSA key")
    );
    assert_eq!(
        private(3, "a symmetric key").to_string(),
        "key set publishes a symmetric key: keys[3]"
    );
}

#[test]
fn a_set_that_signs_nothing_says_why() {
    let said = |entries: Value| {
        let error = refused(&json!({ "keys": entries }));
        assert!(!error.fix().is_empty() && !error.fix().ends_with('.'));
        error.to_string()
    };
    assert_eq!(said(json!([])), "key set has no usable key among its 0");
    assert_eq!(
        said(json!([changed(good(), "use", json!("enc"))])),
        "key set has no usable key among its 1: keys[0] has a use other than sig"
    );
    assert_eq!(
        said(json!([changed(good(), "alg", json!("EdDSA")), 1])),
        "key set has no usable key among its 2: keys[0] has an alg that does not fit its kty or crv"
    );
}

#[test]
fn each_refusal_has_its_own_fix_and_each_rejection_its_own_code() {
    let errors = [
        JwksError::NoKeysArray,
        JwksError::TooManyKeys { found: 2, limit: 1 },
        private(0, "a private key"),
        JwksError::KidClash,
        unusable(0, None),
    ];
    let fixes = BTreeSet::from(errors.map(|error| error.fix()));
    assert_eq!(fixes.len(), errors.len(), "{fixes:?}");
    let reasons = [
        RejectReason::NotAnObject,
        RejectReason::KeyType,
        RejectReason::Kid,
        RejectReason::Use,
        RejectReason::Operations,
        RejectReason::Curve,
        RejectReason::Algorithm,
        RejectReason::Member("n"),
        RejectReason::Encoding("n"),
        RejectReason::Rsa(RsaFault::Roca),
        RejectReason::Point,
    ];
    let codes = BTreeSet::from(reasons.map(RejectReason::code));
    assert_eq!(codes.len(), reasons.len(), "{codes:?}");
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
