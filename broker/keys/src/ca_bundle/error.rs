//! Why a `ca.crt` is refused, and how to fix it.

use jiff::Timestamp;

use crate::jwks::RsaFault;

/// Why a `ca.crt` is refused. Positions count certificates from 1. The only text repeated from the
/// file is a certificate's subject, shortened and without control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaBundleError {
    /// The entry is empty.
    #[error("`ca.crt` is empty")]
    Empty,
    /// The entry is larger than allowed.
    #[error("`ca.crt` is {0} bytes, more than the 330000 allowed")]
    TooLarge(usize),
    /// The entry is a certificate in binary form.
    #[error("`ca.crt` is DER, not PEM")]
    Der,
    /// The entry has no PEM block.
    #[error("`ca.crt` is not PEM")]
    NotPem,
    /// PEM markers do not match, or are not on lines of their own.
    #[error("`ca.crt` has a broken PEM marker at line {0}")]
    BrokenMarker(usize),
    /// The entry has more PEM markers than allowed.
    #[error("`ca.crt` has more than 1000 PEM markers")]
    TooManyMarkers,
    /// The entry has PEM blocks, but none of them is a certificate.
    #[error("`ca.crt` holds {0} PEM blocks and no certificate")]
    NoCertificate(usize),
    /// The entry has more certificates than allowed.
    #[error("`ca.crt` holds {0} certificates, more than the 100 allowed")]
    TooManyCertificates(usize),
    /// The text between the markers is not base64.
    #[error("certificate {0} of `ca.crt` is not base64")]
    NotBase64(usize),
    /// The bytes are not an X.509 certificate.
    #[error("certificate {0} of `ca.crt` is not an X.509 certificate")]
    NotX509(usize),
    /// The certificate is of X.509 version 1 or 2, which has no extensions, so it cannot say that
    /// it is a CA. Clients of Kubernetes accept it.
    #[error(
        "certificate {position} of `ca.crt` ({subject}) is of X.509 version {version}, which cannot \
         mark a CA, and Keyferry takes only version 3"
    )]
    OldVersion {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
        /// Its version.
        version: u32,
    },
    /// The certificate is not a CA by RFC 5280 section 4.2.1.9.
    #[error(
        "certificate {position} of `ca.crt` ({subject}) is no CA: it has no basicConstraints with \
         CA:true"
    )]
    NotAuthority {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
    },
    /// The certificate has expired.
    #[error("certificate {position} of `ca.crt` ({subject}) expired at {at}")]
    Expired {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
        /// Its `notAfter`.
        at: Timestamp,
    },
    /// The certificate is not valid yet.
    #[error("certificate {position} of `ca.crt` ({subject}) is not valid before {at}")]
    NotYetValid {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
        /// Its `notBefore`.
        at: Timestamp,
    },
    /// The certificate has an insecure RSA key.
    #[error("certificate {position} of `ca.crt` ({subject}) has an RSA key that {fault}")]
    WeakKey {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
        /// What is wrong with the key.
        fault: RsaFault,
    },
    /// The key is neither RSA, nor ECDSA on P-256, P-384 or P-521, nor Ed25519.
    #[error(
        "certificate {position} of `ca.crt` ({subject}) has a key that is neither RSA, ECDSA \
         (P-256, P-384, P-521) nor Ed25519"
    )]
    UnsupportedKey {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
    },
    /// The certificate is signed with a broken hash.
    #[error("certificate {position} of `ca.crt` ({subject}) is signed with {hash}")]
    WeakSignature {
        /// The position of the certificate.
        position: usize,
        /// Its subject.
        subject: String,
        /// The hash.
        hash: &'static str,
    },
}

impl CaBundleError {
    /// How to fix it, in one sentence without a full stop.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Empty => {
                "fill `ca.crt` with the target's CA certificate as PEM, or leave certSecretRef out \
                 to use the system's roots"
            }
            Self::TooLarge(_) | Self::TooManyMarkers | Self::TooManyCertificates(_) => {
                "keep only the CA certificates that signed the target's serving certificate"
            }
            Self::Der => "convert it with `openssl x509 -inform der -in ca.der -out ca.crt`",
            Self::NotPem => {
                "write the certificate with its BEGIN CERTIFICATE and END CERTIFICATE lines, and \
                 check that it is not base64-encoded twice"
            }
            Self::BrokenMarker(_) => {
                "put each BEGIN and END marker on a line of its own, in pairs with the same \
                 label"
            }
            Self::NoCertificate(_) => {
                "put the CA's certificate there; a private key or a request is not read"
            }
            Self::NotBase64(_) | Self::NotX509(_) => {
                "copy that certificate again, complete and unchanged"
            }
            Self::OldVersion { .. } => {
                "issue the CA's certificate again as version 3 with basicConstraints CA:TRUE, with \
                 the same subject and key, so that the certificates it signed stay valid"
            }
            Self::NotAuthority { .. } => {
                "give the CA that signed the target's serving certificate, not the serving or \
                 client certificate itself"
            }
            Self::Expired { .. } => "remove that certificate, and add the one that replaces it",
            Self::NotYetValid { .. } => {
                "check the clock here, or add that certificate once it is valid"
            }
            Self::WeakKey { .. } | Self::UnsupportedKey { .. } => {
                "issue a CA with RSA of 2048 bits or more, or ECDSA on P-256, and serve the target \
                 with it"
            }
            Self::WeakSignature { .. } => {
                "have that CA certificate issued again with SHA-256 or better"
            }
        }
    }
}
