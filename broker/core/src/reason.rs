//! The stable codes by which Keyferry names a failure.
//!
//! One failure has one code, spelt the same in the log, the audit record, the metric label, the
//! condition and the JSON answer.

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
    /// An admission policy of the hub is missing or differs, or does not know all audiences of the
    /// hub; the message says which.
    AdmissionPolicyIncomplete,
    /// An older target has the same audience.
    AudienceConflict,
    /// The target's audience is one that the hub's own apiserver accepts: a token for it would open
    /// the hub.
    AudienceIsHubs,
    /// It could not be learnt whether the hub's apiserver accepts the audience, so nothing is
    /// minted for it.
    AudienceUnchecked,
    /// The audit record could not be written, so nothing was issued.
    AuditUnavailable,
    /// The admission policy that checks who writes a TargetAccess is missing or weakened, so no
    /// token is written to an object.
    AuthorUnchecked,
    /// The caller's token is not for Keyferry's audience alone.
    CallerAudienceMismatch,
    /// The caller's token has expired.
    CallerExpired,
    /// The caller hung up before there was an answer.
    CallerGone,
    /// The caller's token names another ServiceAccount UID than the live one.
    CallerIdentityChanged,
    /// The caller's token was issued by another issuer than the hub's.
    CallerIssuerMismatch,
    /// The caller's token is no bound ServiceAccount token that can be read.
    CallerMalformed,
    /// The caller sent no token.
    CallerMissing,
    /// The caller's token is not bound to a Pod, and the configuration requires that.
    CallerNotPodBound,
    /// The hub's TokenReview did not accept the caller's token.
    CallerRejected,
    /// The target's CA certificate is missing or cannot be used.
    CertificateAuthorityInvalid,
    /// The Secret of the target's CA also holds a client certificate or key, which is never used.
    ClientCertificateIgnored,
    /// The hub's clock and ours differ by more than 30 s.
    ClockSkew,
    /// The configuration has an error.
    ConfigurationInvalid,
    /// What a decision waits for took too long in all: a crowd in the caller's namespace, the hub,
    /// and a key that settles, one after the other.
    DecisionTimedOut,
    /// A delegated caller may not create tokens for the ServiceAccount by the hub's own RBAC.
    DelegationForbidden,
    /// The access was deleted; its objects stay until the last written token has expired.
    DeliveryDraining,
    /// The hub did not take a written object.
    DeliveryFailed,
    /// The hub refuses Keyferry the object of a delivery.
    DeliveryForbidden,
    /// What allowed the request changed while it was on its way.
    GrantSuperseded,
    /// The hub refuses Keyferry its discovery documents.
    HubDiscoveryForbidden,
    /// The hub's discovery documents cannot be used.
    HubDiscoveryInvalid,
    /// The hub lists another key under a `kid` that is known. It is not published.
    HubKeyReplaced,
    /// The hub does not answer.
    HubUnreachable,
    /// The user name at the target does not begin with the hub's name and a colon.
    IdentityUnexpected,
    /// The target would have to refuse the hub's issuer, because it is also its own.
    IssuerCollision,
    /// The hub refuses Keyferry the Secret with the keys of the target's own issuer.
    IssuerKeysForbidden,
    /// The Secret with the keys of the target's own issuer cannot be used, or is another target's.
    IssuerKeysInvalid,
    /// The keys of the target's own issuer have not been published for long enough to sign.
    IssuerKeysSettling,
    /// The hub signed with a key that is not published yet.
    KeyNotPublished,
    /// The hub refuses Keyferry the Secret that holds the record of published keys.
    KeyRecordForbidden,
    /// The record of published keys was changed by somebody else; nothing of it is believed.
    KeyRecordTampered,
    /// The record of published keys could not be read or written.
    KeyRecordUnread,
    /// The key was revoked by hand.
    KeyRevoked,
    /// The token's key was published too lately for every target to know it.
    KeySettling,
    /// The admission policy that guards the labels of a selector is missing or weakened: whoever
    /// may edit a namespace may have it selected.
    LabelsUnprotected,
    /// No replica has led for a minute, so nothing is delivered or withdrawn.
    LeaderMissing,
    /// The hub could not carry out the TokenRequest.
    MintFailed,
    /// The hub refuses Keyferry the TokenRequest.
    MintForbidden,
    /// The token that the hub minted is not the one that was asked for.
    MintMismatch,
    /// Keyferry's own account may mint for any ServiceAccount of the hub.
    MintUnbounded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The shape of the delivery cannot carry a field of the target.
    NotExpressible,
    /// An object of that name is there and was not made for this access.
    ObjectNotOurs,
    /// The admission policy that keeps a target's audience for its pairs is missing or weakened:
    /// others may mint for it.
    PairingUnprotected,
    /// The target refused a token of this access.
    ProbeRefused,
    /// The target did not answer when a token of this access was tried there.
    ProbeUnanswered,
    /// A quota of the namespace leaves no room for the object.
    QuotaExceeded,
    /// Callers that are not known yet send more requests from one address, or with tokens of one
    /// namespace, than it may.
    RateLimited,
    /// All is well.
    Ready,
    /// The request is malformed.
    RequestInvalid,
    /// The hub could not carry out a TokenReview or a SubjectAccessReview, or its answer cannot be
    /// read.
    ReviewFailed,
    /// The hub refuses Keyferry a TokenReview or a SubjectAccessReview.
    ReviewForbidden,
    /// The ServiceAccount that was to be minted for was deleted or made anew.
    ServiceAccountChanged,
    /// The certificate or key of a listener cannot be served: clients would refuse it.
    ServingCertificateInvalid,
    /// The object has a mistake that its schema cannot tell.
    SpecInvalid,
    /// The TargetCluster is being deleted: nothing is minted for it, and what was delivered stays
    /// until it has expired.
    TargetDraining,
    /// The caller's own ServiceAccount is paired with no such target: absent, forbidden and not
    /// allowed are one answer.
    TargetNotGranted,
    /// The target cannot be used at the moment.
    TargetNotReady,
    /// The target or the access is suspended.
    TargetSuspended,
    /// The target accepts a token that none of its rules should let in.
    TargetUnrestricted,
    /// The tenant holds as many tokens as one namespace may.
    TenantLimitReached,
}

impl Reason {
    /// Whether it is the caller's own token that was not accepted.
    pub fn is_about_caller(self) -> bool {
        matches!(
            self,
            Self::CallerAudienceMismatch
                | Self::CallerExpired
                | Self::CallerIdentityChanged
                | Self::CallerIssuerMismatch
                | Self::CallerMalformed
                | Self::CallerMissing
                | Self::CallerNotPodBound
                | Self::CallerRejected
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
