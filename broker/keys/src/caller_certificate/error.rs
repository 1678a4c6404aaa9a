//! Why a certificate identifies no caller.

/// Why a certificate identifies no caller. Callers never learn the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallerCertificateError {
    /// The bytes are not an X.509 certificate of version 3, or something follows it.
    #[error("it is not an X.509 v3 certificate")]
    NotX509,
    /// Its validity begins in the future.
    #[error("it is not valid yet")]
    NotYetValid,
    /// Its validity has ended.
    #[error("it has expired")]
    Expired,
    /// It is valid for longer than [`LONGEST_LIFE`](super::LONGEST_LIFE).
    #[error("it is valid for more than 24 hours")]
    TooLong,
    /// It is itself a CA.
    #[error("it is a CA")]
    IsAuthority,
    /// Its extended key usage is absent or has no clientAuth.
    #[error("it has no extended key usage clientAuth")]
    NoClientAuth,
    /// Its key usage does not allow signatures, so it cannot authenticate in TLS 1.3.
    #[error("its key usage has no digitalSignature")]
    NoDigitalSignature,
    /// Its key is a short RSA key or of an unknown kind.
    #[error("its key is too weak")]
    WeakKey,
    /// It has no URI among its alternative names, or an alternative name that cannot be read.
    #[error("it has no URI as an alternative name")]
    NoUri,
    /// It has more than one URI.
    #[error("it has more than one URI as an alternative name")]
    SeveralUris,
    /// No rule names its URI.
    #[error("no rule names its URI")]
    OtherUri,
    /// The chain does not lead to the CA of a rule that names the URI.
    #[error("it is not signed under the CA of the rule for its URI")]
    OtherAuthority,
    /// Rules for different identities accept it, as when two Secrets hold the same CA.
    #[error("rules for different ServiceAccounts accept it")]
    SeveralAccounts,
}

impl CallerCertificateError {
    /// The code in audit records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotX509 => "NotX509",
            Self::NotYetValid => "NotYetValid",
            Self::Expired => "Expired",
            Self::TooLong => "TooLong",
            Self::IsAuthority => "IsAuthority",
            Self::NoClientAuth => "NoClientAuth",
            Self::NoDigitalSignature => "NoDigitalSignature",
            Self::WeakKey => "WeakKey",
            Self::NoUri => "NoUri",
            Self::SeveralUris => "SeveralUris",
            Self::OtherUri => "OtherUri",
            Self::OtherAuthority => "OtherAuthority",
            Self::SeveralAccounts => "SeveralAccounts",
        }
    }
}
