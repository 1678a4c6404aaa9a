//! The CA of a rule for client certificates.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, KeyUsage, VerifiedPath, anchor_from_trusted_cert, aws_lc_rs as signature,
};
use x509_parser::parse_x509_certificate;

use super::chain::{PresentedChain, sha256_fingerprint};
use super::error::CallerCertificateError;
use crate::ca_bundle::{CaBundle, CaBundleError, MAX_CA_BUNDLE_BYTES};

/// The most certificates of one rule's CA. A rotation needs two.
const MAX_AUTHORITIES: usize = 8;

/// The signatures that certificates may have. SHA-1 is not among them, nor RSA below 2048 bits.
static SIGNATURE_ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    signature::ECDSA_P256_SHA256,
    signature::ECDSA_P256_SHA384,
    signature::ECDSA_P384_SHA256,
    signature::ECDSA_P384_SHA384,
    signature::ECDSA_P521_SHA512,
    signature::ED25519,
    signature::RSA_PKCS1_2048_8192_SHA256,
    signature::RSA_PKCS1_2048_8192_SHA384,
    signature::RSA_PKCS1_2048_8192_SHA512,
    signature::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    signature::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    signature::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];

/// Why the CA of a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallerAuthorityError {
    /// The text is not a valid bundle of CA certificates.
    #[error(transparent)]
    Bundle(#[from] CaBundleError),
    /// The text has more certificates than a rotation needs.
    #[error("`ca.crt` holds {0} certificates, more than the 8 allowed for callers")]
    TooMany(usize),
    /// The TLS library cannot use a certificate as a trust anchor.
    #[error("certificate {0} of `ca.crt` cannot be a trust anchor")]
    NotAnchor(usize),
}

impl CallerAuthorityError {
    /// How to fix it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Bundle(CaBundleError::WeakKey { .. } | CaBundleError::WeakSignature { .. }) => {
                "issue the callers' certificates from a CA with ECDSA P-256, or RSA of 2048 bits \
                 or more, and SHA-256"
            }
            Self::Bundle(CaBundleError::Expired { .. }) => {
                "remove that certificate, and add the one that replaces it"
            }
            Self::Bundle(_) | Self::TooMany(_) | Self::NotAnchor(_) => {
                "write the certificate of the CA that signs the callers' certificates as PEM under \
                 ca.crt, and nothing else"
            }
        }
    }
}

/// The CA certificates of a rule, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerAuthority(Vec<Authority>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    anchor: TrustAnchor<'static>,
    /// The validity in seconds since 1970, because webpki's trust anchors have none.
    validity: std::ops::RangeInclusive<i64>,
    /// The SHA-256 of the certificate, in hexadecimal.
    fingerprint: String,
    public_key: Vec<u8>,
}

impl CallerAuthority {
    /// Reads the CA certificates in a PEM text.
    ///
    /// # Errors
    /// [`CallerAuthorityError`]. One bad certificate makes all of them bad.
    pub fn from_pem(pem: &[u8], now: Timestamp) -> Result<Self, CallerAuthorityError> {
        let bundle = CaBundle::from_pem(pem, now)?;
        let certificates = bundle.certificates();
        if certificates.len() > MAX_AUTHORITIES {
            return Err(CallerAuthorityError::TooMany(certificates.len()));
        }
        let authorities = certificates.iter().enumerate().map(|(index, der)| {
            parse_authority(der).ok_or(CallerAuthorityError::NotAnchor(index + 1))
        });
        authorities.collect::<Result<_, _>>().map(Self)
    }

    /// When the first of the certificates expires, in seconds since 1970.
    pub fn earliest_expiry(&self) -> i64 {
        let ends = self.0.iter().map(|authority| *authority.validity.end());
        ends.min().unwrap_or_default()
    }

    /// The certificates that are also in `other`; `None` if there are none.
    #[must_use]
    pub fn also_in(&self, other: &Self) -> Option<Self> {
        let both = self
            .0
            .iter()
            .filter(|authority| other.0.contains(authority));
        let both: Vec<_> = both.cloned().collect();
        (!both.is_empty()).then_some(Self(both))
    }

    /// Whether one of the certificates has one of these keys.
    pub fn has_any_key_of(&self, keys: &AuthorityKeys) -> bool {
        let mut own = self.0.iter().map(|authority| &authority.public_key);
        own.any(|key| keys.0.contains(key))
    }

    /// Verifies that the chain leads to one of the certificates, and that no CA in it has a key of
    /// `refused`. Returns the fingerprint of that certificate.
    pub(super) fn verify_chain(
        &self,
        chain: &PresentedChain,
        refused: Option<&AuthorityKeys>,
        now: Timestamp,
    ) -> Result<&str, CallerCertificateError> {
        use CallerCertificateError as E;
        let leaf = EndEntityCert::try_from(chain.leaf()).map_err(|_| E::NotX509)?;
        let seconds = now.as_second();
        let time = u64::try_from(seconds).map_err(|_| E::Expired)?;
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(time));
        let valid = self
            .0
            .iter()
            .filter(|authority| authority.validity.contains(&seconds))
            .filter(|authority| refused.is_none_or(|keys| !keys.0.contains(&authority.public_key)));
        // A CA of callers may have cross-signed a refused CA, whose certificates would then lead to
        // it.
        let check_path = |path: &VerifiedPath<'_>| {
            let mut between = path.intermediate_certificates();
            let is_refused = refused.is_some_and(|keys| {
                between.any(|certificate| {
                    let key = certificate.subject_public_key_info();
                    keys.0.contains::<[u8]>(key.as_ref())
                })
            });
            if is_refused {
                Err(webpki::Error::UnknownIssuer)
            } else {
                Ok(())
            }
        };
        for authority in valid {
            let path = leaf.verify_for_usage(
                SIGNATURE_ALGORITHMS,
                std::slice::from_ref(&authority.anchor),
                chain.intermediates(),
                time,
                KeyUsage::client_auth(),
                None,
                Some(&check_path),
            );
            if path.is_ok() {
                return Ok(&authority.fingerprint);
            }
        }
        Err(E::OtherAuthority)
    }
}

fn parse_authority(der: &CertificateDer<'static>) -> Option<Authority> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let validity = certificate.validity();
    Some(Authority {
        anchor: anchor_from_trusted_cert(der).ok()?.to_owned(),
        validity: validity.not_before.timestamp()..=validity.not_after.timestamp(),
        fingerprint: sha256_fingerprint(der),
        public_key: certificate.public_key().raw.to_vec(),
    })
}

/// The public keys of CA certificates. A CA that is renewed with the same key is the same CA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorityKeys(BTreeSet<Vec<u8>>);

impl AuthorityKeys {
    /// Reads the keys of all certificates in a PEM text, valid or not. `None` if one of them cannot
    /// be read.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        if pem.len() > MAX_CA_BUNDLE_BYTES {
            return None;
        }
        let keys = CertificateDer::pem_slice_iter(pem).map(|block| {
            let block = block.ok()?;
            let (_, certificate) = parse_x509_certificate(&block).ok()?;
            Some(certificate.public_key().raw.to_vec())
        });
        keys.collect::<Option<BTreeSet<_>>>().map(Self)
    }
}
