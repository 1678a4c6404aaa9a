#![allow(clippy::unwrap_used)]

use std::time::Duration;

use base64::Engine;
use jiff::Timestamp;
use josekit::jwk::Jwk;
use josekit::jwk::alg::ec::EcCurve;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::lifetime::{LEAST_USE, MARGIN};
use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::{BoundToken, MintAnswer, MintExpectation, MintFault, check_minted, kid_of};
use crate::jwt::{BASE64URL, SigningAlgorithm};
use crate::testing::{NOW, TestKey, claims, key};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn moment(wall: i64, mono: u64) -> Moment {
    Moment {
        wall: at(wall),
        mono: Duration::from_secs(mono),
    }
}

fn minted(claims: &Value) -> MintAnswer {
    mint_answer(key(SigningAlgorithm::Es256).token(claims))
}

fn mint_answer(token: String) -> MintAnswer {
    MintAnswer {
        token: SecretString::from(token),
        expires_at: at(NOW + 3600),
    }
}

fn checked(answer: MintAnswer, now: Moment) -> Result<BoundToken, MintFault> {
    let keys = key(SigningAlgorithm::Es256).set();
    let (issuer, audience) = (
        Issuer::new("https://hub.example.com").unwrap(),
        Audience::new("keyferry.dev").unwrap(),
    );
    let service_account = ServiceAccountIdentity {
        account: ServiceAccount::from_username("system:serviceaccount:tenant-a:reconciler")
            .unwrap(),
        uid: Uid::new("c7a1f2e0-3f6d-4b57-8a67-2a9d1b8e4d33").unwrap(),
    };
    let lifetime = Duration::from_secs(3600);
    check_minted(
        answer,
        &MintExpectation {
            issuer: &issuer,
            keys: &keys,
            service_account: &service_account,
            audience: &audience,
            lifetime,
        },
        now,
    )
}

fn fault(change: impl FnOnce(&mut Value)) -> Option<MintFault> {
    let mut body = claims();
    change(&mut body);
    checked(minted(&body), moment(NOW, 100)).err()
}

#[test]
fn what_was_asked_for_is_bound() {
    let bound = checked(minted(&claims()), moment(NOW, 100)).unwrap();
    assert_eq!(bound.token_id(), "6f2ee0f7-1ab9-4d7a-8f4e-0e2f1b1f0c55");
    assert_eq!(&*bound.shared_id(), bound.token_id());
    assert_eq!((bound.kid(), &*bound.shared_kid()), ("ES256", "ES256"));
    assert_eq!(bound.skew_seconds(), 0);
    let slow = checked(minted(&claims()), moment(NOW - 7, 100)).unwrap();
    assert_eq!(slow.skew_seconds(), 7, "the hub is ahead");
    assert_eq!(bound.lifetime(), Duration::from_secs(3600));
    assert_eq!(bound.deadline().wall(), at(NOW + 3600));
    assert_eq!(bound.age(moment(NOW, 160)), Duration::from_secs(60));
    assert_eq!(bound.secret().expose_secret().matches('.').count(), 2);
    assert_eq!(fault(|body| body["aud"] = json!("keyferry.dev")), None);
    let old_hub = |body: &mut Value| drop(body.as_object_mut().unwrap().remove("jti"));
    assert_eq!(fault(old_hub), None, "hubs before 1.32 write no jti");
}

#[test]
fn what_is_no_bound_token_is_malformed() {
    for text in ["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
        assert_eq!(
            checked(mint_answer(text.to_owned()), moment(NOW, 100)).err(),
            Some(MintFault::Malformed),
            "{text:?}"
        );
    }
    assert_eq!(
        fault(|body| drop(body.as_object_mut().unwrap().remove("kubernetes.io"))),
        Some(MintFault::Malformed),
        "a legacy token"
    );
    assert_eq!(
        fault(|body| body["sub"] = json!("system:serviceaccount:tenant-b:reconciler")),
        Some(MintFault::Malformed)
    );
    assert_eq!(
        fault(|body| body["exp"] = json!("never")),
        Some(MintFault::Malformed)
    );
}

#[test]
fn a_longer_life_than_was_asked_for_is_refused() {
    assert_eq!(
        fault(|body| body["exp"] = json!(NOW + 3601)),
        None,
        "a hub may round the two ends apart"
    );
    assert_eq!(
        fault(|body| body["exp"] = json!(NOW + 3602)),
        Some(MintFault::TooLong)
    );
    assert_eq!(
        fault(|body| body["exp"] = json!(NOW + 365 * 86_400)),
        Some(MintFault::TooLong)
    );
}

#[test]
fn another_issuer_is_refused() {
    for issuer in ["https://hub.example.com/", "https://other.example.com"] {
        assert_eq!(
            fault(|body| body["iss"] = json!(issuer)),
            Some(MintFault::Issuer),
            "{issuer}"
        );
    }
}

#[test]
fn another_audience_is_refused() {
    for audience in [
        json!(["other"]),
        json!(["keyferry.dev", "other"]),
        json!(["other", "keyferry.dev"]),
        json!("keyferry.dev,other"),
    ] {
        assert_eq!(
            fault(|body| body["aud"] = audience.clone()),
            Some(MintFault::Audience),
            "{audience}"
        );
    }
}

#[test]
fn another_service_account_is_refused() {
    let other_name = |body: &mut Value| {
        body["sub"] = json!("system:serviceaccount:tenant-a:other");
        body["kubernetes.io"]["serviceaccount"]["name"] = json!("other");
    };
    let other_namespace = |body: &mut Value| {
        body["sub"] = json!("system:serviceaccount:tenant-b:reconciler");
        body["kubernetes.io"]["namespace"] = json!("tenant-b");
    };
    assert_eq!(fault(other_name), Some(MintFault::Subject));
    assert_eq!(fault(other_namespace), Some(MintFault::Subject));
    let recreated =
        |body: &mut Value| body["kubernetes.io"]["serviceaccount"]["uid"] = json!("another");
    assert_eq!(fault(recreated), Some(MintFault::Uid));
}

#[test]
fn a_key_that_is_not_published_is_told_apart_from_a_bad_signature() {
    let body = claims();
    let signer = key(SigningAlgorithm::Es256);
    let verdict = |token: String| checked(mint_answer(token), moment(NOW, 100)).err();
    let header =
        |header: Value| signer.sign(header.to_string().as_bytes(), body.to_string().as_bytes());
    assert_eq!(
        verdict(header(json!({"alg": "ES256", "kid": "next"}))),
        Some(MintFault::UnknownKey)
    );
    assert_eq!(
        verdict(header(json!({"alg": "ES256"}))),
        Some(MintFault::UnknownKey)
    );
    assert_eq!(
        verdict(header(json!({"alg": "ES384", "kid": "ES256"}))),
        Some(MintFault::Signature),
        "another alg than the key's"
    );
    let token = signer.token(&body);
    let (input, signature) = token.rsplit_once('.').unwrap();
    let mut signature = BASE64URL.decode(signature).unwrap();
    signature[10] ^= 1;
    assert_eq!(
        verdict(format!("{input}.{}", BASE64URL.encode(&signature))),
        Some(MintFault::Signature)
    );
    let mut changed = claims();
    changed["jti"] = json!("another");
    let other = signer.token(&changed);
    assert_eq!(
        verdict(format!(
            "{}.{}",
            other.rsplit_once('.').unwrap().0,
            token.rsplit_once('.').unwrap().1
        )),
        Some(MintFault::Signature)
    );
    let stranger = TestKey {
        algorithm: SigningAlgorithm::Es256,
        private: Jwk::generate_ec_key(EcCurve::P256).unwrap(),
    };
    assert_eq!(
        verdict(stranger.token(&body)),
        Some(MintFault::Signature),
        "the kid of our key, signed with another"
    );
}

#[test]
fn a_minted_token_names_its_key() {
    assert_eq!(kid_of(&minted(&claims())).as_deref(), Some("ES256"));
    assert_eq!(
        kid_of(&mint_answer(key(SigningAlgorithm::Es384).token(&claims()))).as_deref(),
        Some("ES384")
    );
    assert_eq!(kid_of(&mint_answer("x".to_owned())), None);
    let token = checked(minted(&claims()), moment(NOW, 100)).unwrap();
    assert_eq!(token.kid(), "ES256");
}

#[test]
fn clocks_may_differ_by_30_s() {
    for seconds in [-30, 0, 30] {
        assert!(
            checked(minted(&claims()), moment(NOW + seconds, 100)).is_ok(),
            "{seconds}"
        );
    }
    for seconds in [-31, 31, -86_400, 1_800] {
        assert_eq!(
            checked(minted(&claims()), moment(NOW + seconds, 100)).err(),
            Some(MintFault::Skew),
            "{seconds}"
        );
    }
    assert_eq!(fault(|body| body["nbf"] = json!(NOW + 30)), None);
    assert_eq!(
        fault(|body| body["nbf"] = json!(NOW + 31)),
        Some(MintFault::Skew),
        "the target would not take it yet"
    );
}

#[test]
fn a_short_life_is_refused() {
    let least = i64::try_from((MARGIN + LEAST_USE).as_secs()).unwrap();
    assert_eq!(fault(|body| body["exp"] = json!(NOW + least)), None);
    for expires in [NOW + least - 1, NOW, NOW - 1] {
        assert_eq!(
            fault(|body| body["exp"] = json!(expires)),
            Some(MintFault::TooShort),
            "{expires}"
        );
    }
    let short = MintAnswer {
        expires_at: at(NOW + least - 1),
        ..minted(&claims())
    };
    assert_eq!(
        checked(short, moment(NOW, 100)).err(),
        Some(MintFault::TooShort)
    );
}

#[test]
fn the_earlier_expiry_wins() {
    let told_earlier = MintAnswer {
        expires_at: at(NOW + 1200),
        ..minted(&claims())
    };
    assert_eq!(
        checked(told_earlier, moment(NOW, 100))
            .unwrap()
            .deadline()
            .wall(),
        at(NOW + 1200)
    );
    let told_later = MintAnswer {
        expires_at: at(NOW + 7200),
        ..minted(&claims())
    };
    assert_eq!(
        checked(told_later, moment(NOW, 100))
            .unwrap()
            .deadline()
            .wall(),
        at(NOW + 3600)
    );
}

#[test]
fn clients_are_told_a_minute_less() {
    let bound = checked(minted(&claims()), moment(NOW, 100)).unwrap();
    assert_eq!(
        bound.remaining_lifetime(moment(NOW, 100)),
        Some(Duration::from_secs(3540))
    );
    assert_eq!(
        bound.remaining_lifetime(moment(NOW + 3530, 3630)),
        Some(Duration::from_secs(10))
    );
    assert_eq!(bound.remaining_lifetime(moment(NOW + 3531, 3631)), None);
    assert_eq!(
        bound.remaining_lifetime(moment(NOW, 3631)),
        None,
        "the wall clock was set back"
    );
    assert_eq!(
        bound.remaining_lifetime(moment(NOW + 90_000, 200)),
        None,
        "the machine slept"
    );
}

#[test]
fn a_token_does_not_print() {
    let bound = checked(minted(&claims()), moment(NOW, 100)).unwrap();
    let printed = format!("{bound:?} {bound:#?}");
    assert!(printed.contains(bound.token_id()), "{printed}");
    for part in bound.secret().expose_secret().split('.') {
        assert!(!printed.contains(part), "{printed}");
    }
}

#[test]
fn a_fault_has_its_reason() {
    for (fault, reason) in [
        (MintFault::Malformed, Reason::MintMismatch),
        (MintFault::Issuer, Reason::MintMismatch),
        (MintFault::Audience, Reason::MintMismatch),
        (MintFault::Subject, Reason::MintMismatch),
        (MintFault::Uid, Reason::ServiceAccountChanged),
        (MintFault::UnknownKey, Reason::KeyNotPublished),
        (MintFault::Signature, Reason::MintMismatch),
        (MintFault::TooShort, Reason::MintMismatch),
        (MintFault::Skew, Reason::ClockSkew),
    ] {
        assert_eq!(fault.reason(), reason, "{fault:?}");
    }
}
