//! Tokens: of ServiceAccounts, of CI systems, and the claims that rules name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::id_token::IdTokenClaims;
use keyferry_keys::json::{JsonLimits, MAX_JSON_DEPTH, read_object};
use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
use keyferry_keys::jwt::{JwtError, MAX_JWT_BYTES, MAX_KID_BYTES, UnverifiedJwt};
use keyferry_keys::verify::{Expected, check_claims, verify_signature};
use serde_json::{Map, Value, json};

use crate::now;

/// The issuer of the seeds.
pub const ISSUER: &str = "https://hub.example.com";

/// The audience of the seeds.
pub const AUDIENCE: &str = "keyferry.dev";

/// The key of the token among the seeds.
pub const KEYS: &[u8] = include_bytes!("../corpus/jwks/plain.json");

/// The longest claim that a rule can compare.
const MAX_CLAIM_BYTES: usize = 1024;

/// The key set of the seeds.
pub(crate) fn seed_keys() -> PublicKeySet {
    let read = PublicKeySet::from_upstream(KEYS, KeySetLimits::default());
    read.expect("the seed is a key set").0
}

/// A token that is parsed keeps the limits. One that verifies says what the seed says, because
/// nobody has its private key any more. A token of a CI system is parsed by the same rules.
pub(crate) fn jwt(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let parsed = UnverifiedJwt::parse(text);
    let id_token = UnverifiedJwt::parse_id_token(text);
    match (&parsed, &id_token) {
        (Ok(one), Ok(other)) => assert_eq!(one.claims(), other.claims()),
        (Err(JwtError::HeaderMemberRefused("x5t" | "x5t#S256")), _) => {}
        (Err(one), Err(other)) => assert_eq!(one, other),
        (one, other) => panic!("{one:?}, and as an id-token {other:?}"),
    }
    if let Ok(jwt) = &id_token {
        check_id_token(jwt, text);
    }
    let Ok(jwt) = parsed else {
        return;
    };
    // Not the whole text: of an ECDSA signature (r, s) anyone can make (r, -s).
    let signed = |token: &str| token.rsplit_once('.').map(|(input, _)| input.to_owned());
    assert!(
        verify_signature(&jwt, &seed_keys()).is_err()
            || signed(text) == signed(include_str!("../corpus/jwt/plain"))
    );
    if let Ok(claims) = ServiceAccountClaims::read(&jwt) {
        check_account_claims(&claims);
    }
}

fn check_id_token(jwt: &UnverifiedJwt, text: &str) {
    assert!(text.len() <= MAX_JWT_BYTES);
    assert!(
        jwt.kid()
            .is_none_or(|kid| (1..=MAX_KID_BYTES).contains(&kid.len()))
    );
    assert!(!format!("{jwt:?}").contains(text));
    if let Ok(claims) = IdTokenClaims::read(jwt) {
        assert!((1..=MAX_CLAIM_BYTES).contains(&claims.subject().len()));
        assert_eq!(claims.claim("sub"), Some(claims.subject()));
        assert!(!claims.registered().audiences.is_empty());
    }
}

fn check_account_claims(claims: &ServiceAccountClaims) {
    let registered = &claims.registered;
    assert!(!registered.issuer.is_empty() && !registered.audiences.is_empty());
    assert!(registered.expires_at >= Timestamp::UNIX_EPOCH);
    let (issuer, audience) = (
        Issuer::new(ISSUER).expect("an issuer"),
        Audience::new(AUDIENCE).expect("an audience"),
    );
    let expected = Expected {
        issuer: &issuer,
        audience: &audience,
        now: now(),
        longest_life: Some(SignedDuration::from_hours(24)),
    };
    if check_claims(claims, &expected).is_ok() {
        assert_eq!(registered.issuer, ISSUER);
        assert_eq!(registered.audiences, [AUDIENCE]);
        assert!(registered.expires_at > now());
    }
}

/// The first line is the name of a claim as a rule of an external issuer writes it, the rest are
/// claims. What the name selects is what serde_json's JSON Pointer selects inside objects.
pub(crate) fn claim_pointer(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let name = parts.next().map(std::str::from_utf8);
    let (Some(Ok(name)), Some(claims)) = (name, parts.next()) else {
        return;
    };
    let limits = JsonLimits {
        bytes: MAX_JWT_BYTES,
        depth: MAX_JSON_DEPTH,
    };
    let Ok(mut claims) = read_object(claims, limits) else {
        return;
    };
    for (claim, value) in [
        ("iss", json!(ISSUER)),
        ("sub", json!("repo")),
        ("aud", json!(AUDIENCE)),
        ("iat", json!(1)),
        ("exp", json!(2)),
    ] {
        claims.entry(claim).or_insert(value);
    }
    let segments = [
        json!({ "alg": "RS256" }).to_string(),
        json!(claims).to_string(),
    ];
    let token = segments.map(|segment| URL_SAFE_NO_PAD.encode(segment));
    let Ok(jwt) = UnverifiedJwt::parse_id_token(&format!("{}.{}.AAAA", token[0], token[1])) else {
        return;
    };
    let Ok(read) = IdTokenClaims::read(&jwt) else {
        return;
    };
    // Of the parsed claims: serde_json may change the last bit of a number when it is written.
    let expected = select(jwt.claims(), name);
    assert_eq!(read.has_claim(name), expected.is_some());
    let text = expected.as_ref().and_then(Value::as_str);
    assert_eq!(
        read.claim(name),
        text.filter(|text| text.len() <= MAX_CLAIM_BYTES)
    );
}

/// What a name selects, by serde_json.
fn select(claims: &Map<String, Value>, name: &str) -> Option<Value> {
    if !name.starts_with('/') {
        return claims.get(name).cloned();
    }
    let document = Value::Object(claims.clone());
    // No step of a rule's name is the index of a list.
    let parents = name.match_indices('/').map(|(at, _)| &name[..at]);
    let are_objects = parents
        .map(|parent| document.pointer(parent))
        .all(|parent| parent.is_some_and(Value::is_object));
    document.pointer(name).filter(|_| are_objects).cloned()
}
