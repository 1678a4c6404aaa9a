//! The STATUS of an object in one short line, as `kubectl get` shows it. The conditions contain the
//! whole text.
//!
//! Only reason codes decide a line. Text of the hub, of a target or of a tenant never gets into it,
//! so a line is always short and never contains a secret.

use jiff::Timestamp;

use crate::condition::{Finding, Truth, format_seconds};
use crate::reason::Reason;
use crate::status::ProbeCounts;

/// Maximum length of a line in characters. The CRDs refuse a longer one.
pub const MAX: usize = 80;

/// Why a target did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilenceCause {
    /// No process listens on the port.
    ConnectionRefused,
    /// There is no route, or no answer in time.
    NoRoute,
    /// The name does not resolve.
    UnknownHost,
    /// Another CA signed the certificate.
    UnknownAuthority,
    /// The certificate is for other names.
    OtherNames,
    /// Something else, which the condition describes.
    Other,
}

impl SilenceCause {
    /// Every cause.
    pub const ALL: [Self; 6] = [
        Self::ConnectionRefused,
        Self::NoRoute,
        Self::UnknownHost,
        Self::UnknownAuthority,
        Self::OtherNames,
        Self::Other,
    ];

    /// What the cause means for the target, as the end of a sentence.
    fn silence_line(self) -> &'static str {
        match self {
            Self::ConnectionRefused => "the target refuses connections",
            Self::NoRoute => "the target cannot be reached, or not in time",
            Self::UnknownHost => "the target's host is unknown",
            Self::UnknownAuthority => "the target's certificate is of another CA",
            Self::OtherNames => "the target's certificate is for other names",
            Self::Other => "the target does not answer",
        }
    }
}

/// Why Keyferry sends nothing to a target, as the end of a sentence.
const ADDRESS_REFUSED: &str = "Keyferry does not connect to the target's address";

/// The line of a TargetAccess, from its `Ready` condition and from how the target responded to a
/// token. `silence` is why it did not respond.
pub fn summarize_access(
    ready: &Finding,
    authenticates: Option<&Finding>,
    silence: Option<SilenceCause>,
) -> String {
    if !ready.is_true() {
        return not_ready_line(ready.reason);
    }
    // `Ready` covers only Keyferry's own work. A reader of this line alone must not conclude that
    // the target accepts the token.
    match authenticates.map(|finding| (finding.status, finding.reason)) {
        Some((Truth::False, Reason::IdentityUnexpected)) => {
            "delivered, but the target takes the token for an unexpected user".to_owned()
        }
        Some((Truth::False, _)) => "delivered, but the target refuses the token (401)".to_owned(),
        Some((Truth::Unknown, Reason::TargetAddressRefused)) => {
            format!("delivered, but {ADDRESS_REFUSED}")
        }
        Some((Truth::Unknown, reason)) if reason != Reason::ProbeUnanswered => {
            "authorised and delivered; no token could be tried at the target".to_owned()
        }
        Some((Truth::Unknown, _)) => {
            format!(
                "delivered, but {}",
                silence.unwrap_or(SilenceCause::Other).silence_line()
            )
        }
        Some((Truth::True, _)) | None => "authorised and delivered".to_owned(),
    }
}

/// The line of a deleted TargetAccess that is draining.
pub fn summarize_draining_access(until: Timestamp) -> String {
    format!(
        "deleted; stays until {}; deletionPolicy: Immediate ends it",
        format_seconds(until)
    )
}

/// What is known of a target besides its conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetAnswers {
    /// How the target answered the tokens of its accesses; `None` if Keyferry asks no target.
    pub accesses: Option<ProbeCounts>,
    /// Why it did not answer when it was last asked.
    pub silence: Option<SilenceCause>,
    /// Whether nothing is sent to its address.
    pub address_refused: bool,
}

/// The line of a TargetCluster, from its `Ready` condition, its further conditions and its answers.
pub fn summarize_target(
    ready: &Finding,
    further: &[(&str, &Finding)],
    answers: &TargetAnswers,
) -> String {
    if !ready.is_true() {
        return not_ready_line(ready.reason);
    }
    let holds = |reason: Reason| {
        further
            .iter()
            .any(|(_, finding)| finding.is_true() && finding.reason == reason)
    };
    let warnings = [
        (
            Reason::TargetUnrestricted,
            "ready, but the target lets in users that none of its rules names",
        ),
        (
            Reason::PairingUnprotected,
            "ready, but others can mint for its audience: see PairingUnprotected",
        ),
        (
            Reason::LabelsUnprotected,
            "ready, but others can set the labels of allow[]: see LabelsUnprotected",
        ),
        (
            Reason::AdmissionPolicyIncomplete,
            "ready; admission policies differ: see AdmissionPolicyIncomplete",
        ),
        (
            Reason::ClientCertificateIgnored,
            "ready; the client certificate beside its CA is ignored",
        ),
    ];
    // These two change nothing about who gets in, so they hide no trouble with the target.
    let minor = [
        Reason::AdmissionPolicyIncomplete,
        Reason::ClientCertificateIgnored,
    ];
    let warning = warnings
        .iter()
        .find(|(reason, _)| holds(*reason) && !(minor.contains(reason) && answers.is_trouble()))
        .map(|(_, line)| *line);
    warning.map_or_else(|| answers_line(answers), str::to_owned)
}

impl TargetAnswers {
    /// Whether the target is known not to answer, or to refuse a token.
    fn is_trouble(&self) -> bool {
        let failed = |counts: ProbeCounts| counts.refused + counts.unanswered > 0;
        self.address_refused || self.silence.is_some() || self.accesses.is_some_and(failed)
    }
}

/// Says how a target answers. Without an answer, it is no more than declared.
fn answers_line(answers: &TargetAnswers) -> String {
    if answers.address_refused {
        return format!("declared; {ADDRESS_REFUSED}");
    }
    if let Some(cause) = answers.silence {
        return format!("declared; {}", cause.silence_line());
    }
    match answers.accesses {
        None => "declared; Keyferry does not ask whether it accepts tokens".to_owned(),
        Some(ProbeCounts { total: 0, .. }) => "declared; no access uses it yet".to_owned(),
        Some(ProbeCounts {
            total,
            accepted: 0,
            refused: 0,
            ..
        }) => format!("declared; {total} accesses, none of which was tried at the target"),
        Some(ProbeCounts {
            total, accepted, ..
        }) => format!("declared; {accepted} of {total} accesses accepted by the target"),
    }
}

/// The line of a deleted TargetCluster that `users` accesses still use.
pub fn summarize_draining_target(users: usize) -> String {
    let users = if users == 1 {
        "1 access still uses it".to_owned()
    } else {
        format!("{users} accesses still use it")
    };
    format!("deleted; {users}; deletionPolicy: Immediate ends it")
}

/// The line that says why an object is not ready.
fn not_ready_line(reason: Reason) -> String {
    let line = match reason {
        Reason::AudienceConflict => "another TargetCluster has this audience; nothing is minted",
        Reason::AudienceIsHubs => "the hub itself accepts this audience; nothing is minted",
        Reason::AudienceUnchecked => {
            "waiting: whether the hub itself accepts this audience is not known"
        }
        Reason::AuditUnavailable => "not delivered: the audit log could not be written",
        Reason::AuthorUnchecked => "no token written: apply the admission policy keyferry-author",
        Reason::BaseTargetMissing => "the TargetCluster of sameAs is missing or cannot be used",
        Reason::CertificateAuthorityInvalid => {
            "the target's CA certificates are missing or invalid"
        }
        Reason::CertificateDenied => "the request for its client certificate was denied",
        Reason::CertificateFailed => "the hub could not sign its client certificate: see Delivered",
        Reason::CertificateMismatch => "the hub issued another client certificate than requested",
        Reason::CertificatePending => "waiting: its client certificate has to be approved",
        Reason::ClockSkew => "the clocks of the hub and of Keyferry differ too much",
        Reason::DeliveryDraining => "deleted; its objects stay until their tokens expire",
        Reason::DeliveryFailed => "the hub did not take a change of an object: see Delivered",
        Reason::DeliveryForbidden => {
            "Keyferry may not write here: bind keyferry-minter in this namespace"
        }
        Reason::FluxCredentialDiffers => {
            "Flux does not use the hub's tokens for this ServiceAccount: see Delivered"
        }
        Reason::HubDiscoveryForbidden | Reason::HubDiscoveryInvalid => {
            "the hub's keys cannot be read"
        }
        Reason::HubPolicyNotReady => {
            "an admission policy of the hub lacks the kind of its parameter; trying again"
        }
        Reason::HubUnreachable => "the hub's API does not answer; trying again",
        Reason::IssuerCollision => {
            "the target has the hub's issuer as its own and refuses its tokens"
        }
        Reason::IssuerKeysForbidden => {
            "Keyferry may not read or write the keys of the target's issuer"
        }
        Reason::IssuerKeysInvalid => "the keys of the target's issuer cannot be used",
        Reason::IssuerKeysSettling => "waiting until the target can know the keys of its issuer",
        Reason::KeyNotPublished | Reason::KeySettling => {
            "waiting until every target can know the signing key"
        }
        Reason::KeyRevoked => "the key of its token was revoked, and the hub still signs with it",
        Reason::MintFailed => "the hub could not mint a token; trying again",
        Reason::MintForbidden => {
            "Keyferry may not mint here: bind keyferry-minter in this namespace"
        }
        Reason::MintMismatch => "the hub minted a different token than requested",
        Reason::NamespaceTerminating => "the namespace is being deleted",
        Reason::NotExpressible => {
            "a delivery type cannot carry a field of the target: see Delivered"
        }
        Reason::ObjectNotOurs => "an object of that name is there and is not Keyferry's",
        Reason::ObjectTooLarge => "too large to be kept in memory: see the condition Ready",
        Reason::ProbeRefused => "not delivered: the target refuses the token (401)",
        Reason::ProbeUnanswered => "not delivered: the target does not answer",
        Reason::QuotaExceeded => "a quota of the namespace leaves no room for an object",
        Reason::RoleConflict => "another TargetCluster is this role; nothing is minted",
        Reason::RoleNotMapped => {
            "the target is not known to limit this role: see TargetAuthenticates"
        }
        Reason::ServiceAccountChanged => {
            "the ServiceAccount was deleted or recreated; trying again"
        }
        Reason::SpecInvalid => "spec has a mistake: see the condition Ready",
        Reason::TargetAddressRefused => {
            "not delivered: Keyferry does not connect to the target's address"
        }
        Reason::TargetDraining => {
            "its TargetCluster is being deleted; objects stay until they expire"
        }
        Reason::TargetNotGranted => {
            "no TargetCluster grants this to the access and its ServiceAccount"
        }
        Reason::TargetNotReady => "the target cannot be used yet: see the condition Ready",
        Reason::TargetSuspended => "suspended: nothing is minted or refreshed",
        Reason::TenantLimitReached => "the namespace has reached its limit of tokens",
        Reason::TooManyAccesses => "the namespace has too many accesses to this target",
        // No object has such a reason so far. The code is enough to find the cause.
        other => return format!("{other}: see the condition Ready"),
    };
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{
        MAX, SilenceCause, TargetAnswers, summarize_access, summarize_draining_access,
        summarize_draining_target, summarize_target,
    };
    use crate::condition::Finding;
    use crate::reason::Reason;
    use crate::status::ProbeCounts;

    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl";

    fn assert_short(line: &str, of: &str) {
        assert!(
            (1..=MAX).contains(&line.chars().count()),
            "{of}: {} characters: {line}",
            line.chars().count()
        );
        assert!(
            line.is_ascii() && !line.chars().any(|character| character.is_ascii_control()),
            "{of}: {line:?}"
        );
        assert!(!line.contains("eyJ"), "{of}: {line}");
    }

    #[test]
    fn every_reason_has_a_short_line_and_nothing_of_its_message() {
        let message = format!("{TOKEN}\n\u{202e}{}", "long ".repeat(200));
        for reason in Reason::ALL {
            let no = Finding::failed(*reason, message.clone());
            let unknown = Finding::unknown(*reason, message.clone());
            let bad_news = Finding::problem(*reason, message.clone());
            let well = Finding::ok(message.clone());
            for line in [
                summarize_access(&no, None, None),
                summarize_access(&unknown, Some(&no), None),
                summarize_access(&well, Some(&no), None),
                summarize_access(&well, Some(&unknown), None),
                summarize_access(&well, Some(&well), None),
                summarize_target(&no, &[], &TargetAnswers::default()),
                summarize_target(&well, &[("X", &bad_news)], &TargetAnswers::default()),
            ] {
                assert_short(&line, reason.as_str());
            }
        }
        assert_short(&summarize_draining_access(Timestamp::MAX), "the latest end");
        assert_short(&summarize_draining_target(1_000_000_000), "the most users");
    }

    #[test]
    fn every_hindrance_of_an_object_has_a_line_of_its_own() {
        // Callers, configuration files and key journals have no object whose STATUS would report
        // them.
        let of_objects = [
            "Audience",
            "Audit",
            "Author",
            "Base",
            "Certificate",
            "Delivery",
            "Issuer",
            "Object",
            "Probe",
            "Quota",
            "Role",
            "Target",
        ];
        let concerns = |reason: &&Reason| {
            of_objects
                .iter()
                .any(|prefix| reason.as_str().starts_with(prefix))
        };
        let hindering = Reason::ALL
            .iter()
            .filter(|reason| **reason != Reason::TargetUnrestricted);
        for reason in hindering.filter(concerns) {
            let line = summarize_access(&Finding::failed(*reason, ""), None, None);
            assert!(
                !line.starts_with(reason.as_str()),
                "{reason} needs a line of its own"
            );
        }
    }

    #[test]
    fn ready_is_not_taken_for_the_targets_word() {
        let well = Finding::ok("authorised and delivered");
        let refused = Finding::failed(
            Reason::ProbeRefused,
            "the target answered 401 to a token of this access",
        );
        let silent = Finding::unknown(Reason::ProbeUnanswered, "connection refused");
        assert_eq!(
            summarize_access(&well, Some(&refused), None),
            "delivered, but the target refuses the token (401)"
        );
        assert_eq!(
            summarize_access(&well, Some(&silent), None),
            "delivered, but the target does not answer"
        );
        assert_eq!(
            summarize_access(&well, Some(&well), None),
            "authorised and delivered"
        );
        assert_eq!(
            summarize_access(&well, None, None),
            "authorised and delivered"
        );
        let revoked = Finding::failed(Reason::TargetNotGranted, "");
        assert_eq!(
            summarize_access(&revoked, Some(&refused), None),
            summarize_access(&revoked, None, None),
            "what stands in the way comes first"
        );
    }

    #[test]
    fn a_ready_target_says_the_gravest_of_what_is_wrong() {
        let well = Finding::ok("");
        let open = Finding::problem(Reason::TargetUnrestricted, "");
        let ignored = Finding::problem(Reason::ClientCertificateIgnored, "");
        let line = summarize_target(
            &well,
            &[
                ("ClientCertificateIgnored", &ignored),
                ("TargetUnrestricted", &open),
            ],
            &TargetAnswers::default(),
        );
        assert!(line.contains("lets in"), "{line}");
        assert!(
            summarize_target(
                &well,
                &[("ClientCertificateIgnored", &ignored)],
                &TargetAnswers::default()
            )
            .contains("certificate")
        );
    }

    #[test]
    fn a_declared_target_is_not_called_usable() {
        let well = Finding::ok("");
        let line = |answers: TargetAnswers| summarize_target(&well, &[], &answers);
        let counts = |total, accepted, refused, unanswered| TargetAnswers {
            accesses: Some(ProbeCounts {
                total,
                accepted,
                refused,
                unanswered,
            }),
            ..TargetAnswers::default()
        };
        assert_eq!(
            line(counts(4, 3, 1, 0)),
            "declared; 3 of 4 accesses accepted by the target"
        );
        assert_eq!(
            line(counts(1, 0, 1, 0)),
            "declared; 0 of 1 accesses accepted by the target"
        );
        assert_eq!(line(counts(0, 0, 0, 0)), "declared; no access uses it yet");
        assert!(line(counts(2, 0, 0, 0)).contains("none of which was tried"));
        assert!(line(TargetAnswers::default()).contains("does not ask"));
        let refused = line(TargetAnswers {
            address_refused: true,
            ..counts(4, 4, 0, 0)
        });
        assert!(refused.contains("does not connect"), "{refused}");
        assert_short(&line(counts(u32::MAX, u32::MAX, 0, 0)), "the most accesses");
        assert_short(&line(counts(u32::MAX, 0, 0, 1)), "none tried");
    }

    #[test]
    fn each_cause_of_silence_has_its_own_line() {
        let well = Finding::ok("");
        let silent = Finding::unknown(Reason::ProbeUnanswered, "");
        let refused = Finding::unknown(Reason::TargetAddressRefused, "");
        let mut lines = vec![summarize_access(&well, Some(&refused), None)];
        for cause in SilenceCause::ALL {
            let answers = TargetAnswers {
                silence: Some(cause),
                ..TargetAnswers::default()
            };
            assert_short(&summarize_target(&well, &[], &answers), "a silent target");
            lines.push(summarize_access(&well, Some(&silent), Some(cause)));
        }
        lines
            .iter()
            .for_each(|line| assert_short(line, "a silent target"));
        let different: std::collections::BTreeSet<&String> = lines.iter().collect();
        assert_eq!(different.len(), 7, "{lines:?}");
    }
}
