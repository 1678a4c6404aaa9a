//! Why one key of a set is left out.

use serde_json::Value;

use super::rsa::RsaFault;
use crate::jwt::MAX_KID_BYTES;

/// A key that is left out of the set, while the others are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedKey {
    /// Its `kid`, if that is a string of 1 to 1024 bytes. The upstream wrote it: encode it before
    /// printing.
    pub kid: Option<String>,
    /// What is wrong with it.
    pub why: RejectReason,
}

impl RejectedKey {
    pub(super) fn new(entry: &Value, why: RejectReason) -> Self {
        let kid = entry.get("kid").and_then(Value::as_str);
        Self {
            kid: kid
                .filter(|kid| (1..=MAX_KID_BYTES).contains(&kid.len()))
                .map(str::to_owned),
            why,
        }
    }
}

/// Why a key is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// The entry is not a JSON object.
    #[error("is no JSON object")]
    NotAnObject,
    /// `kty` is neither `RSA` nor `EC`. `AKP` and `OKP` make verifiers up to Kubernetes 1.37 drop
    /// the whole set.
    #[error("has a kty other than RSA and EC")]
    KeyType,
    /// `kid` is missing, empty, not a string or longer than 1024 bytes.
    #[error("has no kid of 1 to 1024 bytes")]
    Kid,
    /// `use` is present and not `sig`.
    #[error("has a use other than sig")]
    Use,
    /// `key_ops` is present and not a list of strings that contains `verify`.
    #[error("has key_ops without verify")]
    Operations,
    /// `crv` is none of P-256, P-384 and P-521.
    #[error("has a crv other than P-256, P-384 and P-521")]
    Curve,
    /// `alg` is present and does not fit the key.
    #[error("has an alg that does not fit its kty or crv")]
    Algorithm,
    /// A member that the key needs is missing or not a string.
    #[error("has no text {0}")]
    Member(&'static str),
    /// A member is not in the only spelling that RFC 7518 allows: section 2 for numbers, section
    /// 6.2.1 for coordinates (full width).
    #[error("has a {0} that is not canonically encoded")]
    Encoding(&'static str),
    /// The RSA key is too weak or too unusual.
    #[error("has an RSA key that {0}")]
    Rsa(RsaFault),
    /// The EC point does not lie on its curve.
    #[error("has a point that is not on its curve")]
    Point,
}

impl RejectReason {
    /// A fixed code for a metric's label.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotAnObject => "not_an_object",
            Self::KeyType => "kty",
            Self::Kid => "kid",
            Self::Use => "use",
            Self::Operations => "key_ops",
            Self::Curve => "crv",
            Self::Algorithm => "alg",
            Self::Member(_) => "member",
            Self::Encoding(_) => "encoding",
            Self::Rsa(_) => "rsa",
            Self::Point => "point",
        }
    }
}
