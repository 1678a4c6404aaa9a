//! The STATUS of an object in one short line, as `kubectl get` shows it. The conditions contain the
//! whole text.
//!
//! Only reason codes decide a line. Text of the hub, of a target or of a tenant never gets into it,
//! so a line is always short and never contains a secret.

use jiff::Timestamp;

use crate::condition::{Finding, Truth, seconds};
use crate::reason::Reason;

/// Maximum length of a line in characters. The CRDs refuse a longer one.
pub const MAX: usize = 80;

/// The line of a TargetAccess, from its `Ready` condition and from how the target responded to a
/// token.
pub fn of_access(ready: &Finding, authenticates: Option<&Finding>) -> String {
    if !ready.holds() {
        return hindrance(ready.reason);
    }
    // `Ready` covers only Keyferry's own work. A reader of this line alone must not conclude that
    // the target accepts the token.
    match authenticates.map(|finding| finding.status) {
        Some(Truth::False) => "delivered, but the target refuses the token (401)".to_owned(),
        Some(Truth::Unknown) => "delivered, but the target does not answer".to_owned(),
        Some(Truth::True) | None => "authorised and delivered".to_owned(),
    }
}

/// The line of a deleted TargetAccess that is draining.
pub fn of_draining_access(until: Timestamp) -> String {
    format!(
        "deleted; stays until {}; deletionPolicy: Immediate ends it",
        seconds(until)
    )
}

/// The line of a TargetCluster, from its `Ready` condition and its further conditions.
pub fn of_target(ready: &Finding, further: &[(&str, &Finding)]) -> String {
    if !ready.holds() {
        return hindrance(ready.reason);
    }
    let holds = |reason: Reason| {
        further
            .iter()
            .any(|(_, finding)| finding.holds() && finding.reason == reason)
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
    let warning = warnings
        .iter()
        .find(|(reason, _)| holds(*reason))
        .map(|(_, line)| *line);
    warning
        .unwrap_or("ready; callers in allow[] can use it")
        .to_owned()
}

/// The line of a deleted TargetCluster that `users` accesses still use.
pub fn of_draining_target(users: usize) -> String {
    let users = if users == 1 {
        "1 access still uses it".to_owned()
    } else {
        format!("{users} accesses still use it")
    };
    format!("deleted; {users}; deletionPolicy: Immediate ends it")
}

/// The line that says why an object is not ready.
fn hindrance(reason: Reason) -> String {
    let line = match reason {
        Reason::AudienceConflict => "another TargetCluster has this audience; nothing is minted",
        Reason::AudienceIsHubs => "the hub itself accepts this audience; nothing is minted",
        Reason::AudienceUnchecked => {
            "waiting: whether the hub itself accepts this audience is not known"
        }
        Reason::AuditUnavailable => "not delivered: the audit log could not be written",
        Reason::AuthorUnchecked => "no token written: apply the admission policy keyferry-author",
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
        Reason::ProbeRefused => "not delivered: the target refuses the token (401)",
        Reason::ProbeUnanswered => "not delivered: the target does not answer",
        Reason::QuotaExceeded => "a quota of the namespace leaves no room for an object",
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
        // No object has such a reason so far. The code is enough to find the cause.
        other => return format!("{other}: see the condition Ready"),
    };
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{MAX, of_access, of_draining_access, of_draining_target, of_target};
    use crate::condition::Finding;
    use crate::reason::Reason;

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
            let no = Finding::not(*reason, message.clone());
            let unknown = Finding::unknown(*reason, message.clone());
            let bad_news = Finding::so(*reason, message.clone());
            let well = Finding::well(message.clone());
            for line in [
                of_access(&no, None),
                of_access(&unknown, Some(&no)),
                of_access(&well, Some(&no)),
                of_access(&well, Some(&unknown)),
                of_access(&well, Some(&well)),
                of_target(&no, &[]),
                of_target(&well, &[("X", &bad_news)]),
            ] {
                assert_short(&line, reason.as_str());
            }
        }
        assert_short(&of_draining_access(Timestamp::MAX), "the latest end");
        assert_short(&of_draining_target(1_000_000_000), "the most users");
    }

    #[test]
    fn every_hindrance_of_an_object_has_a_line_of_its_own() {
        // Callers, configuration files and key journals have no object whose STATUS would report
        // them.
        let of_objects = [
            "Audience",
            "Audit",
            "Author",
            "Certificate",
            "Delivery",
            "Issuer",
            "Object",
            "Probe",
            "Quota",
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
            let line = of_access(&Finding::not(*reason, ""), None);
            assert!(
                !line.starts_with(reason.as_str()),
                "{reason} needs a line of its own"
            );
        }
    }

    #[test]
    fn ready_is_not_taken_for_the_targets_word() {
        let well = Finding::well("authorised and delivered");
        let refused = Finding::not(
            Reason::ProbeRefused,
            "the target answered 401 to a token of this access",
        );
        let silent = Finding::unknown(Reason::ProbeUnanswered, "connection refused");
        assert_eq!(
            of_access(&well, Some(&refused)),
            "delivered, but the target refuses the token (401)"
        );
        assert_eq!(
            of_access(&well, Some(&silent)),
            "delivered, but the target does not answer"
        );
        assert_eq!(of_access(&well, Some(&well)), "authorised and delivered");
        assert_eq!(of_access(&well, None), "authorised and delivered");
        let revoked = Finding::not(Reason::TargetNotGranted, "");
        assert_eq!(
            of_access(&revoked, Some(&refused)),
            of_access(&revoked, None),
            "what stands in the way comes first"
        );
    }

    #[test]
    fn a_ready_target_says_the_gravest_of_what_is_wrong() {
        let well = Finding::well("");
        let open = Finding::so(Reason::TargetUnrestricted, "");
        let ignored = Finding::so(Reason::ClientCertificateIgnored, "");
        let line = of_target(
            &well,
            &[
                ("ClientCertificateIgnored", &ignored),
                ("TargetUnrestricted", &open),
            ],
        );
        assert!(line.contains("lets in"), "{line}");
        assert!(
            of_target(&well, &[("ClientCertificateIgnored", &ignored)]).contains("certificate")
        );
        assert_eq!(
            of_target(&well, &[]),
            "ready; callers in allow[] can use it"
        );
    }
}
