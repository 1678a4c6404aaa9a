#![allow(clippy::unwrap_used)]

use base64::Engine;
use jiff::{SignedDuration, Timestamp};
use josekit::jwk::Jwk;
use josekit::jwk::KeyPair;
use josekit::jwk::alg::ec::{EcCurve, EcKeyPair};
use josekit::jwk::alg::rsa::RsaKeyPair;
use jsonwebtoken::EncodingKey;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::{ClaimsError, Expected, VerifyError, check_claims, verify_signature};
use crate::claims::ServiceAccountClaims;
use crate::jwks::{KeySetLimits, PublicKeySet};
use crate::jwt::{BASE64URL, SigningAlgorithm, UnverifiedJwt};
use crate::testing::{NOW, TestKey, claims, key, set};

fn verdict(token: &str, keys: &PublicKeySet) -> Result<(), VerifyError> {
    verify_signature(&UnverifiedJwt::parse(token).unwrap(), keys).map(|_| ())
}

fn with_signature(token: &str, signature: impl AsRef<[u8]>) -> String {
    let (input, _) = token.rsplit_once('.').unwrap();
    format!("{input}.{}", BASE64URL.encode(signature))
}

fn signature_of(token: &str) -> Vec<u8> {
    BASE64URL.decode(token.rsplit_once('.').unwrap().1).unwrap()
}

#[test]
fn what_josekit_signs_is_believed_and_read() {
    for algorithm in SigningAlgorithm::ALL {
        let key = key(algorithm);
        let token = key.token(&claims());
        let jwt = UnverifiedJwt::parse(&token).unwrap();
        let verified = verify_signature(&jwt, &key.set()).unwrap();
        assert_eq!(verified.kid(), algorithm.as_str());
        assert_eq!(
            verified.claims().unwrap().identity.account.username(),
            "system:serviceaccount:tenant-a:reconciler"
        );
        assert!(key.josekit_believes(&token), "{algorithm}");
    }
}

#[test]
fn what_jsonwebtoken_signs_is_believed() {
    for algorithm in SigningAlgorithm::ALL {
        let Some(library) = super::library_algorithm(algorithm) else {
            continue;
        };
        let key = key(algorithm);
        let mut header = jsonwebtoken::Header::new(library);
        header.kid = Some(algorithm.as_str().into());
        let token = jsonwebtoken::encode(&header, &claims(), &encoding_key(&key)).unwrap();
        assert_eq!(verdict(&token, &key.set()), Ok(()), "{algorithm}");
        assert!(key.josekit_believes(&token), "{algorithm}");
    }
}

#[test]
fn what_jsonwebtoken_is_lenient_about_is_refused_here() {
    let key = key(SigningAlgorithm::Rs256);
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::RS256);
    header.kid = Some("RS256".into());
    header.crit = Some(vec!["unknown".into()]);
    let token = jsonwebtoken::encode(&header, &claims(), &encoding_key(&key)).unwrap();
    assert!(UnverifiedJwt::parse(&token).is_err());
    header.crit = None;
    header.jku = Some("https://attacker.example.com/keys".into());
    let token = jsonwebtoken::encode(&header, &claims(), &encoding_key(&key)).unwrap();
    assert!(UnverifiedJwt::parse(&token).is_err());
}

fn encoding_key(key: &TestKey) -> EncodingKey {
    match key.private.key_type() {
        "RSA" => EncodingKey::from_rsa_pem(
            &RsaKeyPair::from_jwk(&key.private)
                .unwrap()
                .to_pem_private_key(),
        )
        .unwrap(),
        _ => EncodingKey::from_ec_pem(
            &EcKeyPair::from_jwk(&key.private)
                .unwrap()
                .to_pem_private_key(),
        )
        .unwrap(),
    }
}

#[test]
fn j12_j13_the_kid_chooses_the_key() {
    let signer = key(SigningAlgorithm::Es256);
    let two = set([signer.entry(), key(SigningAlgorithm::Rs256).entry()]);
    let body = claims().to_string();
    let signed = |header: Value| signer.sign(header.to_string().as_bytes(), body.as_bytes());
    assert_eq!(
        verdict(&signed(json!({"alg": "ES256"})), &two),
        Err(VerifyError::NoKid)
    );
    assert_eq!(
        verdict(&signed(json!({"alg": "ES256"})), &signer.set()),
        Err(VerifyError::NoKid),
        "even with one key"
    );
    for kid in ["es256", "ES256 ", "../../dev/null", "\0"] {
        assert_eq!(
            verdict(&signed(json!({"alg": "ES256", "kid": kid})), &two),
            Err(VerifyError::UnknownKid),
            "{kid:?}"
        );
    }
    assert_eq!(
        verdict(&signed(json!({"alg": "ES256", "kid": "RS256"})), &two),
        Err(VerifyError::AlgorithmMismatch)
    );
}

#[test]
fn j49_a_key_of_another_issuer_is_another_key() {
    let stranger = TestKey {
        algorithm: SigningAlgorithm::Es256,
        private: Jwk::generate_ec_key(EcCurve::P256).unwrap(),
    };
    let token = stranger.token(&claims());
    assert!(stranger.josekit_believes(&token));
    assert_eq!(verdict(&token, &stranger.set()), Ok(()));
    assert_eq!(
        verdict(&token, &key(SigningAlgorithm::Es256).set()),
        Err(VerifyError::BadSignature)
    );
}

#[test]
fn j62_to_j66_a_key_verifies_its_own_algorithm_only() {
    for stated in SigningAlgorithm::ALL {
        for used in SigningAlgorithm::ALL {
            let mut entry = key(stated).entry();
            entry["kid"] = json!(used.as_str());
            let expected = if stated == used {
                Ok(())
            } else {
                Err(VerifyError::AlgorithmMismatch)
            };
            assert_eq!(
                verdict(&key(used).token(&claims()), &set([entry])),
                expected,
                "key of {stated}, token of {used}"
            );
        }
    }
    // The header names another algorithm that fits the key: the signature was made with another
    // padding or hash.
    let rs256 = key(SigningAlgorithm::Rs256);
    let header = br#"{"alg":"RS256","kid":"RS256"}"#;
    for used in [
        SigningAlgorithm::Ps256,
        SigningAlgorithm::Rs384,
        SigningAlgorithm::Rs512,
    ] {
        let token = key(used).sign(header, claims().to_string().as_bytes());
        assert_eq!(
            verdict(&token, &rs256.set()),
            Err(VerifyError::BadSignature),
            "{used}"
        );
    }
}

#[test]
fn j62_to_j66_an_ecdsa_signature_has_one_form() {
    let orders = [
        (
            SigningAlgorithm::Es256,
            "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        ),
        (
            SigningAlgorithm::Es384,
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        ),
        (
            SigningAlgorithm::Es512,
            concat!(
                "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa",
                "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409"
            ),
        ),
    ];
    for (algorithm, order) in orders {
        let key = key(algorithm);
        let token = key.token(&claims());
        let good = signature_of(&token);
        let order: Vec<u8> = order
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let half = good.len() / 2;
        assert_eq!(order.len(), half);
        let (r, s) = good.split_at(half);
        let zero = vec![0; half];
        let mut one = zero.clone();
        one[half - 1] = 1;
        let forgeries = [
            [&zero[..], &zero].concat(),
            [&zero[..], &one].concat(),
            [&one[..], &zero].concat(),
            [&one[..], &one].concat(),
            [&order[..], &order].concat(),
            [r, &order].concat(),
            [&order[..], s].concat(),
            [s, r].concat(),
            [r, &zero].concat(),
            [&[0], r, &[0], s].concat(),
            [&good[..], &[0]].concat(),
            good[..good.len() - 1].to_vec(),
            der(r, s),
            vec![0],
            vec![0xff; 554],
        ];
        for forgery in forgeries {
            assert_eq!(
                verdict(&with_signature(&token, &forgery), &key.set()),
                Err(VerifyError::BadSignature),
                "{algorithm} {forgery:?}"
            );
        }
    }
}

/// RFC 3279 section 2.2.3: the form that X.509 uses and JWS does not.
fn der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let integer = |number: &[u8]| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let mut number = number[zeros..].to_vec();
        if number.first().is_none_or(|byte| *byte > 0x7f) {
            number.insert(0, 0);
        }
        [&[2, u8::try_from(number.len()).unwrap()], &number[..]].concat()
    };
    let body = [integer(r), integer(s)].concat();
    let length = u8::try_from(body.len()).unwrap();
    let head = if length < 0x80 {
        vec![0x30, length]
    } else {
        vec![0x30, 0x81, length]
    };
    [head, body].concat()
}

#[test]
fn j62_to_j66_an_rsa_signature_is_as_long_as_the_modulus() {
    let key = key(SigningAlgorithm::Rs256);
    let token = key.token(&claims());
    let good = signature_of(&token);
    assert_eq!(verdict(&token, &key.set()), Ok(()));
    for forgery in [
        vec![0; 256],
        vec![0xff; 256],
        [&[0][..], &good].concat(),
        [&good[..], &[0]].concat(),
        good[1..].to_vec(),
        vec![1],
    ] {
        assert_eq!(
            verdict(&with_signature(&token, forgery), &key.set()),
            Err(VerifyError::BadSignature)
        );
    }
}

#[test]
fn j67_to_j69_a_key_for_another_purpose_verifies_nothing() {
    let signer = key(SigningAlgorithm::Rs256);
    let other = key(SigningAlgorithm::Es256).entry();
    let token = signer.token(&claims());
    for (member, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("RSA-OAEP")),
    ] {
        let mut entry = signer.entry();
        entry[member] = value;
        let document = json!({"keys": [entry, other.clone()]}).to_string();
        let (keys, rejected) =
            PublicKeySet::from_upstream(document.as_bytes(), KeySetLimits::default()).unwrap();
        assert_eq!(rejected.len(), 1);
        assert_eq!(
            verdict(&token, &keys),
            Err(VerifyError::UnknownKid),
            "{member}"
        );
    }
}

fn accepted(token: &[u8], keys: &PublicKeySet) -> bool {
    let Ok(token) = std::str::from_utf8(token) else {
        return false;
    };
    UnverifiedJwt::parse(token).is_ok_and(|jwt| verify_signature(&jwt, keys).is_ok())
}

#[test]
fn j75_any_one_bit_changed_anywhere_is_refused() {
    for algorithm in [
        SigningAlgorithm::Es256,
        SigningAlgorithm::Rs256,
        SigningAlgorithm::Ps256,
    ] {
        let key = key(algorithm);
        let keys = key.set();
        let mut token = key.token(&claims()).into_bytes();
        assert!(accepted(&token, &keys));
        for position in 0..token.len() {
            for bit in 0..8 {
                token[position] ^= 1 << bit;
                assert!(
                    !accepted(&token, &keys),
                    "{algorithm}: bit {bit} of byte {position}"
                );
                token[position] ^= 1 << bit;
            }
        }
        for cut in 0..token.len() {
            assert!(!accepted(&token[..cut], &keys), "{algorithm}: cut at {cut}");
        }
    }
}

#[test]
fn j75_any_byte_changed_in_a_p521_token_is_refused() {
    for algorithm in [SigningAlgorithm::Es384, SigningAlgorithm::Es512] {
        let key = key(algorithm);
        let keys = key.set();
        let mut token = key.token(&claims()).into_bytes();
        assert!(accepted(&token, &keys));
        for position in 0..token.len() {
            token[position] ^= 1;
            assert!(!accepted(&token, &keys), "{algorithm}: byte {position}");
            token[position] ^= 1;
        }
    }
}

fn check(
    change: impl FnOnce(&mut ServiceAccountClaims),
    seconds_later: i64,
) -> Result<(), ClaimsError> {
    check_for(change, seconds_later, None)
}

fn check_for(
    change: impl FnOnce(&mut ServiceAccountClaims),
    seconds_later: i64,
    longest_life: Option<SignedDuration>,
) -> Result<(), ClaimsError> {
    let mut claims = ServiceAccountClaims::from_members(claims().as_object().unwrap()).unwrap();
    change(&mut claims);
    let issuer = Issuer::new("https://hub.example.com").unwrap();
    let audience = Audience::new("keyferry.dev").unwrap();
    check_claims(
        &claims,
        &Expected {
            issuer: &issuer,
            audience: &audience,
            now: at(seconds_later),
            longest_life,
        },
    )
}

fn at(seconds_later: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_later).unwrap()
}

#[test]
fn j38_to_j44_times_hold() {
    assert_eq!(check(|_| {}, 0), Ok(()));
    assert_eq!(check(|_| {}, 3599), Ok(()));
    assert_eq!(
        check(|_| {}, 3600),
        Err(ClaimsError::Expired),
        "exp gets no leeway"
    );
    assert_eq!(check(|_| {}, 3601), Err(ClaimsError::Expired));
    assert_eq!(check(|_| {}, -30), Ok(()));
    assert_eq!(check(|_| {}, -31), Err(ClaimsError::NotYetValid));
    assert_eq!(
        check(|claims| claims.registered.not_before = None, -31),
        Err(ClaimsError::IssuedInFuture)
    );
    assert_eq!(
        check(|claims| claims.registered.not_before = Some(at(31)), 0),
        Err(ClaimsError::NotYetValid)
    );
    assert_eq!(
        check(|claims| claims.registered.issued_at = at(31), 0),
        Err(ClaimsError::IssuedInFuture)
    );
    assert_eq!(
        check(|claims| claims.registered.issued_at = at(3601), 0),
        Err(ClaimsError::EndsBeforeItBegins)
    );
    assert_eq!(
        check(|claims| claims.registered.issued_at = at(3600), 0),
        Err(ClaimsError::EndsBeforeItBegins)
    );
    let hour = SignedDuration::from_hours(1);
    assert_eq!(check_for(|_| {}, 0, Some(hour)), Ok(()));
    assert_eq!(
        check_for(
            |claims| claims.registered.expires_at = at(3601),
            0,
            Some(hour)
        ),
        Err(ClaimsError::LivesTooLong)
    );
    let ends = (Timestamp::MIN, Timestamp::MAX);
    assert_eq!(
        check(
            |claims| (claims.registered.issued_at, claims.registered.expires_at) = ends,
            0
        ),
        Ok(())
    );
}

#[test]
fn j45_to_j49_the_issuer_is_equal_byte_for_byte() {
    for issuer in [
        "https://hub.example.com/",
        "https://HUB.example.com",
        "https://other.example.com",
        "",
        "https://hub.example.com\0",
    ] {
        assert_eq!(
            check(|claims| claims.registered.issuer = issuer.into(), 0),
            Err(ClaimsError::WrongIssuer),
            "{issuer:?}"
        );
    }
}

#[test]
fn j50_to_j54_and_j74_the_audience_is_ours_alone() {
    for audiences in [
        &[][..],
        &["Keyferry.dev"],
        &["keyferry"],
        &["keyferry.dev.example.com"],
        &["https://target-1"],
        &["a", "b"],
    ] {
        let change = |claims: &mut ServiceAccountClaims| {
            claims.registered.audiences = audiences.iter().map(|text| (*text).to_owned()).collect()
        };
        assert_eq!(
            check(change, 0),
            Err(ClaimsError::WrongAudience),
            "{audiences:?}"
        );
    }
    for audiences in [
        ["keyferry.dev", "https://hub.example.com"],
        ["https://hub.example.com", "keyferry.dev"],
        ["keyferry.dev"; 2],
    ] {
        let change = |claims: &mut ServiceAccountClaims| {
            claims.registered.audiences = audiences.map(str::to_owned).to_vec()
        };
        assert_eq!(
            check(change, 0),
            Err(ClaimsError::OtherAudiences),
            "{audiences:?}"
        );
    }
}

proptest! {
    #[test]
    fn what_is_believed_here_josekit_believes(
        algorithm in prop::sample::select(SigningAlgorithm::ALL.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"ABwxyz019-_.=".to_vec())), 0..4),
    ) {
        let key = key(algorithm);
        let original = key.token(&claims()).into_bytes();
        let mut token = original.clone();
        for (index, byte) in edits {
            let position = index.index(token.len());
            token[position] = byte;
        }
        let believed = accepted(&token, &key.set());
        prop_assert_eq!(believed, token == original);
        if believed {
            prop_assert!(key.josekit_believes(std::str::from_utf8(&token).unwrap()));
        }
    }

    #[test]
    fn no_signature_of_any_bytes_is_believed(
        algorithm in prop::sample::select(SigningAlgorithm::ALL.to_vec()),
        signature in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let key = key(algorithm);
        let token = with_signature(&key.token(&claims()), signature);
        prop_assert!(!accepted(token.as_bytes(), &key.set()));
    }
}
