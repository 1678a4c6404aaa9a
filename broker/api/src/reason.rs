//! Stable codes for Keyferry's failures.
//!
//! One failure has one code, spelt the same in the log, the audit record, the metric label, the
//! condition and the JSON response. Each code has a file in `broker/api/reasons`, which is the one
//! text about it: it is the documentation of the variant, what `keyferry explain` prints, and the
//! code's section in docs/reference/reason-codes.md.

use std::fmt;

macro_rules! reasons {
    ($($name:ident,)*) => {
        /// A stable PascalCase code. Codes are added, never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(
                #[doc = include_str!(concat!("../reasons/", stringify!($name), ".md"))]
                $name,
            )*
        }

        impl Reason {
            /// Every code, in alphabetical order.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The code as it is printed.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                }
            }

            /// The text about the code, in Markdown: what happened, the fix, and where it shows.
            pub fn markdown(self) -> &'static str {
                match self {
                    $(
                        Reason::$name => {
                            include_str!(concat!("../reasons/", stringify!($name), ".md"))
                        }
                    )*
                }
            }
        }
    };
}

reasons! {
    AdmissionPolicyIncomplete,
    AudienceConflict,
    AudienceIsHubs,
    AudienceUnchecked,
    AuditUnavailable,
    AuthorUnchecked,
    BaseTargetMissing,
    CallerAmbiguous,
    CallerAudienceMismatch,
    CallerAuthorityInvalid,
    CallerCertificateRejected,
    CallerClaimsMismatch,
    CallerExpired,
    CallerGone,
    CallerIdentityChanged,
    CallerIssuerMismatch,
    CallerKeysUnavailable,
    CallerMalformed,
    CallerMissing,
    CallerNotPodBound,
    CallerRejected,
    CallerTokenReused,
    CertificateAuthorityInvalid,
    CertificateDenied,
    CertificateFailed,
    CertificateMismatch,
    CertificatePending,
    ClientCertificateIgnored,
    ClockSkew,
    ConfigurationInvalid,
    DecisionTimedOut,
    DelegationForbidden,
    DeliveryDraining,
    DeliveryFailed,
    DeliveryForbidden,
    DiscoveryAuthorityMismatch,
    FluxCredentialDiffers,
    GrantSuperseded,
    HubDiscoveryForbidden,
    HubDiscoveryInvalid,
    HubKeyReplaced,
    HubPolicyNotReady,
    HubUnreachable,
    IdentityConflict,
    IdentityUnexpected,
    InputCredentialRejected,
    InputLooksSecret,
    InputsInvalid,
    InputsMissing,
    InputsNotGranted,
    InputsTooLarge,
    InputsUnread,
    IssuerCollision,
    IssuerKeysForbidden,
    IssuerKeysInvalid,
    IssuerKeysSettling,
    KeyNotPublished,
    KeyRecordForbidden,
    KeyRecordTampered,
    KeyRecordUnread,
    KeyRevoked,
    KeySettling,
    LabelsUnprotected,
    LeaderMissing,
    MetricsForbidden,
    MintFailed,
    MintForbidden,
    MintMismatch,
    MintUnbounded,
    NamespaceTerminating,
    NotExpressible,
    ObjectNotOurs,
    ObjectTooLarge,
    PairingUnprotected,
    ProbeRefused,
    ProbeUnanswered,
    QuotaExceeded,
    RateLimited,
    Ready,
    RequestInvalid,
    ReviewFailed,
    ReviewForbidden,
    RoleConflict,
    RoleNotMapped,
    ServiceAccountChanged,
    ServingCertificateInvalid,
    SpecInvalid,
    TargetAddressRefused,
    TargetDraining,
    TargetNotGranted,
    TargetNotReady,
    TargetSuspended,
    TargetUnrestricted,
    TenantLimitReached,
    TooManyAccesses,
}

impl Reason {
    /// Whether the failure is that the caller's own token or certificate was not accepted.
    pub fn is_about_caller(self) -> bool {
        matches!(
            self,
            Self::CallerAmbiguous
                | Self::CallerAudienceMismatch
                | Self::CallerCertificateRejected
                | Self::CallerClaimsMismatch
                | Self::CallerExpired
                | Self::CallerIdentityChanged
                | Self::CallerIssuerMismatch
                | Self::CallerKeysUnavailable
                | Self::CallerMalformed
                | Self::CallerMissing
                | Self::CallerNotPodBound
                | Self::CallerRejected
                | Self::CallerTokenReused
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn codes_are_in_alphabetical_order() {
        assert!(
            Reason::ALL.is_sorted_by_key(|reason| reason.as_str()),
            "sort the list: {:?}",
            Reason::ALL
        );
        assert!(
            Reason::ALL.is_sorted(),
            "the order of the variants is the order of the codes"
        );
    }

    #[test]
    fn codes_are_pascal_case_and_distinct() {
        let mut seen = std::collections::BTreeSet::new();
        for reason in Reason::ALL {
            let code = reason.as_str();
            assert!(code.starts_with(|c: char| c.is_ascii_uppercase()), "{code}");
            assert!(code.chars().all(|c| c.is_ascii_alphanumeric()), "{code}");
            assert!(seen.insert(code), "{code} stands twice");
        }
    }
}
