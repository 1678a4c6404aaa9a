//! What is published of an upstream's key set, and that it is read back as the same set.

#![allow(clippy::unwrap_used)]

mod numbers;
mod rejection;

use base64::Engine;
use josekit::jwk::JwkSet;
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::{Value, json};

use super::{JwksError, KeySetLimits, PublicKey, PublicKeySet, RejectReason, RejectedKey};
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
    assert_eq!(
        PublicKeySet::from_keys([]),
        Err(JwksError::NoUsableKey {
            found: 0,
            first: None
        })
    );
    assert!(PublicKeySet::revoked_whole().is_empty() && !set([rsa()]).is_empty());
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
