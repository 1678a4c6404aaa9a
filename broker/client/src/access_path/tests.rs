#![allow(clippy::unwrap_used)]

use insta::assert_snapshot;
use keyferry_api::config::DeliveryType;
use keyferry_core::delivery::ObjectKind;
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

use super::flux_consumers::FluxConsumer;
use super::observed::Observed;
use super::read_hub::{
    AccessReading, DeliveredObject, NamedObjects, ObservedAccess, observe_access, observe_target,
};
use super::steps::root_step;
use super::*;
use crate::doctor::flux::FluxKind;
use crate::stated_condition::StatedCondition;

const NOW: &str = "2026-09-21T14:00:00Z";

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "uid": "u", "generation": 2, "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

/// An access whose every step holds.
fn access() -> Value {
    let mut metadata = metadata("prod");
    metadata["namespace"] = json!("tenant-a");
    let ready =
        |kind: &str| json!({ "type": kind, "status": "True", "reason": "Ready", "message": "m" });
    let kinds = [
        "Ready",
        "Authorized",
        "Delivered",
        "TargetReachable",
        "TargetAuthenticates",
    ];
    let conditions: Vec<Value> = kinds.map(ready).into();
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata,
        "spec": {
            "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler",
            "deliveries": [
                { "name": "flux", "type": "FluxConfigMap", "objectName": "prod" },
                { "name": "secret", "type": "KubeConfigSecret", "objectName": "prod-kubeconfig" },
            ],
        },
        "status": {
            "observedGeneration": 2,
            "conditions": conditions,
            "cluster": { "server": "https://prod.example.com:6443", "audience": "https://prod" },
            "identity": { "username": "hub:system:serviceaccount:tenant-a:reconciler" },
            "lastProbeTime": "2026-09-21T13:58:00Z",
            "deliveries": [
                { "name": "flux", "type": "FluxConfigMap", "object": "prod", "reason": "Delivered" },
                { "name": "secret", "type": "KubeConfigSecret", "object": "prod-kubeconfig",
                  "reason": "Delivered", "expiresAt": "2026-09-21T20:00:00Z" },
            ],
        },
    })
}

fn target() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata("prod"),
        "spec": {
            "address": "https://prod.example.com:6443", "audience": "https://prod",
            "allow": [
                { "namespaces": ["tenant-b"], "serviceAccounts": ["reconciler"] },
                { "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"],
                  "deliveries": ["FluxConfigMap", "KubeConfigSecret"] },
            ],
        },
        "status": { "observedGeneration": 2, "conditions": [
            { "type": "Ready", "status": "True", "reason": "Ready", "message": "m", "lastTransitionTime": NOW },
        ] },
    })
}

fn consumer(kind: FluxKind, name: &str, uses: (ObjectKind, &str), status: &str) -> FluxConsumer {
    FluxConsumer {
        kind,
        name: name.to_owned(),
        uses: (uses.0, uses.1.to_owned()),
        suspended: false,
        ready: Some(StatedCondition {
            kind: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "ReconciliationFailed".to_owned(),
            message: "the text of Flux".to_owned(),
            last_transition_time: String::new(),
        }),
    }
}

fn delivered(delivery_type: DeliveryType, name: &str) -> DeliveredObject {
    DeliveredObject {
        delivery_type,
        kind: ObjectKind::of(delivery_type).unwrap(),
        name: keyferry_api::name::ObjectName::new(name).unwrap(),
        live: Observed::Known(()),
    }
}

fn observed(access: &Value) -> Observed<ObservedAccess> {
    Observed::Known(observe_access(access).unwrap())
}

/// A reading in which every step holds.
fn reading() -> AccessReading {
    let map = (ObjectKind::ConfigMap, "prod");
    AccessReading {
        access: observed(&access()),
        named: Some(NamedObjects {
            service_account: Observed::Known(()),
            target: Observed::Known(observe_target(&target())),
            delivered: vec![
                delivered(DeliveryType::FluxConfigMap, "prod"),
                delivered(DeliveryType::KubeConfigSecret, "prod-kubeconfig"),
            ],
            flux: vec![
                (
                    FluxKind::Kustomization,
                    Observed::Known(vec![consumer(FluxKind::Kustomization, "apps", map, "True")]),
                ),
                (
                    FluxKind::HelmRelease,
                    Observed::Known(vec![consumer(
                        FluxKind::HelmRelease,
                        "db",
                        (ObjectKind::Secret, "prod-kubeconfig"),
                        "True",
                    )]),
                ),
            ],
        }),
    }
}

fn judged(reading: &AccessReading) -> AccessPath {
    let name = AccessName::parse("tenant-a/prod").unwrap();
    let now = NOW.parse().unwrap();
    AccessPath::with_root(&name, now, root_step(&name, reading, now))
}

/// The steps with their states, one a line.
fn lines(path: &AccessPath) -> String {
    fn push(step: &PathStep, depth: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        let fix = step
            .fix
            .as_deref()
            .map_or_else(String::new, |fix| format!(" [fix: {fix}]"));
        lines.push(format!(
            "{indent}{:?} {} {}: {}{fix}",
            step.state, step.kind, step.name, step.detail
        ));
        step.below
            .iter()
            .for_each(|step| push(step, depth + 1, lines));
    }
    let mut lines = vec![format!("{:?}", path.verdict)];
    push(&path.root, 0, &mut lines);
    lines.join("\n")
}

type Change = fn(&mut AccessReading);

fn named(reading: &mut AccessReading) -> &mut NamedObjects {
    reading.named.as_mut().unwrap()
}

fn set_condition(reading: &mut AccessReading, kind: &str, status: &str) {
    let Observed::Known(ObservedAccess {
        status: Some(state),
        ..
    }) = &mut reading.access
    else {
        panic!("there is a status");
    };
    let condition = state
        .conditions
        .iter_mut()
        .find(|condition| condition.kind == kind);
    let condition = condition.unwrap();
    condition.status = status.to_owned();
    condition.reason = "TokenRefused".to_owned();
    condition.message = "it\nsays\u{202e} no".to_owned();
}

#[test]
fn a_path_whose_every_step_holds_is_well() {
    let path = judged(&reading());
    assert_eq!(path.verdict, PathVerdict::Well);
    assert_snapshot!("every-step-holds", lines(&path));
}

#[test]
fn each_fault_breaks_its_own_step() {
    let cases: [(&str, Change); 14] = [
        ("no-access", |reading| reading.access = Observed::Absent),
        ("suspended", |reading| {
            let mut access = access();
            access["spec"]["suspend"] = json!(true);
            reading.access = observed(&access);
        }),
        ("deleting", |reading| {
            let mut access = access();
            access["metadata"]["deletionTimestamp"] = json!(NOW);
            reading.access = observed(&access);
        }),
        ("a-mistake-in-the-spec", |reading| {
            let mut access = access();
            access["spec"]["serviceAccountName"] = json!("No Name");
            reading.access = observed(&access);
            reading.named = None;
        }),
        ("not-authorised", |reading| {
            set_condition(reading, "Authorized", "False")
        }),
        ("silent-target", |reading| {
            set_condition(reading, "TargetReachable", "False")
        }),
        ("refused-token", |reading| {
            set_condition(reading, "TargetAuthenticates", "False")
        }),
        ("no-account", |reading| {
            named(reading).service_account = Observed::Absent
        }),
        ("no-target", |reading| {
            named(reading).target = Observed::Absent
        }),
        ("no-rule", |reading| {
            let mut target = target();
            target["spec"]["allow"] = json!([]);
            named(reading).target = Observed::Known(observe_target(&target));
        }),
        ("suspended-target", |reading| {
            let mut target = target();
            target["spec"]["suspend"] = json!(true);
            named(reading).target = Observed::Known(observe_target(&target));
        }),
        ("no-delivered-object", |reading| {
            named(reading).delivered[0].live = Observed::Absent
        }),
        ("expired-token", |reading| {
            let mut access = access();
            access["status"]["deliveries"][1]["expiresAt"] = json!("2026-09-21T13:00:00Z");
            reading.access = observed(&access);
        }),
        ("failed-flux", |reading| {
            let map = (ObjectKind::ConfigMap, "prod");
            let failed = consumer(FluxKind::Kustomization, "apps", map, "False");
            named(reading).flux[0].1 = Observed::Known(vec![failed]);
        }),
    ];
    for (case, change) in cases {
        let mut reading = reading();
        change(&mut reading);
        let path = judged(&reading);
        assert_eq!(path.verdict, PathVerdict::Broken, "{case}");
        assert_snapshot!(format!("broken-by-{case}"), lines(&path));
    }
}

/// The rights of a tenant, and each list taken away in turn: what was well never becomes broken.
#[test]
fn what_may_not_be_read_is_unknown_and_never_broken() {
    fn refused<T>() -> Observed<T> {
        Observed::Unreadable {
            right: "get secrets in tenant-a".to_owned(),
        }
    }
    fn failed<T>() -> Observed<T> {
        Observed::of(Err(HubError::Unreachable("no\nroute".to_owned())), "")
    }
    let cases: [(&str, Change); 11] = [
        ("access", |reading| {
            (reading.access, reading.named) = (refused(), None)
        }),
        ("hub", |reading| {
            (reading.access, reading.named) = (failed(), None)
        }),
        ("service-account", |reading| {
            named(reading).service_account = refused()
        }),
        ("target", |reading| named(reading).target = refused()),
        ("target-of-a-failing-hub", |reading| {
            named(reading).target = failed()
        }),
        ("delivered-object", |reading| {
            named(reading).delivered[1].live = refused()
        }),
        ("flux", |reading| named(reading).flux[0].1 = refused()),
        ("stale-status", |reading| {
            let mut access = access();
            access["status"]["observedGeneration"] = json!(1);
            reading.access = observed(&access);
        }),
        ("no-status", |reading| {
            let mut access = access();
            access["status"] = json!(7);
            reading.access = observed(&access);
        }),
        ("unanswered", |reading| {
            set_condition(reading, "TargetAuthenticates", "Unknown")
        }),
        ("flux-without-ready", |reading| {
            let map = (ObjectKind::ConfigMap, "prod");
            let mut young = consumer(FluxKind::Kustomization, "apps", map, "True");
            young.ready = None;
            named(reading).flux[0].1 = Observed::Known(vec![young]);
        }),
    ];
    for (case, change) in cases {
        let mut reading = reading();
        change(&mut reading);
        let path = judged(&reading);
        assert_eq!(path.verdict, PathVerdict::Undetermined, "{case}");
        assert_snapshot!(format!("unknown-{case}"), lines(&path));
    }
}

#[test]
fn a_hub_without_flux_and_a_suspended_object_are_not_asked_about() {
    let mut reading = reading();
    named(&mut reading).flux[1].1 = Observed::Absent;
    let map = (ObjectKind::ConfigMap, "prod");
    let mut idle = consumer(FluxKind::Kustomization, "apps", map, "False");
    idle.suspended = true;
    named(&mut reading).flux[0].1 = Observed::Known(vec![idle]);
    let path = judged(&reading);
    assert_eq!(path.verdict, PathVerdict::Well);
    assert_snapshot!("flux-that-is-not-asked", lines(&path));
}

#[test]
fn many_consumers_are_cut_and_the_worst_stay() {
    let mut reading = reading();
    let map = (ObjectKind::ConfigMap, "prod");
    let mut many: Vec<FluxConsumer> = (0..80)
        .map(|number| consumer(FluxKind::Kustomization, &format!("k{number}"), map, "True"))
        .collect();
    many.push(consumer(FluxKind::Kustomization, "last", map, "False"));
    named(&mut reading).flux[0].1 = Observed::Known(many);
    let path = judged(&reading);
    assert_eq!(path.verdict, PathVerdict::Broken);
    let steps = &path.root.below[0].below;
    assert_eq!(steps.len(), 51);
    assert_eq!(steps[0].name.to_string(), "last");
    assert_eq!(
        steps[50].detail.to_string(),
        "31 more objects of Flux use it"
    );
}
