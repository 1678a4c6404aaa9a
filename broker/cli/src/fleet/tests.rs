//! A fleet of 20 targets with faults, with the statuses that the controller writes: one screen names
//! each fault.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::condition::{Finding, Truth, conditions, format_seconds};
use keyferry_api::config::ReducedObject;
use keyferry_api::reason::Reason;
use keyferry_api::status::{ClusterStatus, DeliveryStatus, ProbeCounts, TargetClusterStatus};
use keyferry_api::summary::{SilenceCause, TargetAnswers, summarize_target};
use keyferry_core::access_status::{AccessReport, TargetIdentity};
use keyferry_fleet::facts::{Fleet, Health, Source};
use keyferry_fleet::generated::authority_pem;
use serde_json::{Value, json};

use super::*;

/// What is wrong with a target, or with its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Silent(SilenceCause, &'static str),
    AddressRefused,
    Refused,
    AuthorityMissing,
    AuthorityEnds,
    NoRule,
    NoServiceAccount,
    Unrestricted,
    Suspended,
    NoStatus,
    StaleStatus,
    OldAnswer,
    TokenEnded,
    RelyingParty,
    ProbeOff,
}

const FAULTS: [(&str, Fault); 20] = [
    (
        "closed-port",
        Fault::Silent(
            SilenceCause::ConnectionRefused,
            "connection refused at 127.0.0.1:1",
        ),
    ),
    (
        "unknown-host",
        Fault::Silent(
            SilenceCause::UnknownHost,
            "the host nowhere.test does not resolve",
        ),
    ),
    (
        "no-route",
        Fault::Silent(SilenceCause::NoRoute, "it did not answer in time"),
    ),
    (
        "ca-of-another",
        Fault::Silent(
            SilenceCause::UnknownAuthority,
            "its certificate is signed by CN=other",
        ),
    ),
    ("link-local", Fault::AddressRefused),
    ("wrong-audience", Fault::Refused),
    ("flag-not-set", Fault::Refused),
    ("ca-missing", Fault::AuthorityMissing),
    ("ca-ends", Fault::AuthorityEnds),
    ("missing-rule", Fault::NoRule),
    ("missing-account", Fault::NoServiceAccount),
    ("unrestricted", Fault::Unrestricted),
    ("suspended", Fault::Suspended),
    ("no-status", Fault::NoStatus),
    ("stale-status", Fault::StaleStatus),
    ("old-answer", Fault::OldAnswer),
    ("token-ended", Fault::TokenEnded),
    ("vault", Fault::RelyingParty),
    ("probe-off", Fault::ProbeOff),
    ("healthy", Fault::None),
];

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

fn asked_at(fault: Fault) -> Timestamp {
    match fault {
        Fault::OldAnswer => now() - minutes(300),
        _ => now() - minutes(4),
    }
}

fn is_asked(fault: Fault) -> bool {
    let never = [
        Fault::AuthorityMissing,
        Fault::Suspended,
        Fault::RelyingParty,
        Fault::ProbeOff,
        Fault::NoRule,
        Fault::NoServiceAccount,
    ];
    !never.contains(&fault)
}

fn metadata(name: &str, namespace: Option<&str>, generation: i64) -> Value {
    json!({
        "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": "7",
        "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn target(name: &str, fault: Fault) -> Value {
    let allowed = match fault {
        Fault::NoRule => "notifier",
        _ => "reconciler",
    };
    let generation = if fault == Fault::StaleStatus { 2 } else { 1 };
    let mut object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": metadata(name, None, generation),
        "spec": {
            "address": format!("https://{name}.test:6443"), "audience": format!("https://{name}.test"),
            "issuer": "Hub", "certSecretRef": { "name": format!("{name}-ca") },
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": [allowed],
                        "deliveries": ["FluxConfigMap", "KubeConfigSecret", "HTTP"] }],
        },
    });
    let spec = object["spec"].as_object_mut().unwrap();
    if fault == Fault::RelyingParty {
        spec.insert("kind".to_owned(), json!("Audience"));
        spec.remove("address");
        spec.remove("certSecretRef");
    }
    if fault == Fault::ProbeOff {
        spec.insert("probe".to_owned(), json!("Off"));
    }
    if fault == Fault::Suspended {
        spec.insert("suspend".to_owned(), json!(true));
    }
    if fault != Fault::NoStatus {
        object["status"] = json!(target_status(fault));
    }
    object
}

/// The target's side of `known_answers` of the controller.
fn target_status(fault: Fault) -> TargetClusterStatus {
    let ready = match fault {
        Fault::AuthorityMissing => Finding::failed(
            Reason::CertificateAuthorityInvalid,
            "the Secret of certSecretRef does not exist in Keyferry's namespace; create it",
        ),
        Fault::Suspended => Finding::failed(
            Reason::TargetSuspended,
            "nothing is minted while spec.suspend is true",
        ),
        _ => Finding::ok("declared: its spec and CA certificates are valid"),
    };
    let (silence, address_refused) = match fault {
        Fault::Silent(cause, _) => (Some(cause), false),
        Fault::AddressRefused => (None, true),
        _ => (None, false),
    };
    let mut counts = ProbeCounts {
        total: 1,
        ..ProbeCounts::default()
    };
    match fault {
        Fault::Silent(..) | Fault::AddressRefused => counts.unanswered = 1,
        Fault::Refused => counts.refused = 1,
        fault if is_asked(fault) => counts.accepted = 1,
        _ => {}
    }
    let reachable = match fault {
        Fault::Silent(_, text) => Finding::failed(Reason::ProbeUnanswered, text),
        Fault::AddressRefused => Finding::failed(
            Reason::TargetAddressRefused,
            "nothing was sent to the target, because it or its proxy has a link-local address",
        ),
        _ => Finding::ok("the target answers tokens of its accesses"),
    };
    let detail = "of 1 accesses, the target accepts some";
    let authenticates = match (counts.refused, counts.unanswered) {
        (1, _) => Finding::failed(Reason::ProbeRefused, detail),
        (_, 1) => Finding::unknown(Reason::ProbeUnanswered, detail),
        _ => Finding::ok(detail),
    };
    let unrestricted = Finding::problem(Reason::TargetUnrestricted, "it accepted the canary");
    let stalled = Finding::problem(ready.reason, ready.message.clone());
    let mut findings = vec![("Ready", &ready)];
    let is_cluster = ![Fault::RelyingParty, Fault::ProbeOff].contains(&fault);
    if ready.is_true() && is_cluster {
        findings.push(("TargetReachable", &reachable));
        if counts.accepted + counts.refused + counts.unanswered > 0 {
            findings.push(("TargetAuthenticates", &authenticates));
        }
    }
    if !ready.is_true() {
        findings.push(("Stalled", &stalled));
    }
    if fault == Fault::Unrestricted {
        findings.push(("TargetUnrestricted", &unrestricted));
    }
    let answers = TargetAnswers {
        accesses: is_cluster.then_some(counts),
        silence,
        address_refused,
    };
    TargetClusterStatus {
        observed_generation: Some(1),
        summary: Some(summarize_target(&ready, &findings, &answers)),
        conditions: conditions(&json!({}), 1, now(), &findings),
        accesses: (ready.is_true() && is_cluster).then_some(counts),
        last_probe_time: is_asked(fault).then(|| format_seconds(asked_at(fault))),
        issuer: Some("https://hub.test".to_owned()),
        username_prefix: Some("hub:".to_owned()),
        cluster_resource_namespace: Some("keyferry-system".to_owned()),
        ..TargetClusterStatus::default()
    }
}

fn access(name: &str, target: &str, fault: Fault) -> Value {
    let mut object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": metadata(name, Some("tenant-a"), 1),
        "spec": {
            "targetClusterRef": { "name": target }, "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "kubeconfig", "type": "KubeConfigSecret" }],
        },
    });
    if fault != Fault::NoStatus {
        object["status"] = access_status(name, fault);
    }
    object
}

fn access_status(name: &str, fault: Fault) -> Value {
    let ok = |text: &str| Finding::ok(text);
    let authorized = match fault {
        Fault::NoRule | Fault::NoServiceAccount => Finding::failed(
            Reason::TargetNotGranted,
            "no TargetCluster grants this to the access and its ServiceAccount: kubeconfig",
        ),
        Fault::Suspended => Finding::failed(Reason::TargetSuspended, "the target is suspended"),
        Fault::AuthorityMissing => Finding::failed(
            Reason::CertificateAuthorityInvalid,
            "the target's CA certificates are missing",
        ),
        _ => ok("policy grants every delivery"),
    };
    let (reachable, authenticates) = match fault {
        Fault::Silent(_, text) => (
            Finding::failed(Reason::ProbeUnanswered, text),
            Finding::unknown(Reason::ProbeUnanswered, text),
        ),
        Fault::AddressRefused => (
            Finding::failed(
                Reason::TargetAddressRefused,
                "nothing was sent to the target",
            ),
            Finding::unknown(
                Reason::TargetAddressRefused,
                "nothing was sent to the target",
            ),
        ),
        Fault::Refused => (
            ok("the target answers"),
            Finding::failed(
                Reason::ProbeRefused,
                "the target answered 401 to a token of this access",
            ),
        ),
        _ => (
            ok("the target answers"),
            ok("the target accepted a token of this access"),
        ),
    };
    let is_asked = is_asked(fault);
    let ends = match fault {
        Fault::TokenEnded => now() - minutes(30),
        _ => now() + minutes(134),
    };
    let authority = match fault {
        Fault::AuthorityEnds => now() + minutes(9 * 24 * 60),
        _ => now() + minutes(400 * 24 * 60),
    };
    let is_written = authorized.is_true();
    let silence = match fault {
        Fault::Silent(cause, _) => Some(cause),
        _ => None,
    };
    let is_accepted = is_asked && authenticates.status == Truth::True;
    let report = AccessReport {
        authorized,
        delivered: ok("every object is as rendered"),
        reachable: is_asked.then_some(reachable),
        authenticates: is_asked.then_some(authenticates),
        silence,
        probed_at: is_asked.then(|| asked_at(fault)),
        identity: is_accepted.then(|| TargetIdentity {
            username: "hub:system:serviceaccount:tenant-a:reconciler".to_owned(),
            uid: String::new(),
            groups: Vec::new(),
        }),
        passes: false,
        deliveries: Vec::new(),
        left_over: Vec::from_iter(is_written.then(|| DeliveryStatus {
            name: "kubeconfig".to_owned(),
            delivery_type: "KubeConfigSecret".to_owned(),
            object: Some(format!("{name}-kubeconfig")),
            reason: "Delivered".to_owned(),
            message: None,
            expires_at: Some(format_seconds(ends)),
            renew_at: Some(format_seconds(ends - minutes(60))),
            token_id: Some("id".to_owned()),
            key_id: Some("hub-key".to_owned()),
        })),
        exposure_until: is_written.then_some(ends),
        handled: None,
    };
    let pem = authority_pem("target", now() - minutes(60), authority);
    let cluster = ClusterStatus {
        certificate_authority_data: Some(base64_of(&pem)),
        server: Some(format!("https://{name}.test:6443")),
        ..ClusterStatus::default()
    };
    json!(report.status(&json!({}), 1, now(), Some(cluster)))
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn faulty_snapshot() -> Snapshot {
    let source = Source::Folder {
        path: "snapshot".into(),
    };
    let mut snapshot = Snapshot::new(source, now());
    let mut objects = Vec::new();
    for (name, fault) in FAULTS {
        objects.push(target(name, fault));
        objects.push(access(name, name, fault));
    }
    // Its target does not exist, which its own status does not say.
    objects.push(access("missing-target", "ghost", Fault::NoRule));
    for object in &objects {
        snapshot.add_object(&ReducedObject::of(object));
    }
    sources::note_missing_files(&mut snapshot);
    snapshot
}

fn health_of(fleet: &Fleet, name: &str) -> Health {
    let target = fleet.targets.iter().find(|it| it.name.as_str() == name);
    target.unwrap().health
}

#[test]
fn each_of_the_faults_is_named_in_one_screen() {
    let fleet = judge(&faulty_snapshot(), now());
    insta::assert_snapshot!("a-fleet-with-faults", table::render(&fleet));
    assert_eq!(fleet.verdict(), Verdict::Broken);
    for (name, health) in [
        ("closed-port", Health::Broken),
        ("wrong-audience", Health::Broken),
        ("missing-rule", Health::Broken),
        ("missing-account", Health::Broken),
        ("ghost", Health::Broken),
        ("ca-missing", Health::Broken),
        ("token-ended", Health::Broken),
        ("ca-ends", Health::Attention),
        ("unrestricted", Health::Attention),
        ("suspended", Health::Attention),
        ("no-status", Health::Unknown),
        ("stale-status", Health::Unknown),
        ("old-answer", Health::Unknown),
        ("vault", Health::Unknown),
        ("probe-off", Health::Unknown),
        ("healthy", Health::Ready),
    ] {
        assert_eq!(health_of(&fleet, name), health, "{name}");
    }
}

#[test]
fn a_tenant_sees_what_its_accesses_say() {
    let mut snapshot = faulty_snapshot();
    snapshot.keep_namespace(&sources::namespace("tenant-a").unwrap());
    let fleet = judge(&snapshot, now());
    insta::assert_snapshot!("a-tenant-of-a-fleet-with-faults", table::render(&fleet));
    // Whether a target exists, a tenant does not learn.
    let text = serde_json::to_string(&fleet).unwrap();
    assert!(!text.contains("there is no such TargetCluster"));
    assert!(!text.contains("no rule of"));
}

#[test]
fn a_healthy_fleet_is_not_called_broken_later_on() {
    let source = Source::Generated { seed: 1 };
    let mut snapshot = Snapshot::new(source, now());
    for object in [
        target("healthy", Fault::None),
        access("healthy", "healthy", Fault::None),
    ] {
        snapshot.add_object(&ReducedObject::of(&object));
    }
    assert_eq!(judge(&snapshot, now()).verdict(), Verdict::Working);
    // The token has ended since the reading, and was renewed or not.
    let later = judge(&snapshot, now() + minutes(300));
    assert_eq!(later.verdict(), Verdict::Undetermined);
    assert_eq!(health_of(&later, "healthy"), Health::Ready);
    assert_eq!(later.runway, None);
}

#[test]
fn facts_without_a_target_say_why() {
    let source = Source::Hub {
        server: "https://hub.test".into(),
    };
    let mut snapshot = Snapshot::new(source, now());
    let empty = table::render(&judge(&snapshot, now()));
    let refused = keyferry_fleet::gap::Gap::of_targets(
        keyferry_fleet::gap::GapCause::Refused,
        "the hub refused you: User \"jane\" cannot list\nfix: run rm",
    );
    snapshot.gaps.push(refused);
    let fleet = judge(&snapshot, now());
    assert_eq!(fleet.verdict(), Verdict::Undetermined);
    let shown = format!("{empty}\n\n===\n\n{}", table::render(&fleet));
    insta::assert_snapshot!("a-fleet-without-targets", shown);
}
