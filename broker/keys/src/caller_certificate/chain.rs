//! The certificates that a client presented, bounded in number and size.

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;

use crate::hexadecimal::to_hexadecimal;

/// The most certificates of a chain: the caller's own and those of three intermediate CAs.
pub const MAX_CHAIN_CERTIFICATES: usize = 4;

/// The most bytes of a chain. Every connection may keep one; a certificate takes about 1 KiB.
pub const MAX_CHAIN_BYTES: usize = 8 * 1024;

/// A presented chain exceeds a limit, or is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chain of the client certificate has none, or more than 4 certificates or 8 KiB")]
pub struct ChainTooLarge;

/// The certificates that a client presented, its own first, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedChain {
    leaf: CertificateDer<'static>,
    intermediates: Vec<CertificateDer<'static>>,
}

impl PresentedChain {
    /// Copies the certificates as TLS received them.
    ///
    /// # Errors
    /// [`ChainTooLarge`].
    pub fn new(certificates: &[CertificateDer<'_>]) -> Result<Self, ChainTooLarge> {
        let (leaf, intermediates) = certificates.split_first().ok_or(ChainTooLarge)?;
        Self::check_limits(leaf, intermediates)?;
        Ok(Self {
            leaf: leaf.clone().into_owned(),
            intermediates: intermediates
                .iter()
                .map(|der| der.clone().into_owned())
                .collect(),
        })
    }

    /// Checks the limits without copying.
    ///
    /// # Errors
    /// [`ChainTooLarge`].
    pub fn check_limits(
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), ChainTooLarge> {
        let bytes: usize = intermediates
            .iter()
            .map(|der| der.len())
            .fold(leaf.len(), usize::saturating_add);
        if intermediates.len() < MAX_CHAIN_CERTIFICATES && bytes <= MAX_CHAIN_BYTES {
            Ok(())
        } else {
            Err(ChainTooLarge)
        }
    }

    /// The client's own certificate.
    pub fn leaf(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// The certificates after it.
    pub fn intermediates(&self) -> &[CertificateDer<'static>] {
        &self.intermediates
    }

    /// The SHA-256 of the client's own certificate, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        sha256_fingerprint(&self.leaf)
    }
}

/// The SHA-256 of a certificate, in hexadecimal.
pub(super) fn sha256_fingerprint(der: &[u8]) -> String {
    to_hexadecimal(digest(&SHA256, der).as_ref())
}
