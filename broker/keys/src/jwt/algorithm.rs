//! The signature algorithms that kube-apiserver accepts.

use std::fmt;

/// An `alg` of RFC 7518 section 3.1 that kube-apiserver signs or verifies with. Sorted as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
}

impl SigningAlgorithm {
    /// Every algorithm, in the order of their names.
    pub const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// The algorithm of that exact name; names are case-sensitive (RFC 7515 section 4.1.1).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str() == name)
    }

    /// Its registered name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
        }
    }
}

impl fmt::Display for SigningAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::SigningAlgorithm;

    #[test]
    fn names_are_exact_and_sorted() {
        for algorithm in SigningAlgorithm::ALL {
            assert_eq!(
                SigningAlgorithm::from_name(algorithm.as_str()),
                Some(algorithm)
            );
        }
        assert!(SigningAlgorithm::ALL.is_sorted_by_key(|algorithm| algorithm.as_str()));
        for name in [
            "",
            "none",
            "None",
            "rs256",
            "RS256 ",
            "HS256",
            "EdDSA",
            "ES256K",
            "ML-DSA-44",
            "RSA-OAEP",
        ] {
            assert_eq!(SigningAlgorithm::from_name(name), None, "{name}");
        }
    }
}
