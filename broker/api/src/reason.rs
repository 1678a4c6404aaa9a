//! Stable codes for Keyferry's failures.
//!
//! One failure has one code, spelt the same in the log, the audit record, the metric label, the
//! condition and the JSON response.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A stable PascalCase code. Codes are added, never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
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
        }
    };
}

reasons! {
    /// An admission policy of the hub is missing or differs, or does not list all audiences of the
    /// hub. The message names it.
    AdmissionPolicyIncomplete,
    /// An older target has the same audience.
    AudienceConflict,
    /// The hub's own apiserver accepts the target's audience, so a token for it would give access
    /// to the hub.
    AudienceIsHubs,
    /// It is not known whether the hub's apiserver accepts the audience, so nothing is minted for
    /// it.
    AudienceUnchecked,
    /// The audit record could not be written, so nothing was issued.
    AuditUnavailable,
    /// The admission policy that checks who writes a TargetAccess is missing or weakened, so no
    /// token is written to an object.
    AuthorUnchecked,
    /// The caller sent a token over a connection with a client certificate, so it is not clear which
    /// caller it is.
    CallerAmbiguous,
    /// The caller's token is not for Keyferry's audience alone.
    CallerAudienceMismatch,
    /// The CA of a rule for client certificates cannot be used.
    CallerAuthorityInvalid,
    /// The caller's client certificate meets no rule of `api.clientCertificates`.
    CallerCertificateRejected,
    /// No rule for external issuers accepts the claims of the caller's token.
    CallerClaimsMismatch,
    /// The caller's token has expired.
    CallerExpired,
    /// The caller disconnected before it got a response.
    CallerGone,
    /// The caller's token, or the rule for its certificate, names a ServiceAccount UID that is not
    /// the live one.
    CallerIdentityChanged,
    /// The caller's token has an issuer that is neither the hub's nor a configured external one.
    CallerIssuerMismatch,
    /// The keys of the external issuer that the caller's token names could not be read.
    CallerKeysUnavailable,
    /// The caller's token is not a readable bound ServiceAccount token.
    CallerMalformed,
    /// The caller sent no token and no certificate.
    CallerMissing,
    /// The caller's token is not bound to a Pod, and the configuration requires that.
    CallerNotPodBound,
    /// The hub's TokenReview did not accept the caller's token.
    CallerRejected,
    /// The caller's token was exchanged before, and its external issuer's tokens are for one use.
    CallerTokenReused,
    /// The target's CA certificate is missing or cannot be used.
    CertificateAuthorityInvalid,
    /// The request for a client certificate was denied.
    CertificateDenied,
    /// The hub's signer could not sign the request for a client certificate.
    CertificateFailed,
    /// The issued client certificate is not the requested one, so it was not written.
    CertificateMismatch,
    /// The request for a client certificate waits for its approval or its signature.
    CertificatePending,
    /// The Secret of the target's CA also contains a client certificate or key, which is never
    /// used.
    ClientCertificateIgnored,
    /// The hub's clock and ours differ by more than 30 s.
    ClockSkew,
    /// The configuration has an error.
    ConfigurationInvalid,
    /// The waits of a decision took too long in total: the namespace's concurrency limit, the hub,
    /// and a key's activation delay.
    DecisionTimedOut,
    /// The hub's own RBAC does not let the delegated caller create tokens for the ServiceAccount.
    DelegationForbidden,
    /// The access was deleted; its objects stay until the last written token has expired.
    DeliveryDraining,
    /// The hub did not accept a written object.
    DeliveryFailed,
    /// The hub denies Keyferry access to the object of a delivery.
    DeliveryForbidden,
    /// `ca.crt` beside the certificate of the discovery listener does not verify it, so no target
    /// gets it.
    DiscoveryAuthorityMismatch,
    /// The ServiceAccount has an annotation with which Flux gets another credential than a token of
    /// the hub.
    FluxCredentialDiffers,
    /// What allowed the request changed while the request was processed.
    GrantSuperseded,
    /// The hub denies Keyferry access to its discovery documents.
    HubDiscoveryForbidden,
    /// The hub's discovery documents cannot be used.
    HubDiscoveryInvalid,
    /// The hub lists a different key under a known `kid`. That key is not published.
    HubKeyReplaced,
    /// An apiserver of the hub does not know the kind of an admission policy's parameter yet.
    HubPolicyNotReady,
    /// The hub does not answer.
    HubUnreachable,
    /// Another target has the same DNS name in its identity, so the inputs of neither are served.
    IdentityConflict,
    /// The user name at the target does not begin with the hub's name and a colon.
    IdentityUnexpected,
    /// The credential for fleet inputs is missing, malformed, unknown or expired.
    InputCredentialRejected,
    /// A collection of fleet inputs holds something that looks like a secret, so nothing of it is
    /// sent.
    InputLooksSecret,
    /// The ConfigMap with the fleet inputs of a target cannot be used.
    InputsInvalid,
    /// The target has no ConfigMap with fleet inputs.
    InputsMissing,
    /// The credential for fleet inputs is not for this cluster or namespace. An unknown one gets
    /// the same answer.
    InputsNotGranted,
    /// A collection of fleet inputs is larger than 900 KiB, so nothing of it is sent.
    InputsTooLarge,
    /// The objects from which fleet inputs are made could not be read from the hub.
    InputsUnread,
    /// The target's own issuer is also the hub's, so the target would have to refuse the hub's
    /// tokens.
    IssuerCollision,
    /// The hub denies Keyferry access to the Secret with the keys of the target's managed issuer.
    IssuerKeysForbidden,
    /// The Secret with the keys of the target's managed issuer cannot be used, or belongs to
    /// another target.
    IssuerKeysInvalid,
    /// The keys of the target's managed issuer have not been published for the activation delay
    /// yet.
    IssuerKeysSettling,
    /// The hub signed with a key that is not published yet.
    KeyNotPublished,
    /// The hub denies Keyferry access to the Secret with the key journal.
    KeyRecordForbidden,
    /// The key journal was changed from outside Keyferry. Nothing in it is trusted.
    KeyRecordTampered,
    /// The key journal could not be read or written.
    KeyRecordUnread,
    /// The key was revoked by hand.
    KeyRevoked,
    /// The token's signing key was published too recently for every target to know it.
    KeySettling,
    /// The admission policy that guards the labels of a selector is missing or weakened. A user who
    /// may edit a namespace can have it selected.
    LabelsUnprotected,
    /// No replica has been the leader for a minute, so nothing is delivered or withdrawn.
    LeaderMissing,
    /// The hub does not permit this user to read Keyferry's metrics.
    MetricsForbidden,
    /// The hub could not carry out the TokenRequest.
    MintFailed,
    /// The hub does not permit Keyferry the TokenRequest.
    MintForbidden,
    /// The token that the hub minted is not the requested one.
    MintMismatch,
    /// Keyferry's own account may mint for any ServiceAccount of the hub.
    MintUnbounded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The delivery type cannot carry a field of the target.
    NotExpressible,
    /// An object of that name exists and was not made for this access.
    ObjectNotOurs,
    /// The admission policy that reserves a target's audience for its granted ServiceAccounts is
    /// missing or weakened, so others may mint for it.
    PairingUnprotected,
    /// The target refused a token of this access.
    ProbeRefused,
    /// The target did not answer when a token of this access was tried there.
    ProbeUnanswered,
    /// A quota of the namespace leaves no room for the object.
    QuotaExceeded,
    /// Callers that are not verified yet send too many requests from one address, or with tokens of
    /// one namespace.
    RateLimited,
    /// Everything works.
    Ready,
    /// The request is malformed.
    RequestInvalid,
    /// The hub could not carry out a TokenReview or a SubjectAccessReview, or its answer cannot be
    /// read.
    ReviewFailed,
    /// The hub does not permit Keyferry a TokenReview or a SubjectAccessReview.
    ReviewForbidden,
    /// The ServiceAccount to mint for was deleted or recreated.
    ServiceAccountChanged,
    /// The certificate or key of a listener cannot be served, because clients would refuse it.
    ServingCertificateInvalid,
    /// The object has a mistake that its schema cannot detect.
    SpecInvalid,
    /// The host of the target or of its proxy has an address to which the server does not connect.
    TargetAddressRefused,
    /// The TargetCluster is being deleted. Nothing is minted for it, and delivered objects stay
    /// until their tokens have expired.
    TargetDraining,
    /// No grant gives the caller's own ServiceAccount this target. Absent, forbidden and not
    /// allowed targets get the same answer.
    TargetNotGranted,
    /// The target cannot be used at the moment.
    TargetNotReady,
    /// The target or the access is suspended.
    TargetSuspended,
    /// The target accepts a token that none of its rules should admit.
    TargetUnrestricted,
    /// The tenant has as many cached tokens as one namespace may have.
    TenantLimitReached,
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
