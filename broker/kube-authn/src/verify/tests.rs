#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use keyferry_go_formats::base64::encode_raw_url;
use serde_json::{Value, json};

use super::*;
use crate::config::{AuthenticationConfiguration, ClaimValidationRule, JwtAuthenticator};
use crate::validate::validate_configuration;

const NOW: i64 = 1_790_000_000;
const HUB: &str = "https://hub";

struct Hub {
    pair: EcdsaKeyPair,
}

impl Hub {
    fn new() -> Self {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .unwrap();
        Self {
            pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref())
                .unwrap(),
        }
    }

    fn keys(&self) -> Keys {
        let point = self.pair.public_key().as_ref();
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": encode_raw_url(&point[1..33]), "y": encode_raw_url(&point[33..])});
        Keys::none().with_key_set(HUB, json!({"keys": [key]}).to_string().as_bytes())
    }

    fn sign(&self, header: &str, payload: &str) -> String {
        let input = format!(
            "{}.{}",
            encode_raw_url(header.as_bytes()),
            encode_raw_url(payload.as_bytes())
        );
        let signature = self
            .pair
            .sign(&SystemRandom::new(), input.as_bytes())
            .unwrap();
        format!("{input}.{}", encode_raw_url(signature.as_ref()))
    }

    fn token(&self, payload: &str) -> String {
        self.sign("{\"alg\":\"ES256\",\"kid\":\"k\"}", payload)
    }
}

fn authenticator() -> JwtAuthenticator {
    let mut jwt = JwtAuthenticator::default();
    jwt.issuer.url = HUB.to_owned();
    jwt.issuer.audiences = vec!["a".to_owned()];
    jwt.claim_mappings.username.claim = "sub".to_owned();
    jwt.claim_mappings.username.prefix = Some("hub:".to_owned());
    jwt
}

fn compile(jwt: JwtAuthenticator, minor: Minor) -> Compiled {
    validate_configuration(
        &AuthenticationConfiguration {
            jwt: vec![jwt],
            anonymous: None,
        },
        minor,
        &[],
    )
    .unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn ask(jwt: JwtAuthenticator, minor: Minor, token: &str, keys: &Keys) -> Outcome {
    let verdict = verify_token(
        &compile(jwt, minor),
        &Token::read(token.as_bytes()).unwrap(),
        keys,
        at(NOW),
    );
    verdict.outcomes.into_iter().next().unwrap()
}

/// Returns the claims of a valid token with some changed; null removes a claim.
fn claims(changes: Value) -> String {
    let mut claims =
        json!({"iss": HUB, "aud": ["a"], "sub": "s", "exp": NOW + 600, "iat": NOW, "jti": "id"});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims.to_string()
}

fn outcome(change: impl FnOnce(&mut JwtAuthenticator), changes: Value) -> Outcome {
    let mut jwt = authenticator();
    change(&mut jwt);
    let hub = Hub::new();
    ask(jwt, Minor::V1_36, &hub.token(&claims(changes)), &hub.keys())
}

fn user(outcome: Outcome) -> User {
    match outcome {
        Outcome::Accepted(user) => user,
        other => panic!("{other:?}"),
    }
}

fn rejection(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

fn rejected(outcome: Outcome) -> (Code, String) {
    let rejection = rejection(outcome);
    (rejection.code, rejection.message)
}

#[test]
fn a_good_token_names_the_user() {
    let extra = [(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec!["JTI=id".to_owned()],
    )];
    let expected = User {
        username: "hub:s".to_owned(),
        extra: extra.into(),
        ..User::default()
    };
    assert_eq!(user(outcome(|_| {}, json!({}))), expected);
    assert_eq!(user(outcome(|_| {}, json!({"jti": 5}))).extra.len(), 0);
    assert_eq!(user(outcome(|_| {}, json!({"jti": ""}))).extra.len(), 0);
    let hub = Hub::new();
    let old = user(ask(
        authenticator(),
        Minor::V1_31,
        &hub.token(&claims(json!({}))),
        &hub.keys(),
    ));
    assert!(old.extra.is_empty(), "no credential id before 1.32");
}

#[test]
fn others_tokens_are_skipped() {
    assert_eq!(
        outcome(|_| {}, json!({"iss": "https://hub/"})),
        Outcome::Skipped(Code::IssuerDiffers)
    );
    let hub = Hub::new();
    assert_eq!(
        ask(authenticator(), Minor::V1_36, "x", &hub.keys()),
        Outcome::Skipped(Code::NotThreeParts)
    );
}

#[test]
fn times() {
    let (code, message) = rejected(outcome(|_| {}, json!({"exp": NOW - 1})));
    let words =
        "oidc: verify token: oidc: token is expired (Token Expiry: 2026-09-21 14:13:19 +0000 UTC)";
    assert_eq!((code, message.as_str()), (Code::TokenExpired, words));
    assert!(
        matches!(outcome(|_| {}, json!({"exp": NOW})), Outcome::Accepted(_)),
        "no leeway, and none needed"
    );
    assert!(
        rejected(outcome(|_| {}, json!({"exp": null})))
            .1
            .contains("0001-01-01 00:00:00 +0000 UTC")
    );
    for far in [json!(1e19), json!(i64::MAX), json!("1e19")] {
        assert_eq!(
            rejected(outcome(|_| {}, json!({"exp": far}))).0,
            Code::TokenExpired
        );
    }
    assert!(matches!(
        outcome(|_| {}, json!({"nbf": NOW + 60})),
        Outcome::Accepted(_)
    ));
    assert_eq!(
        rejected(outcome(|_| {}, json!({"nbf": NOW + 61}))).0,
        Code::TokenNotYetValid
    );
    assert!(
        matches!(
            outcome(|_| {}, json!({"iat": NOW + 9999})),
            Outcome::Accepted(_)
        ),
        "iat is not looked at"
    );
    let hub = Hub::new();
    let token = Token::read(hub.token(&claims(json!({"exp": NOW}))).as_bytes()).unwrap();
    let late = Timestamp::new(NOW, 1).unwrap();
    let verdict = verify_token(
        &compile(authenticator(), Minor::V1_36),
        &token,
        &hub.keys(),
        late,
    );
    assert!(
        matches!(verdict.outcomes[0], Outcome::Rejected(_)),
        "a nanosecond late"
    );
}

#[test]
fn audiences_before_or_after_expiry() {
    let (code, message) = rejected(outcome(|_| {}, json!({"aud": ["x"], "exp": 1})));
    assert_eq!(
        (code, message.as_str()),
        (
            Code::AudienceDiffers,
            "oidc: verify token: oidc: expected audience \"a\" got [\"x\"]"
        )
    );
    let several = |jwt: &mut JwtAuthenticator| {
        jwt.issuer.audiences = vec!["b".to_owned(), "a".to_owned()];
        jwt.issuer.audience_match_policy = "MatchAny".to_owned();
    };
    assert_eq!(
        rejected(outcome(several, json!({"aud": "x", "exp": 1}))).0,
        Code::TokenExpired
    );
    assert_eq!(
        rejected(outcome(several, json!({"aud": "x"}))).1,
        "oidc: verify token: oidc: expected audience in [\"a\" \"b\"] got [\"x\"]"
    );
    assert!(matches!(
        outcome(several, json!({"aud": "b"})),
        Outcome::Accepted(_)
    ));
}

#[test]
fn the_signature_is_checked_last_before_1_36() {
    let hub = Hub::new();
    let stranger = Hub::new();
    let expired = stranger.token(&claims(json!({"exp": 1})));
    let code = |minor, token: &str| rejected(ask(authenticator(), minor, token, &hub.keys())).0;
    for minor in Minor::ALL {
        let expected = if minor >= Minor::V1_36 {
            Code::SignatureInvalid
        } else {
            Code::TokenExpired
        };
        assert_eq!(code(minor, &expired), expected, "{minor}");
        assert_eq!(
            code(minor, &stranger.token(&claims(json!({})))),
            Code::SignatureInvalid
        );
        let unsigned = hub.sign("{\"alg\":\"none\"}", &claims(json!({"exp": 1})));
        let expected = if minor >= Minor::V1_36 {
            Code::AlgorithmUnsupported
        } else {
            Code::TokenExpired
        };
        assert_eq!(code(minor, &unsigned), expected, "{minor}");
    }
    let (_, message) = rejected(ask(
        authenticator(),
        Minor::V1_33,
        &hub.sign("{}", &claims(json!({}))),
        &hub.keys(),
    ));
    assert_eq!(
        message,
        "oidc: verify token: oidc: id token signed with unsupported algorithm, expected [\"ES256\" \"ES384\" \"ES512\" \"PS256\" \
         \"PS384\" \"PS512\" \"RS256\" \"RS384\" \"RS512\"] got \"\""
    );
}

#[test]
fn headers_and_keys() {
    let hub = Hub::new();
    let payload = claims(json!({}));
    let ask = |header: &str, keys: &Keys| {
        ask(
            authenticator(),
            Minor::V1_36,
            &hub.sign(header, &payload),
            keys,
        )
    };
    assert!(
        matches!(
            ask("{\"alg\":\"ES256\"}", &hub.keys()),
            Outcome::Accepted(_)
        ),
        "no kid tries all keys"
    );
    assert_eq!(
        rejected(ask("{\"alg\":\"ES256\",\"kid\":\"x\"}", &hub.keys())).0,
        Code::SignatureInvalid
    );
    assert_eq!(
        rejected(ask("{\"alg\":\"ES256\",\"crit\":[\"exp\"]}", &hub.keys())).0,
        Code::SignatureInvalid
    );
    assert_eq!(
        rejected(ask("{\"alg\":\"RS256\"}", &hub.keys())).0,
        Code::SignatureInvalid
    );
    assert_eq!(
        rejected(ask("{\"alg\":5}", &hub.keys())).0,
        Code::MalformedJwt
    );
    assert_eq!(
        rejected(ask(
            "{\"alg\":\"ES256\"}",
            &Keys::for_all(b"{\"keys\":[{\"kty\":\"AKP\"}]}")
        ))
        .0,
        Code::KeySetUndecodable
    );
    assert!(
        matches!(
            ask("{\"alg\":\"ES256\"}", &Keys::none()),
            Outcome::Accepted(_)
        ),
        "unchecked"
    );
}

#[test]
fn without_keys_the_verdict_says_so() {
    let hub = Hub::new();
    let compiled = compile(authenticator(), Minor::V1_36);
    let token = Token::read(hub.token(&claims(json!({}))).as_bytes()).unwrap();
    assert_eq!(
        verify_token(&compiled, &token, &Keys::none(), at(NOW)).signature,
        SignatureCheck::NotChecked
    );
    assert_eq!(
        verify_token(&compiled, &token, &hub.keys(), at(NOW)).signature,
        SignatureCheck::Checked
    );
}

#[test]
fn usernames_by_claim() {
    let by = |claim: &'static str| {
        move |jwt: &mut JwtAuthenticator| jwt.claim_mappings.username.claim = claim.to_owned()
    };
    let (code, message) = rejected(outcome(by("s"), json!({})));
    assert_eq!(
        (code, message.as_str()),
        (
            Code::UsernameClaimMissing,
            "oidc: parse username claims \"s\": claim not present"
        )
    );
    assert_eq!(
        rejected(outcome(by("n"), json!({"n": 5}))).1,
        "oidc: parse username claims \"n\": json: cannot unmarshal number into Go value of type \
         string"
    );
    assert_eq!(user(outcome(by("e"), json!({"e": ""}))).username, "hub:");
    let null = |payload: String| payload.replace("\"NULL\"", "null");
    let hub = Hub::new();
    let token = hub.token(&null(claims(json!({"sub": "NULL"}))));
    assert_eq!(
        user(ask(authenticator(), Minor::V1_36, &token, &hub.keys())).username,
        "hub:"
    );
    let mail = |verified: Value| {
        outcome(
            by("email"),
            json!({"email": "m", "email_verified": verified}),
        )
    };
    assert_eq!(user(mail(json!(true))).username, "hub:m");
    assert_eq!(
        user(outcome(by("email"), json!({"email": "m"}))).username,
        "hub:m"
    );
    assert_eq!(
        rejected(mail(json!(false))),
        (
            Code::EmailNotVerified,
            "oidc: email not verified".to_owned()
        )
    );
    assert_eq!(
        rejected(mail(json!("true"))),
        (
            Code::EmailVerifiedNotBool,
            "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of \
             type bool"
                .to_owned()
        )
    );
}

#[test]
fn groups_and_uid_by_claim() {
    let by = |jwt: &mut JwtAuthenticator| {
        jwt.claim_mappings.groups.claim = "g".to_owned();
        jwt.claim_mappings.groups.prefix = Some("p:".to_owned());
    };
    let groups = |value: Value| user(outcome(by, json!({"g": value}))).groups;
    assert_eq!(groups(json!(["a", null, "b"])), ["p:a", "p:", "p:b"]);
    assert_eq!(groups(json!("")), ["p:"]);
    assert_eq!(groups(json!([])), [""; 0]);
    assert_eq!(user(outcome(by, json!({}))).groups, [""; 0]);
    assert_eq!(
        rejected(outcome(by, json!({"g": ["a", 1]}))).1,
        "oidc: parse groups claim \"g\": json: cannot unmarshal array into Go value of type string"
    );
    let uid = |jwt: &mut JwtAuthenticator| jwt.claim_mappings.uid.claim = "u".to_owned();
    assert_eq!(user(outcome(uid, json!({"u": "x"}))).uid, "x");
    assert_eq!(
        rejected(outcome(uid, json!({}))).1,
        "oidc: parse uid claim \"u\": claim not present"
    );
    assert_eq!(
        rejected(outcome(uid, json!({"u": true}))).0,
        Code::UidClaimNotString
    );
}

#[test]
fn distributed_groups() {
    let by = |jwt: &mut JwtAuthenticator| {
        jwt.claim_mappings.groups.claim = "g".to_owned();
        jwt.claim_mappings.groups.prefix = Some(String::new());
    };
    let names = json!({"g": "s"});
    let at = |endpoint: &str| json!({"_claim_names": names, "_claim_sources": {"s": {"endpoint": endpoint}}});
    assert!(
        matches!(outcome(by, at("https://x")), Outcome::Undetermined(undetermined) if undetermined.code == Code::NeedsNetwork)
    );
    assert_eq!(user(outcome(by, at(""))).groups, [""; 0]);
    assert!(
        matches!(outcome(|_| {}, at("https://x")), Outcome::Accepted(_)),
        "nobody asks for groups"
    );
    assert_eq!(
        rejected(outcome(|_| {}, json!({"_claim_names": names}))).0,
        Code::ClaimSourceMissing
    );
    let empty = rejected(outcome(by, json!({"_claim_names": {}})));
    assert_eq!(
        empty,
        (
            Code::DistributedClaimsMalformed,
            "oidc: could not expand distributed claims: oidc: no claim sources".to_owned()
        )
    );
}

#[test]
fn required_claims_fail_in_any_order() {
    let rule = |claim: &str, value: &str| ClaimValidationRule {
        claim: claim.to_owned(),
        required_value: value.to_owned(),
        ..Default::default()
    };
    let rules = |jwt: &mut JwtAuthenticator| {
        jwt.claim_validation_rules = vec![rule("hd", "y"), rule("n", "")]
    };
    assert!(matches!(
        outcome(rules, json!({"hd": "y", "n": ""})),
        Outcome::Accepted(_)
    ));
    let one = rejection(outcome(rules, json!({"hd": "x", "n": ""})));
    assert_eq!(
        one.message,
        "oidc: required claim hd value does not match. Got = x, want = y"
    );
    assert!(one.others.is_empty());
    let both = rejection(outcome(rules, json!({"n": 5})));
    assert_eq!(
        (both.code, both.message.as_str()),
        (
            Code::RequiredClaimMissing,
            "oidc: required claim hd not present in ID token"
        )
    );
    assert_eq!(
        both.others,
        [(
            Code::RequiredClaimNotString,
            "oidc: parse claim n: json: cannot unmarshal number into Go value of type string"
                .to_owned()
        )]
    );
}

#[test]
fn the_first_that_does_not_skip_decides() {
    let mut other = authenticator();
    other.issuer.url = "https://other".to_owned();
    let configuration = AuthenticationConfiguration {
        jwt: vec![other, authenticator()],
        anonymous: None,
    };
    let compiled = validate_configuration(&configuration, Minor::V1_36, &[]).unwrap();
    let hub = Hub::new();
    let verdict = verify_token(
        &compiled,
        &Token::read(hub.token(&claims(json!({}))).as_bytes()).unwrap(),
        &hub.keys(),
        at(NOW),
    );
    assert!(matches!(
        verdict.outcomes.as_slice(),
        [Outcome::Skipped(_), Outcome::Accepted(_)]
    ));
    assert!(matches!(verdict.union(), Union::Accepted(_)));
}

mod advice;
mod expressions;
mod observed;

#[test]
fn up_to_1_32_the_library_that_reads_tokens_has_another_name() {
    let hub = Hub::new();
    let token = hub.sign(
        "{\"alg\":\"ES256\",\"jwk\":{\"kty\":\"oct\",\"k\":\"AQ\"}}",
        &claims(json!({})),
    );
    for minor in Minor::ALL {
        let library = if minor <= Minor::V1_32 {
            "square/go-jose"
        } else {
            "go-jose/go-jose"
        };
        let message = format!(
            "oidc: verify token: oidc: malformed jwt: {library}: invalid embedded jwk, must be \
             public key"
        );
        let said = rejection(ask(authenticator(), minor, &token, &hub.keys()));
        assert_eq!((said.message, said.exact), (message, true), "{minor}");
    }
}
