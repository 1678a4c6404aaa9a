//! The SHA-2 hashes of signatures.

use aws_lc_rs::digest::{Algorithm as DigestAlgorithm, SHA256, SHA384, SHA512};

/// A SHA-2 hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn algorithm(self) -> &'static DigestAlgorithm {
        match self {
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
            Self::Sha512 => &SHA512,
        }
    }

    /// Returns the DER prefix of the digest (RFC 8017, section 9.2, note 1).
    pub(super) fn digest_info(self) -> [u8; 19] {
        let (total, arc, length) = match self {
            Self::Sha256 => (0x31, 1, 0x20),
            Self::Sha384 => (0x41, 2, 0x30),
            Self::Sha512 => (0x51, 3, 0x40),
        };
        [
            0x30, total, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02,
            arc, 0x05, 0x00, 0x04, length,
        ]
    }

    /// The length of a coordinate in a signature with that hash, whatever the key's curve.
    pub(super) fn coordinate(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 66,
        }
    }
}
