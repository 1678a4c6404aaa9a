//! A small fleet: three accesses of two tenants at two targets, and two keys.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, Namespace, ObjectName};

use crate::facts::{
    AcceptedFacts, AccessFacts, Answer, AuthorityFacts, Comparison, DeliveryFacts, DenialFacts,
    Fleet, Health, KeyFacts, KeyLife, KeyState, Reading, SCHEMA, Source, TargetFacts, TrustFacts,
};
use crate::gap::{Gap, GapCause};

/// The moment of all facts.
pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// The moment some seconds after [`now`].
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn text(text: &str) -> ForeignText {
    ForeignText::new(text)
}

/// A delivery of a token that ends and is renewed so many seconds from now.
pub(super) fn token(delivery_type: &str, expires: i64, renews: i64, kid: &str) -> DeliveryFacts {
    DeliveryFacts {
        delivery_type: text(delivery_type),
        object: Some(text("apps-kubeconfig")),
        reason: Some(text("Delivered")),
        expires_at: Some(at(expires)),
        renew_at: Some(at(renews)),
        key_id: Some(text(kid)),
    }
}

/// A delivery without a token.
pub(super) fn without_token(delivery_type: &str) -> DeliveryFacts {
    DeliveryFacts {
        delivery_type: text(delivery_type),
        object: Some(text("apps")),
        reason: Some(text("Delivered")),
        expires_at: None,
        renew_at: None,
        key_id: None,
    }
}

pub(super) fn access(name: &str, target: &str, deliveries: Vec<DeliveryFacts>) -> AccessFacts {
    AccessFacts {
        name: AccessName::parse(name).unwrap(),
        health: Health::Ready,
        target: ObjectName::new(target).unwrap(),
        service_account: ObjectName::new("reconciler").unwrap(),
        callers: Vec::new(),
        suspended: false,
        deliveries,
        user: None,
        accepted: Answer::Yes,
        asked_at: None,
        exposure_until: None,
        cause: ForeignText::default(),
        reason: None,
        findings: Vec::new(),
    }
}

pub(super) fn target(name: &str) -> TargetFacts {
    TargetFacts {
        name: ObjectName::new(name).unwrap(),
        health: Health::Ready,
        relying_party: false,
        hub: false,
        suspended: false,
        role: None,
        address: None,
        audience: None,
        issuer: Some(text("https://hub.test")),
        reachable: Answer::Yes,
        certificate_authority: AuthorityFacts {
            source: text("Secret prod-ca"),
            ends: None,
        },
        file_active: Answer::Yes,
        keys_read: Answer::Yes,
        accepted: AcceptedFacts::default(),
        accesses: 0,
        tenants: 0,
        next_ending: None,
        cause: ForeignText::default(),
        reason: None,
        next_command: None,
        findings: Vec::new(),
        allow: Vec::new(),
        trust: None,
    }
}

/// The target's file was compared.
pub(super) fn compared(mut target: TargetFacts, file: Comparison) -> TargetFacts {
    let why = || Comparison::NotCompared {
        why: "no kubeconfig".to_owned(),
    };
    target.trust = Some(TrustFacts {
        file,
        loaded_file: why(),
        keys: why(),
        behaviour: why(),
    });
    target
}

/// A key; the times are seconds from now.
pub(super) fn key(kid: &str, state: KeyState) -> KeyLife {
    KeyLife {
        kid: text(kid),
        algorithm: Some(text("RS256")),
        state,
        published_at: Some(at(-9000)),
        active_at: Some(at(-8880)),
        signs_since: None,
        signs_until: None,
        withdrawn_at: None,
        revoked_at: None,
        safe_to_remove_at: None,
        live_tokens: None,
        last_token_ends: None,
    }
}

/// `old` signed until 1000 s ago, `new` signs since then.
pub(super) fn rotated_keys() -> KeyFacts {
    let mut old = key("old", KeyState::Verifies);
    old.safe_to_remove_at = Some(at(7200));
    let mut new = key("new", KeyState::Signs);
    new.signs_since = Some(at(-1000));
    KeyFacts {
        issuer: Some(text("https://hub.test")),
        journal_read: true,
        keys: vec![new, old],
    }
}

/// Tenant a has a Secret at prod that ends in an hour with the old key, and a Flux ConfigMap; tenant
/// b a Secret at stage that ends in two hours with the new one.
pub(super) fn fleet() -> Fleet {
    Fleet {
        schema: SCHEMA,
        reading: Reading {
            source: Source::Folder {
                path: text("fleet"),
            },
            user: None,
            read_at: now(),
            judged_at: now(),
            tenant: None,
            redacted: false,
            failed: None,
        },
        gaps: Vec::new(),
        runway: None,
        targets: vec![target("prod"), target("stage")],
        tenants: Vec::new(),
        accesses: vec![
            access(
                "tenant-a/apps",
                "prod",
                vec![token("KubeConfigSecret", 3600, 1800, "old")],
            ),
            access(
                "tenant-a/flux",
                "prod",
                vec![without_token("FluxConfigMap")],
            ),
            access(
                "tenant-b/apps",
                "stage",
                vec![token("KubeConfigSecret", 7200, 5400, "new")],
            ),
        ],
        keys: rotated_keys(),
        endings: Vec::new(),
        denials: DenialFacts::default(),
    }
}

/// A list of the hub that was refused.
pub(super) fn refused_list(resource: &str) -> Gap {
    Gap {
        resource: resource.to_owned(),
        namespace: None,
        target: None,
        cause: GapCause::Refused,
        message: text("forbidden: user jane cannot list"),
        hides: "when delivered tokens end".to_owned(),
        fix: "bind ClusterRole keyferry-platform-admin to jane".to_owned(),
    }
}

pub(super) fn namespace(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}
