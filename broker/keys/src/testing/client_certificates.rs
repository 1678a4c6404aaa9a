//! Client certificates of every kind that a caller may present, each with its expected result.
//! Tests of the verifier and of the listener share them.

mod table;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CustomExtension,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::caller_certificate::{CallerAuthority, CallerCertificateError, CallerCertificateRule};

pub use table::table;

/// The URI of the rule for tenant-a/reconciler, under the first CA.
pub const URI: &str = "spiffe://example.com/ns/tenant-a/sa/reconciler";
/// The URI of the rule for tenant-a/notifier, under the second CA.
pub const OTHER_URI: &str = "spiffe://example.com/ns/tenant-a/sa/notifier";

/// A CA that signs client certificates.
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
    now: Timestamp,
    /// The certificates between the root and the leaf, the lowest first.
    path: Vec<CertificateDer<'static>>,
}

/// A client certificate with its chain and its key.
pub struct TestCertificate {
    /// The certificates as the client sends them.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key in PKCS #8.
    pub key: Vec<u8>,
}

/// What must become of a request with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the ServiceAccount of the rule for [`URI`].
    Accepted,
    /// It identifies no caller.
    Refused(CallerCertificateError),
    /// TLS does not accept it, whatever the rules say.
    NoHandshake,
    /// It identifies no caller, and no client of the tests can use its key in TLS.
    RefusedWithoutTls(CallerCertificateError),
}

/// A certificate and its expected result.
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// The certificate.
    pub certificate: TestCertificate,
    /// What must become of it.
    pub outcome: Outcome,
}

/// The CAs of the table.
pub struct Authorities {
    /// The CA of the rule for [`URI`].
    pub first: TestAuthority,
    /// The CA of the rule for [`OTHER_URI`].
    pub second: TestAuthority,
}

impl Authorities {
    /// Makes both CAs, valid at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            first: TestAuthority::new("callers", now, |_| {}),
            second: TestAuthority::new("other callers", now, |_| {}),
        }
    }

    /// The two rules.
    pub fn rules(&self) -> Vec<CallerCertificateRule> {
        let rule = |uri: &str, name: &str, authority: &TestAuthority| CallerCertificateRule {
            uri: uri.to_owned(),
            identity: ServiceAccountIdentity {
                account: ServiceAccount {
                    namespace: Namespace::new("tenant-a").unwrap(),
                    name: ObjectName::new(name).unwrap(),
                },
                uid: Uid::new(format!("uid-{name}")).unwrap(),
            },
            authority: Some(Arc::new(authority.as_configured())),
            refused_keys: None,
        };
        vec![
            rule(URI, "reconciler", &self.first),
            rule(OTHER_URI, "notifier", &self.second),
        ]
    }
}

impl TestAuthority {
    /// Makes a self-signed CA, valid from a day before `now` for ten years.
    pub fn new(name: &str, now: Timestamp, change: impl FnOnce(&mut CertificateParams)) -> Self {
        Self::with_key(KeyPair::generate().unwrap(), name, now, change)
    }

    fn with_key(
        key: KeyPair,
        name: &str,
        now: Timestamp,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = authority(name, now);
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            now,
            path: Vec::new(),
        }
    }

    /// Makes a CA that this one signs.
    pub fn intermediate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        self.intermediate_with(KeyPair::generate().unwrap(), name, change)
    }

    /// The same CA, by its name and key, with a certificate that `signer` signs besides its own.
    pub fn cross_signed_by(&self, signer: &Self, name: &str) -> Self {
        let key = KeyPair::try_from(self.issuer.key().serialize_der()).unwrap();
        signer.intermediate_with(key, name, |_| {})
    }

    fn intermediate_with(
        &self,
        key: KeyPair,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = authority(name, self.now);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut path = vec![certificate.der().clone()];
        path.extend(self.path.iter().cloned());
        Self {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            now: self.now,
            path,
        }
    }

    /// The CA's certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The CA as a rule has it.
    pub fn as_configured(&self) -> CallerAuthority {
        CallerAuthority::from_pem(self.pem.as_bytes(), self.now).unwrap()
    }

    /// Signs a good client certificate for this URI, with what `change` changes.
    pub fn issue(&self, uri: &str, change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
        self.issue_for(KeyPair::generate().unwrap(), uri, change)
    }

    /// Signs a good client certificate for the key of a PKCS #10 request in DER, whatever else the
    /// request says, and returns it as PEM.
    pub fn sign_request(
        &self,
        request: &[u8],
        uri: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> String {
        let request = CertificateSigningRequestParams::from_der(&request.into()).unwrap();
        let mut params = client(self.now, uri);
        change(&mut params);
        params
            .signed_by(&request.public_key, &self.issuer)
            .unwrap()
            .pem()
    }

    fn issue_for(
        &self,
        key: KeyPair,
        uri: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> TestCertificate {
        let mut params = client(self.now, uri);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.extend(self.path.iter().cloned());
        TestCertificate {
            chain,
            key: key.serialize_der(),
        }
    }

    /// The CA's own certificate and key, as a client would present them.
    fn itself(&self) -> TestCertificate {
        TestCertificate {
            chain: vec![self.der.clone()],
            key: self.issuer.key().serialize_der(),
        }
    }
}

impl TestCertificate {
    /// The private key for a TLS library.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    /// Its chain and its key as PEM, as curl and other clients read them.
    pub fn to_pem(&self) -> String {
        use base64::Engine;
        let block = |label: &str, der: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let chain: String = self
            .chain
            .iter()
            .map(|der| block("CERTIFICATE", der))
            .collect();
        chain + &block("PRIVATE KEY", &self.key)
    }
}

fn authority(name: &str, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    named(&mut params, &[(DnType::CommonName, name)]);
    valid(&mut params, now, -86_400, 86_400 * 3650);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A good client certificate: valid from a minute ago for an hour.
fn client(now: Timestamp, uri: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    named(&mut params, &[(DnType::CommonName, "client")]);
    valid(&mut params, now, -60, 3540);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.use_authority_key_identifier_extension = true;
    params
}

fn named(params: &mut CertificateParams, attributes: &[(DnType, &str)]) {
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in attributes {
        params.distinguished_name.push(kind.clone(), *value);
    }
}

/// Sets the validity, in seconds from `now`.
pub fn valid(params: &mut CertificateParams, now: Timestamp, from: i64, to: i64) {
    let at = |seconds: i64| {
        let time = now + SignedDuration::from_secs(seconds);
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(time.as_second() as u64)
    };
    params.not_before = at(from);
    params.not_after = at(to);
}

/// Replaces the alternative names by an extension with these bytes.
fn raw_names(params: &mut CertificateParams, der: Vec<u8>) {
    params.subject_alt_names.clear();
    params
        .custom_extensions
        .push(CustomExtension::from_oid_content(&[2, 5, 29, 17], der));
}

/// The DER of alternative names: each a tag and its bytes.
fn names(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (tag, bytes) in entries {
        content.push(*tag);
        content.extend(length(bytes.len()));
        content.extend_from_slice(bytes);
    }
    let mut sequence = vec![0x30];
    sequence.extend(length(content.len()));
    sequence.extend(content);
    sequence
}

fn length(bytes: usize) -> Vec<u8> {
    match u8::try_from(bytes) {
        Ok(short) if short < 0x80 => vec![short],
        Ok(long) => vec![0x81, long],
        Err(_) => vec![0x82, (bytes >> 8) as u8, bytes as u8],
    }
}
