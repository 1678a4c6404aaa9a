//! Certificates: bundles of CAs, chains of callers, and requests to sign one.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_go_formats::{GoRelease, pem, x509};
use keyferry_keys::ca_bundle::{CaBundle, MAX_CA_BUNDLE_BYTES, MAX_CERTIFICATES};
use keyferry_keys::caller_certificate::{
    AuthorityKeys, CallerAuthority, CallerCertificateRule, CallerCertificateRules, MAX_CHAIN_BYTES,
    PresentedChain,
};
use keyferry_keys::client_certificate::ReceivedCertificateRequest;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::now;

/// The CA that signed the seeds of client certificates. Its private key was not kept.
const CALLERS_CA: &[u8] = include_bytes!("../callers-ca.pem");

/// The one certificate that the CA signed for the URI of the rule.
const CALLER: &[u8] = include_bytes!("../corpus/caller_certificate/good.der");

/// The URI of the rule.
pub const CALLER_URI: &str = "spiffe://example.com/ns/tenant-a/sa/reconciler";

/// The most blocks of a text that Go's parser of certificates is tried on: it is slow on each.
const MAX_TRIED_BLOCKS: usize = 4;

/// A bundle that is accepted is written as certificates only, is read as the same one again, and
/// has the same certificates for every release of Go.
pub(crate) fn ca_bundle(data: &[u8]) {
    let _ = AuthorityKeys::from_pem(data);
    read_as_go(data);
    if CallerAuthority::from_pem(data, now()).is_ok() {
        assert!(CaBundle::from_pem(data, now()).is_ok());
    }
    let Ok(bundle) = CaBundle::from_pem(data, now()) else {
        return;
    };
    assert!(data.len() <= MAX_CA_BUNDLE_BYTES);
    assert!((1..=MAX_CERTIFICATES).contains(&bundle.certificates().len()));
    assert!(bundle.earliest_expiry() >= now());
    let written = bundle.to_pem();
    // The markers, not the text: base64 spells any word of letters by chance.
    let marker = |line: &str| {
        matches!(
            line,
            "-----BEGIN CERTIFICATE-----" | "-----END CERTIFICATE-----"
        )
    };
    assert!(
        written
            .lines()
            .filter(|line| line.contains('-'))
            .all(marker)
    );
    let again = CaBundle::from_pem(written.as_bytes(), now()).expect("what is written can be read");
    assert_eq!(again.certificates(), bundle.certificates());
    assert_eq!(again.to_pem(), written);
    assert_eq!(again.ignored_blocks(), 0);
    for go in GoRelease::ALL {
        let blocks = pem::blocks(written.as_bytes(), go);
        let found = blocks.iter().map(|block| block.bytes.as_slice());
        assert!(
            found.eq(bundle.certificates().iter().map(AsRef::as_ref)),
            "{}",
            go.name()
        );
    }
}

/// Go's PEM and its certificates: a block is no longer than its text.
fn read_as_go(data: &[u8]) {
    for go in [GoRelease::ALL[0], GoRelease::ALL[GoRelease::ALL.len() - 1]] {
        for block in pem::blocks(data, go).into_iter().take(MAX_TRIED_BLOCKS) {
            assert!(block.bytes.len() <= data.len());
            let read = x509::parse(&block.bytes, &GoRelease::ALL);
            assert_eq!(read.len(), GoRelease::ALL.len());
        }
    }
}

/// The rule for the URI under the CA.
pub fn caller_rules() -> CallerCertificateRules {
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
        authority: Some(Arc::new(authority)),
        refused_keys: None,
    }])
}

static RULES: LazyLock<CallerCertificateRules> = LazyLock::new(caller_rules);

/// rustls' own verifier of client certificates, with the same CA.
static RUSTLS: LazyLock<Arc<dyn ClientCertVerifier>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(CALLERS_CA) {
        roots
            .add(certificate.expect("a certificate"))
            .expect("a CA");
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into())
        .build()
        .expect("a verifier")
});

/// A chain that identifies a caller has what the CA signed for it: the whole certificate but for its
/// signature, because of an ECDSA signature (r, s) anyone can make (r, -s). rustls accepts it too.
pub(crate) fn caller_certificate(data: &[u8]) {
    let certificates = split_certificates(data);
    let Ok(chain) = PresentedChain::new(&certificates) else {
        return;
    };
    assert!(data.len() <= MAX_CHAIN_BYTES);
    let Ok(caller) = RULES.identify_caller(&chain, now()) else {
        return;
    };
    assert_eq!(caller.certificate().uri, CALLER_URI);
    assert!(caller.not_after() >= now());
    // SEQUENCE with two bytes of length, and in it the signed part with two bytes of length.
    let length = usize::from(CALLER[6]) << 8 | usize::from(CALLER[7]);
    let signed = &CALLER[4..8 + length];
    let leaf = chain.leaf();
    assert!(leaf.windows(signed.len()).any(|bytes| bytes == signed));
    let seconds = u64::try_from(now().as_second()).expect("after 1970");
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    RUSTLS
        .verify_client_cert(leaf, chain.intermediates(), time)
        .expect("rustls accepts what we accept");
}

/// Splits bytes after each DER value with a long length, as certificates have it.
fn split_certificates(mut data: &[u8]) -> Vec<CertificateDer<'_>> {
    let mut certificates = Vec::new();
    while let [0x30, 0x82, high, low, rest @ ..] = data {
        let length = usize::from(*high) << 8 | usize::from(*low);
        if length > rest.len() {
            break;
        }
        let (certificate, after) = data.split_at(4 + length);
        certificates.push(certificate.into());
        data = after;
    }
    if !data.is_empty() {
        certificates.push(data.into());
    }
    certificates
}

/// A request that is accepted is one block for every release of Go, and names in it the user that
/// was read.
pub(crate) fn certificate_request(data: &[u8]) {
    let Ok(request) = ReceivedCertificateRequest::read(data) else {
        return;
    };
    let name = request.common_name().as_bytes();
    for go in GoRelease::ALL {
        let blocks = pem::blocks(data, go);
        let [block] = blocks.as_slice() else {
            panic!("{} finds {} blocks", go.name(), blocks.len());
        };
        assert_eq!(
            (block.label.as_slice(), block.headers),
            (&b"CERTIFICATE REQUEST"[..], false)
        );
        assert!(name.is_empty() || block.bytes.windows(name.len()).any(|bytes| bytes == name));
    }
}
