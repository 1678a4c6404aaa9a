//! What must hold for any bytes. The fuzz targets call these functions, and so does
//! `tests/fuzz_smoke.rs` with the stable compiler.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_keys::ca_bundle::{CaBundle, MAX_CA_BUNDLE_BYTES, MAX_CERTIFICATES};
use keyferry_keys::caller_certificate::{
    AuthorityKeys, CallerAuthority, CallerCertificateRule, CallerCertificateRules, PresentedChain,
};
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::discovery::{ProviderMetadata, render_metadata};
use keyferry_keys::jwks::{KeySetLimits, PublicKeySet};
use keyferry_keys::jwt::{MAX_JWT_BYTES, MAX_KID_BYTES, UnverifiedJwt};
use keyferry_keys::verify::{Expected, check_claims, verify_signature};

/// The issuer of the seeds.
pub(crate) const ISSUER: &str = "https://hub.example.com";

/// The audience of the seeds.
pub(crate) const AUDIENCE: &str = "keyferry.dev";

/// The key of the token among the seeds.
pub(crate) const KEYS: &[u8] = include_bytes!("corpus/jwks/plain.json");

/// A time at which the seeds are valid: 2026-09-21T13:20:00Z.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_789_996_800).expect("a time")
}

/// A token that comes apart keeps the limits; one that verifies says what the seed says, for nobody
/// has its private key any more.
pub(crate) fn jwt(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(jwt) = UnverifiedJwt::parse(text) else {
        return;
    };
    assert!(text.len() <= MAX_JWT_BYTES);
    assert!(
        jwt.kid()
            .is_none_or(|kid| (1..=MAX_KID_BYTES).contains(&kid.len()))
    );
    assert!(!format!("{jwt:?}").contains(text));
    let (keys, _) =
        PublicKeySet::from_upstream(KEYS, KeySetLimits::default()).expect("the seed is a key set");
    let signed = |token: &str| token.rsplit_once('.').map(|(input, _)| input.to_owned());
    // Not the whole text: of an ECDSA signature (r, s) anyone can make (r, -s).
    assert!(
        verify_signature(&jwt, &keys).is_err()
            || signed(text) == signed(include_str!("corpus/jwt/plain"))
    );
    let Ok(claims) = ServiceAccountClaims::read(&jwt) else {
        return;
    };
    assert!(!claims.registered.issuer.is_empty() && !claims.registered.audiences.is_empty());
    assert!(claims.registered.expires_at >= Timestamp::UNIX_EPOCH);
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
    if check_claims(&claims, &expected).is_ok() {
        assert_eq!(
            (
                claims.registered.issuer.as_str(),
                claims.registered.audiences.as_slice()
            ),
            (ISSUER, &[AUDIENCE.to_owned()][..])
        );
        assert!(claims.registered.expires_at > now());
    }
}

/// A set that is accepted leaves without private members, in one spelling, and comes back the same.
pub(crate) fn jwks(data: &[u8]) {
    let Ok((set, rejected)) = PublicKeySet::from_upstream(data, KeySetLimits::default()) else {
        return;
    };
    assert!(!set.is_empty() && set.len() + rejected.len() <= KeySetLimits::default().keys);
    let bytes = set.to_bytes();
    let (again, none) = PublicKeySet::from_upstream(&bytes, KeySetLimits::default())
        .expect("what leaves can be read");
    assert!(none.is_empty());
    assert_eq!(again, set);
    assert_eq!(again.to_bytes(), bytes);
    let document: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    for key in document["keys"].as_array().expect("an array") {
        for member in key.as_object().expect("an object").keys() {
            assert!(
                ["kty", "use", "alg", "kid", "n", "e", "crv", "x", "y"].contains(&member.as_str())
            );
        }
    }
}

/// A document that is accepted names the issuer that was expected, and so does ours for that
/// issuer.
pub(crate) fn discovery(data: &[u8]) {
    if let Ok(metadata) = ProviderMetadata::from_upstream(data, ISSUER) {
        assert_eq!(metadata.issuer(), ISSUER);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if text.len() > 1024 {
        return;
    }
    let (keys, _) =
        PublicKeySet::from_upstream(KEYS, KeySetLimits::default()).expect("the seed is a key set");
    let ours = render_metadata(text, text, &keys);
    let metadata = ProviderMetadata::from_upstream(&ours, text).expect("what we write can be read");
    assert!(
        metadata
            .signing_algorithms()
            .iter()
            .eq(keys.algorithms().iter())
    );
}

/// A bundle that is accepted leaves as certificates only, and comes back the same.
pub(crate) fn ca_bundle(data: &[u8]) {
    let _ = AuthorityKeys::from_pem(data);
    if CallerAuthority::from_pem(data, now()).is_ok() {
        assert!(CaBundle::from_pem(data, now()).is_ok());
    }
    let Ok(bundle) = CaBundle::from_pem(data, now()) else {
        return;
    };
    assert!(data.len() <= MAX_CA_BUNDLE_BYTES);
    assert!((1..=MAX_CERTIFICATES).contains(&bundle.certificates().len()));
    assert!(bundle.earliest_expiry() >= now());
    let pem = bundle.to_pem();
    // The markers, not the text: base64 spells any word of letters by chance.
    let marker = |line: &str| {
        matches!(
            line,
            "-----BEGIN CERTIFICATE-----" | "-----END CERTIFICATE-----"
        )
    };
    assert!(pem.lines().filter(|line| line.contains('-')).all(marker));
    let again = CaBundle::from_pem(pem.as_bytes(), now()).expect("what leaves can be read");
    assert_eq!(again.certificates(), bundle.certificates());
    assert_eq!(again.to_pem(), pem);
    assert_eq!(again.ignored_blocks(), 0);
}

/// The CA that signed the seeds of client certificates. Its private key was not kept.
const CALLERS_CA: &[u8] = include_bytes!("callers-ca.pem");

/// The one certificate that the CA signed for the URI of the rule.
const CALLER: &[u8] = include_bytes!("corpus/caller_certificate/good.der");

/// The URI of the rule.
pub(crate) const CALLER_URI: &str = "spiffe://example.com/ns/tenant-a/sa/reconciler";

/// The rule for the URI under the CA.
pub(crate) fn caller_rules() -> CallerCertificateRules {
    let authority = CallerAuthority::from_pem(CALLERS_CA, now()).expect("a CA");
    CallerCertificateRules::new(vec![CallerCertificateRule {
        uri: CALLER_URI.to_owned(),
        identity: ServiceAccountIdentity {
            account: ServiceAccount {
                namespace: Namespace::new("tenant-a").expect("a name"),
                name: ObjectName::new("reconciler").expect("a name"),
            },
            uid: Uid::new("u").expect("a UID"),
        },
        authority: Some(std::sync::Arc::new(authority)),
        refused_keys: None,
    }])
}

/// Bytes that identify a caller have what the CA signed for it: the whole certificate but for its
/// signature, because of an ECDSA signature (r, s) anyone can make (r, -s).
pub(crate) fn caller_certificate(data: &[u8]) {
    let Ok(chain) = PresentedChain::new(&[data.into()]) else {
        return;
    };
    let Ok(caller) = caller_rules().identify_caller(&chain, now()) else {
        return;
    };
    assert_eq!(caller.certificate().uri, CALLER_URI);
    assert!(caller.not_after() >= now());
    // SEQUENCE with two bytes of length, and in it the signed part with two bytes of length.
    let length = usize::from(CALLER[6]) << 8 | usize::from(CALLER[7]);
    let signed = &CALLER[4..8 + length];
    assert!(data.windows(signed.len()).any(|bytes| bytes == signed));
}
