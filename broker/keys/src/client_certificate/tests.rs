#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P384_SHA384, SanType, date_time_ymd,
};
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use super::{
    CertificateMismatch, CertificateRequest, ClientKey, ReceivedCertificateRequest,
    UnexpectedRequest, common_name_of,
};

const USER: &str = "keyferry:tenant-a:reader";
const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    "2026-01-10T00:00:00Z".parse().unwrap()
}

/// A key, in the forms of Keyferry and of the signer.
fn key() -> (ClientKey, KeyPair) {
    let pair = KeyPair::generate().unwrap();
    let key = ClientKey::from_pkcs8(Zeroizing::new(pair.serialize_der()));
    (key, pair)
}

fn request() -> (CertificateRequest, KeyPair) {
    let (key, pair) = key();
    (CertificateRequest::sign(&key, USER, HOUR).unwrap(), pair)
}

/// A certificate as the hub's signer issues it for [`USER`], after a change.
fn signed(pair: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, USER);
    valid(&mut params, -300, 3600);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.is_ca = IsCa::ExplicitNoCa;
    change(&mut params);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(authority, KeyPair::generate().unwrap());
    params.signed_by(pair, &issuer).unwrap().pem().into_bytes()
}

/// Sets the validity, in seconds from now.
fn valid(params: &mut CertificateParams, begin: i64, end: i64) {
    let time = |seconds: i64| {
        let since_1970 = u64::try_from(now().as_second() + seconds).unwrap();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(since_1970)
    };
    (params.not_before, params.not_after) = (time(begin), time(end));
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

#[test]
fn the_requested_certificate_is_accepted() {
    let (request, pair) = request();
    let pem = signed(&pair, |_| {});
    let issued = request.check_issued(&pem, now()).unwrap();
    assert_eq!(issued.not_after(), after(3600));
    assert_eq!(issued.renew_at(now()), after(2400));
    assert_eq!(
        issued.renew_at(after(1800)),
        after(3000),
        "of what is left when it is written"
    );
    assert_eq!(
        common_name_of(issued.pem().as_bytes()).as_deref(),
        Some(USER)
    );
    assert_eq!(
        request.check_issued(issued.pem().as_bytes(), now()),
        Ok(issued)
    );
}

#[test]
fn what_a_request_asks_for_is_read_back() {
    let (request, _) = request();
    let seen = ReceivedCertificateRequest::read(request.pem().as_bytes()).unwrap();
    assert_eq!(seen.common_name(), USER);
    assert_eq!(request.fingerprint().len(), 32);
}

#[test]
fn a_key_is_readable_as_pem() {
    let (key, pair) = key();
    let read = KeyPair::from_pem(key.to_pem().expose_secret()).unwrap();
    assert_eq!(read.serialize_der(), pair.serialize_der());
    let junk = ClientKey::from_pkcs8(Zeroizing::new(vec![0; 80]));
    assert!(CertificateRequest::sign(&junk, USER, HOUR).is_err());
}

#[test]
fn any_other_certificate_is_refused() {
    use CertificateMismatch as E;
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let (request, pair) = request();
    type Change = Box<dyn FnOnce(&mut CertificateParams)>;
    let subject = |entries: &'static [(DnType, &'static str)]| -> Change {
        Box::new(move |params: &mut CertificateParams| {
            params.distinguished_name = DistinguishedName::new();
            for (kind, text) in entries {
                params.distinguished_name.push(kind.clone(), *text);
            }
        })
    };
    let life = |begin, end| -> Change { Box::new(move |params| valid(params, begin, end)) };
    let usage = |extended: &'static [ExtendedKeyUsagePurpose],
                 usages: &'static [KeyUsagePurpose]|
     -> Change {
        Box::new(move |params| {
            params.extended_key_usages = extended.to_vec();
            params.key_usages = usages.to_vec();
        })
    };
    const SIGNS: &[KeyUsagePurpose] = &[KeyUsagePurpose::DigitalSignature];
    let cases: Vec<(&str, Change, E)> = vec![
        (
            "another user",
            subject(&[(DnType::CommonName, "keyferry:tenant-b:reader")]),
            E::OtherSubject,
        ),
        (
            "an administrator",
            subject(&[
                (DnType::CommonName, USER),
                (DnType::OrganizationName, "system:masters"),
            ]),
            E::OtherSubject,
        ),
        (
            "a group instead of a user",
            subject(&[(DnType::OrganizationName, USER)]),
            E::OtherSubject,
        ),
        ("no subject", subject(&[]), E::OtherSubject),
        (
            "a host",
            Box::new(|params| {
                params.subject_alt_names = vec![SanType::DnsName("a".try_into().unwrap())];
            }),
            E::AlternativeNames,
        ),
        ("a server", usage(&[ServerAuth], SIGNS), E::OtherUsage),
        (
            "both",
            usage(&[ClientAuth, ServerAuth], SIGNS),
            E::OtherUsage,
        ),
        ("any", usage(&[ClientAuth, Any], SIGNS), E::OtherUsage),
        ("no usage", usage(&[], SIGNS), E::OtherUsage),
        ("no key usage", usage(&[ClientAuth], &[]), E::OtherUsage),
        (
            "more key usages",
            usage(
                &[ClientAuth],
                &[
                    KeyUsagePurpose::DigitalSignature,
                    KeyUsagePurpose::KeyCertSign,
                ],
            ),
            E::OtherUsage,
        ),
        (
            "an authority",
            Box::new(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            E::OtherUsage,
        ),
        ("too long", life(-300, 3601), E::TooLong(after(3601))),
        (
            "too long from now",
            life(200, 3901),
            E::TooLong(after(3901)),
        ),
        ("later", life(301, 3000), E::NotYetValid(after(301))),
        ("expired", life(-600, 0), E::Expired(after(0))),
        ("about to expire", life(-600, 60), E::Expired(after(60))),
    ];
    for (name, change, wanted) in cases {
        let pem = signed(&pair, change);
        assert_eq!(request.check_issued(&pem, now()), Err(wanted), "{name}");
    }
    let other = KeyPair::generate().unwrap();
    assert_eq!(
        request.check_issued(&signed(&other, |_| {}), now()),
        Err(E::OtherKey)
    );
    let good = signed(&pair, |_| {});
    let behind_junk = [
        &good[..],
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ]
    .concat();
    let der = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_vec();
    for junk in [
        b"".to_vec(),
        b"junk".to_vec(),
        der,
        behind_junk,
        vec![b'a'; 70_000],
    ] {
        assert_eq!(request.check_issued(&junk, now()), Err(E::NotX509));
    }
}

#[test]
fn a_request_with_more_than_a_user_is_not_plain() {
    let made = |pair: &KeyPair, change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, USER);
        change(&mut params);
        params.serialize_request(pair).unwrap().pem().unwrap()
    };
    let p256 = KeyPair::generate().unwrap();
    let plain = made(&p256, &|_| {});
    assert!(ReceivedCertificateRequest::read(plain.as_bytes()).is_ok());
    let read = |text: &str| ReceivedCertificateRequest::read(text.as_bytes()).unwrap_err();
    let organization = made(&p256, &|params| {
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
    });
    assert_eq!(read(&organization), UnexpectedRequest::Subject);
    let host = made(&p256, &|params| {
        params.subject_alt_names = vec![SanType::DnsName("a".try_into().unwrap())];
    });
    assert_eq!(read(&host), UnexpectedRequest::Attributes);
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    assert_eq!(read(&made(&p384, &|_| {})), UnexpectedRequest::Key);
    for junk in [String::new(), "junk".to_owned(), format!("{plain}{plain}")] {
        assert_eq!(read(&junk), UnexpectedRequest::NotARequest);
    }
}

/// Go's encoding/pem ends lines only at `\n`, and reads a line with a colon as a header. It would
/// find the second request in the first of these texts, where other readers find the first one.
#[test]
fn a_request_that_other_readers_would_read_differently_is_refused() {
    let made = |user: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        let pair = KeyPair::generate().unwrap();
        params.serialize_request(&pair).unwrap().pem().unwrap()
    };
    let (granted, other) = (made(USER), made("kubernetes-admin"));
    let base64 = |pem: &str| {
        let lines = pem.lines().filter(|line| !line.starts_with("-----"));
        lines.collect::<String>()
    };
    const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
    const END: &str = "-----END CERTIFICATE REQUEST-----";
    for text in [
        format!(
            "{BEGIN}\n{}\r{END}:\n{}\n{END}\n",
            base64(&granted),
            base64(&other)
        ),
        format!("{BEGIN}\n{}\n{END}\n", base64(&granted)),
        granted.replace('\n', "\r\n"),
        format!("text before\n{granted}"),
        format!("{granted}text after\n"),
        format!("{granted}\n"),
        granted.trim_end().to_owned(),
        granted.replacen('\n', "\nProc-Type: 4\n\n", 1),
    ] {
        assert_eq!(
            ReceivedCertificateRequest::read(text.as_bytes()),
            Err(UnexpectedRequest::NotARequest),
            "{text:?}"
        );
    }
}
