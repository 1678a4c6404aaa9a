//! josekit beside our verification: what is accepted here josekit accepts too.

#![allow(clippy::unwrap_used)]

use proptest::prelude::{any, prop, prop_assert, proptest};
use serde_json::{Value, json};

use super::verify_signature;
use crate::jwks::PublicKeySet;
use crate::jwt::{SigningAlgorithm, UnverifiedJwt};
use crate::testing::{TestKey, claims, key};

/// The first reason for which the token is refused here.
fn refusal(token: &str, keys: &PublicKeySet) -> Option<String> {
    let jwt = match UnverifiedJwt::parse(token) {
        Ok(jwt) => jwt,
        Err(error) => return Some(format!("{error:?}")),
    };
    verify_signature(&jwt, keys)
        .err()
        .map(|error| format!("{error:?}"))
}

fn josekit_accepts(key: &TestKey, token: &str) -> bool {
    josekit::jwt::decode_with_verifier(token, &*key.verifier()).is_ok()
}

/// Each header is signed as it stands. Where only josekit accepts the token, the reason is one that
/// we want: a header that means more than it seems, or claims that two readers read differently.
#[test]
fn josekit_alone_accepts_what_is_refused_for_a_reason() {
    let key = key(SigningAlgorithm::Es256);
    let check = |header: Value, claims: &str, by_josekit: bool, expected: Option<&str>| {
        let token = key.sign(header.to_string().as_bytes(), claims.as_bytes());
        assert_eq!(
            josekit_accepts(&key, &token),
            by_josekit,
            "josekit: {header}"
        );
        let refusal = refusal(&token, &key.set());
        let name = refusal
            .as_deref()
            .and_then(|why| why.split([' ', '{']).next());
        assert_eq!(name, expected, "{header}");
    };
    let plain = json!({ "alg": "ES256", "kid": "ES256" });
    let body = claims().to_string();
    for (member, value, by_josekit, expected) in [
        ("typ", json!("JWT"), true, None),
        ("typ", json!("at+jwt"), true, Some("TypeRefused")),
        ("kid", json!("other"), true, Some("UnknownKid")),
        ("alg", json!("ES384"), false, Some("AlgorithmMismatch")),
        ("alg", json!("none"), false, Some("AlgorithmRefused")),
        (
            "crit",
            json!(["x"]),
            false,
            Some(r#"HeaderMemberRefused("crit")"#),
        ),
        (
            "jku",
            json!("https://a"),
            true,
            Some(r#"HeaderMemberRefused("jku")"#),
        ),
        (
            "zip",
            json!("DEF"),
            true,
            Some(r#"HeaderMemberRefused("zip")"#),
        ),
    ] {
        let mut header = plain.clone();
        header[member] = value;
        check(header, &body, by_josekit, expected);
    }
    check(json!({ "alg": "ES256" }), &body, true, Some("NoKid"));
    let twice = body.replacen('{', r#"{"sub":"system:serviceaccount:tenant-b:x","#, 1);
    check(plain, &twice, true, Some("Claims(DuplicateMember"));
}

proptest! {
    /// Edits after the signature was made: whatever is still accepted, josekit accepts.
    #[test]
    fn josekit_accepts_what_is_accepted_here(
        algorithm in prop::sample::select(SigningAlgorithm::ALL.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"A-_.=+Zg09{\"".to_vec())), 0..3),
    ) {
        let key = key(algorithm);
        let mut token = key.token(&claims()).into_bytes();
        for (at, byte) in edits {
            let at = at.index(token.len());
            token[at] = byte;
        }
        let token = String::from_utf8(token).unwrap();
        prop_assert!(refusal(&token, &key.set()).is_some() || josekit_accepts(&key, &token));
    }
}
