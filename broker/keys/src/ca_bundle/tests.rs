#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan};
use josekit::jwk::KeyPair as _;
use josekit::jwk::alg::rsa::RsaKeyPair;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey, date_time_ymd,
};

use super::{CaBundle, CaBundleError, MAX_CA_BUNDLE_BYTES};
use crate::jwks::RsaFault;

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn read(text: impl AsRef<[u8]>) -> Result<CaBundle, CaBundleError> {
    CaBundle::from_pem(text.as_ref(), now())
}

fn fault(text: impl AsRef<[u8]>) -> CaBundleError {
    let error = read(text).unwrap_err();
    assert!(!error.fix().is_empty() && !error.fix().ends_with('.'));
    error
}

static KEY: LazyLock<KeyPair> =
    LazyLock::new(|| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
static RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(2048).unwrap());

fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::new([]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.not_before = date_time_ymd(2026, 1, 1);
    parameters.not_after = date_time_ymd(2027, 1, 1);
    parameters
}

fn pem(der: &[u8]) -> String {
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        STANDARD.encode(der)
    )
}

fn authority(name: &str) -> String {
    pem(parameters(name).self_signed(&*KEY).unwrap().der())
}

/// A key of arbitrary numbers that cannot sign: a CA's own signature is not checked.
struct AnyKey {
    public: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl PublicKeyData for AnyKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningKey for AnyKey {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(vec![0; 256])
    }
}

/// A self-signed CA with that RSA key.
fn rsa_authority(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let integer = |number: &[u8]| {
        let number = if number.first().is_some_and(|byte| *byte > 0x7f) {
            [&[0], number].concat()
        } else {
            number.to_vec()
        };
        tagged(2, &number)
    };
    let public = tagged(0x30, &[integer(modulus), integer(exponent)].concat());
    parameters("rsa")
        .self_signed(&AnyKey {
            public,
            algorithm: &PKCS_RSA_SHA256,
        })
        .unwrap()
        .der()
        .to_vec()
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = if length < 0x80 {
        vec![tag, u8::try_from(length).unwrap()]
    } else {
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        vec![tag, 0x82, high, low]
    };
    [head, content.to_vec()].concat()
}

fn modulus() -> Vec<u8> {
    let jwk = RSA.to_jwk_public_key();
    crate::jwt::BASE64URL
        .decode(jwk.parameter("n").unwrap().as_str().unwrap())
        .unwrap()
}

fn replaced(der: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut der = der.to_vec();
    let positions: Vec<usize> = (0..=der.len() - from.len())
        .filter(|start| der[*start..].starts_with(from))
        .collect();
    assert!(!positions.is_empty());
    for start in positions {
        der[start..start + from.len()].copy_from_slice(to);
    }
    der
}

#[test]
fn certificates_leave_in_order_and_encoded_again() {
    let (one, two) = (authority("one"), authority("two"));
    let text = format!(
        "# subject: one\r\n{}\r\nstray text\r\n{two}{one}",
        one.replace('\n', "\r\n")
    );
    let bundle = read(&text).unwrap();
    assert_eq!(bundle.certificates().len(), 2, "each once");
    assert_eq!(bundle.ignored_blocks(), 0);
    assert_eq!(
        bundle.earliest_expiry(),
        "2027-01-01T00:00:00Z".parse().unwrap()
    );
    let pem = bundle.to_pem();
    assert!(
        pem.starts_with("-----BEGIN CERTIFICATE-----\nMII")
            && pem.ends_with("\n-----END CERTIFICATE-----\n"),
        "{pem}"
    );
    assert!(
        pem.lines().all(|line| line.len() <= 64) && !pem.contains('\r') && !pem.contains("stray")
    );
    assert_eq!(read(&pem).unwrap(), bundle);
}

#[test]
fn s1_to_s4_each_wrong_content_is_named() {
    for text in ["", " ", "\n\n\t"] {
        assert_eq!(fault(text), CaBundleError::Empty);
    }
    let certificate = parameters("one").self_signed(&*KEY).unwrap();
    assert_eq!(fault(certificate.der()), CaBundleError::Der);
    assert_eq!(
        fault(STANDARD.encode(authority("one"))),
        CaBundleError::NotPem
    );
    assert_eq!(fault("not a certificate"), CaBundleError::NotPem);
    let mut leaf = parameters("leaf");
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
        leaf.is_ca = is_ca;
        let leaf = pem(leaf.self_signed(&*KEY).unwrap().der());
        let expected = CaBundleError::NotAuthority {
            position: 2,
            subject: "CN=leaf".into(),
        };
        assert_eq!(fault(format!("{}{leaf}", authority("one"))), expected);
    }
    assert_eq!(
        fault(authority("one").replace("MII", "M?I")),
        CaBundleError::NotBase64(1)
    );
    assert_eq!(
        fault(pem(b"\x30\x03\x02\x01\x01")),
        CaBundleError::NotX509(1)
    );
    assert_eq!(
        fault(pem(&[certificate.der(), &[0][..]].concat())),
        CaBundleError::NotX509(1),
        "something follows"
    );
    assert_eq!(fault(pem(b"")), CaBundleError::NotX509(1));
}

#[test]
fn s5_to_s6_size_is_bounded() {
    assert_eq!(fault("-".repeat(1 << 20)), CaBundleError::TooLarge(1 << 20));
    assert_eq!(
        fault("-".repeat(MAX_CA_BUNDLE_BYTES)),
        CaBundleError::NotPem
    );
    assert!(matches!(
        fault(authority("one").repeat(10_000)),
        CaBundleError::TooLarge(_)
    ));
    assert_eq!(
        fault("-----BEGIN A-----\n-----END A-----\n".repeat(501)),
        CaBundleError::TooManyMarkers
    );
    assert_eq!(
        fault("-----BEGIN A-----\n-----END A-----\n".repeat(500)),
        CaBundleError::NoCertificate(500)
    );
    assert_eq!(
        fault(authority("one").repeat(101)),
        CaBundleError::TooManyCertificates(101)
    );
    assert!(read(authority("one").repeat(100)).is_ok());
}

#[test]
fn s7_a_private_key_is_skipped_and_never_repeated() {
    let private = KEY.serialize_pem();
    let body = private.lines().nth(1).unwrap();
    let bundle = read(format!("{private}{}{private}", authority("one"))).unwrap();
    assert_eq!(
        (bundle.certificates().len(), bundle.ignored_blocks()),
        (1, 2)
    );
    assert!(!format!("{bundle:?}{}", bundle.to_pem()).contains(body));
    let error = fault(&private);
    assert_eq!(error, CaBundleError::NoCertificate(1));
    assert!(!format!("{error} {error:?}").contains(body));
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n????\n-----END RSA \
        PRIVATE KEY-----\n";
    assert_eq!(
        read(format!("{legacy}{}", authority("one")))
            .unwrap()
            .ignored_blocks(),
        1
    );
    for label in [
        "TRUSTED CERTIFICATE",
        "X509 CERTIFICATE",
        "CERTIFICATE REQUEST",
        "X509 CRL",
        "certificate",
        "",
    ] {
        assert_eq!(
            fault(authority("one").replace("CERTIFICATE", label)),
            CaBundleError::NoCertificate(1),
            "{label}"
        );
    }
}

#[test]
fn markers_pair_up() {
    let one = authority("one");
    let lines: Vec<&str> = one.lines().collect();
    for (text, line) in [
        (lines[..2].join("\n"), 2),
        (lines[1..].join("\n"), 2),
        (format!("{one}{}", lines[0]), 4),
        (one.trim_end().to_owned() + &one, 3),
        (one.replace("END CERTIFICATE", "END PRIVATE KEY"), 3),
        (
            one.replace("BEGIN CERTIFICATE-----", "BEGIN CERTIFICATE----"),
            1,
        ),
        (format!("-----BEGIN PRIVATE KEY-----\nAAAA\n{one}"), 3),
    ] {
        assert_eq!(fault(&text), CaBundleError::BrokenMarker(line), "{text}");
    }
}

#[test]
fn s9_validity_is_checked_to_the_second() {
    let one = authority("one");
    let at = |text: &str| CaBundle::from_pem(one.as_bytes(), text.parse().unwrap());
    assert!(at("2026-01-01T00:00:00Z").is_ok());
    assert!(
        at("2027-01-01T00:00:00.9Z").is_ok(),
        "the last second is still within (RFC 5280 section 4.1.2.5)"
    );
    let (subject, start, end) = (
        "CN=one".to_owned(),
        "2026-01-01T00:00:00Z".parse().unwrap(),
        "2027-01-01T00:00:00Z".parse().unwrap(),
    );
    assert_eq!(
        at("2027-01-01T00:00:01Z"),
        Err(CaBundleError::Expired {
            position: 1,
            subject: subject.clone(),
            at: end
        })
    );
    assert_eq!(
        at("2025-12-31T23:59:59Z"),
        Err(CaBundleError::NotYetValid {
            position: 1,
            subject,
            at: start
        })
    );
    let mut forever = parameters("forever");
    forever.not_after = date_time_ymd(9999, 12, 31);
    let bundle = read(pem(forever.self_signed(&*KEY).unwrap().der())).unwrap();
    assert!(bundle.earliest_expiry() > now().checked_add((24 * 365 * 7000).hours()).unwrap());
    let mut old = parameters("old");
    old.not_after = date_time_ymd(2026, 6, 1);
    let old = pem(old.self_signed(&*KEY).unwrap().der());
    assert!(
        matches!(
            fault(format!("{one}{old}")),
            CaBundleError::Expired { position: 2, .. }
        ),
        "one bad spoils all"
    );
}

#[test]
fn s9_to_s11_weak_keys_are_refused() {
    let n = modulus();
    let key_fault = |der: Vec<u8>| match fault(pem(&der)) {
        CaBundleError::WeakKey {
            position: 1, fault, ..
        } => fault,
        other => panic!("{other:?}"),
    };
    assert!(read(pem(&rsa_authority(&n, &[1, 0, 1]))).is_ok());
    assert!(read(pem(&rsa_authority(&n, &[3]))).is_ok());
    assert_eq!(
        key_fault(rsa_authority(&n[..128], &[1, 0, 1])),
        RsaFault::Size(1024)
    );
    assert_eq!(key_fault(rsa_authority(&n, &[1])), RsaFault::Exponent);
    assert_eq!(key_fault(rsa_authority(&n, &[2])), RsaFault::Exponent);
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let ed25519 = parameters("ed").self_signed(&ed25519).unwrap();
    assert!(read(pem(ed25519.der())).is_ok());
    // 1.3.101.112 is Ed25519, 1.3.101.113 is Ed448.
    let ed448 = replaced(ed25519.der(), &[6, 3, 43, 101, 112], &[6, 3, 43, 101, 113]);
    assert_eq!(
        fault(pem(&ed448)),
        CaBundleError::UnsupportedKey {
            position: 1,
            subject: "CN=ed".into()
        }
    );
    let p256 = [6, 8, 42, 134, 72, 206, 61, 3, 1, 7];
    let p192 = [6, 8, 42, 134, 72, 206, 61, 3, 1, 1];
    let other_curve = replaced(
        parameters("ec").self_signed(&*KEY).unwrap().der(),
        &p256,
        &p192,
    );
    assert_eq!(
        fault(pem(&other_curve)),
        CaBundleError::UnsupportedKey {
            position: 1,
            subject: "CN=ec".into()
        }
    );
}

const SHA256_WITH_RSA: [u8; 9] = [42, 134, 72, 134, 247, 13, 1, 1, 11];
const SHA1_WITH_RSA: [u8; 9] = [42, 134, 72, 134, 247, 13, 1, 1, 5];
const MD5_WITH_RSA: [u8; 9] = [42, 134, 72, 134, 247, 13, 1, 1, 4];
const PSS_WITHOUT_PARAMETERS: [u8; 9] = [42, 134, 72, 134, 247, 13, 1, 1, 10];

#[test]
fn s9_to_s11_weak_hashes_are_refused() {
    let root = rsa_authority(&modulus(), &[1, 0, 1]);
    assert!(
        read(pem(&replaced(&root, &SHA256_WITH_RSA, &SHA1_WITH_RSA))).is_ok(),
        "nobody checks a root's own signature"
    );
    let md5 = replaced(&root, &SHA256_WITH_RSA, &MD5_WITH_RSA);
    assert_eq!(
        fault(pem(&md5)),
        CaBundleError::WeakSignature {
            position: 1,
            subject: "CN=rsa".into(),
            hash: "MD5"
        }
    );
    let signer = AnyKey {
        public: tagged(0x30, &[]),
        algorithm: &PKCS_RSA_SHA256,
    };
    let issuer = rcgen::Issuer::new(parameters("root"), signer);
    let intermediate = parameters("intermediate")
        .signed_by(&*KEY, &issuer)
        .unwrap();
    assert!(read(pem(intermediate.der())).is_ok());
    for (oid, hash) in [
        (SHA1_WITH_RSA, "SHA-1"),
        (MD5_WITH_RSA, "MD5"),
        (PSS_WITHOUT_PARAMETERS, "SHA-1"),
    ] {
        let weak = replaced(intermediate.der(), &SHA256_WITH_RSA, &oid);
        assert_eq!(
            fault(pem(&weak)),
            CaBundleError::WeakSignature {
                position: 1,
                subject: "CN=intermediate".into(),
                hash
            }
        );
    }
}

/// A CA of `openssl x509 -req` without extensions. It is a CA, so the fix must not speak of a
/// serving certificate.
#[test]
fn a_ca_of_version_1_has_its_own_fix() {
    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::x509::{X509, X509NameBuilder};
    let key = PKey::private_key_from_der(&KEY.serialize_der()).unwrap();
    let made = |version: i32| {
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "old-ca").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(version - 1).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        let at = |seconds: i64| Asn1Time::from_unix(now().as_second() + seconds).unwrap();
        builder.set_not_before(&at(-60)).unwrap();
        builder.set_not_after(&at(3600)).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        pem(&builder.build().to_der().unwrap())
    };
    let error = fault(made(1));
    assert_eq!(
        error,
        CaBundleError::OldVersion {
            position: 1,
            subject: "CN=old-ca".into(),
            version: 1,
        }
    );
    assert!(error.to_string().contains("X.509 version 1"), "{error}");
    assert!(!error.fix().contains("serving"), "{}", error.fix());
    assert!(error.fix().contains("version 3"), "{}", error.fix());
    assert!(matches!(fault(made(3)), CaBundleError::NotAuthority { .. }));
}

#[test]
fn a_subject_is_shortened_and_made_printable() {
    let mut leaf = parameters(&format!("a\n\u{1b}[31m\u{202e}{}", "x".repeat(10_000)));
    leaf.is_ca = IsCa::NoCa;
    let CaBundleError::NotAuthority { subject, .. } =
        fault(pem(leaf.self_signed(&*KEY).unwrap().der()))
    else {
        panic!("a leaf")
    };
    assert_eq!(subject.len(), 128);
    assert!(subject.starts_with("CN=a??[31m?x"), "{subject}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&bytes);
        let _ = read(pem(&bytes));
    }

    #[test]
    fn a_changed_certificate_is_read_or_refused(position in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut der = parameters("one").self_signed(&*KEY).unwrap().der().to_vec();
        let position = position.index(der.len());
        der[position] = byte;
        if let Ok(bundle) = read(pem(&der)) {
            prop_assert_eq!(bundle.certificates(), [der.into()]);
            let again = read(bundle.to_pem());
            prop_assert!(again.is_ok_and(|again| again == bundle));
        }
    }
}
