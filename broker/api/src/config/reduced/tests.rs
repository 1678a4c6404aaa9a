#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::{MAX_ACCESS_SPEC_BYTES, MAX_KEPT_BYTES, ObjectSize, ReducedObject};
use crate::config::{self, StoredAccess, StoredObjects, StoredTarget};
use crate::name::Namespace;
use crate::reason::Reason;

fn reduced(written: &Value) -> ReducedObject {
    // As the hub's answers are parsed: from a stream, whose texts cannot be borrowed.
    serde_json::from_reader(written.to_string().as_bytes()).unwrap()
}

fn access() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": {
            "name": "apps", "namespace": "tenant-a", "uid": "u", "resourceVersion": "7",
            "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["keyferry.dev/drain"],
        },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
        "status": { "exposureUntil": "2026-01-02T00:00:00Z" },
    })
}

#[test]
fn what_nobody_reads_is_dropped_and_the_rest_means_the_same() {
    let (long, mut written) = ("x".repeat(100_000), access());
    let finalizers: Vec<String> = (0..1000).map(|index| format!("a/{index}")).collect();
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o" }]);
    for (field, value) in [
        ("labels", json!({ "a": "b" })),
        ("ownerReferences", owner),
        ("finalizers", json!(finalizers)),
        (
            "annotations",
            json!({ "last-applied": long, "keyferry.dev/requestedAt": "now" }),
        ),
        (
            "managedFields",
            json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }]),
        ),
    ] {
        written["metadata"][field] = value;
    }
    let object = reduced(&written);
    let text = format!("{object:?}");
    assert!(text.len() < 2500, "nothing long was stored: {text}");
    for dropped in [
        "managedFields",
        "labels",
        "ownerReferences",
        "last-applied",
        "a/1",
    ] {
        assert!(!text.contains(dropped), "{dropped} in {text}");
    }
    assert_eq!(object.version(), Some("7"));
    assert_eq!(object.full_name(), "tenant-a/apps");
    assert_eq!(
        StoredAccess::read_reduced(&object),
        StoredAccess::read(&written)
    );
    let (_, stored) = StoredAccess::read_reduced(&object).unwrap();
    assert!(stored.read.is_ok() && stored.record.deleting.is_some());
    assert!(!stored.record.finalizers.ours && stored.record.finalizers.others != 0);
    assert_eq!(stored.record.requested_at.as_deref(), Some("now"));
    assert_eq!(stored.record.status, written["status"]);
}

#[test]
fn what_is_not_there_is_not_made_up() {
    let nothing =
        json!({ "metadata": { "name": "apps", "annotations": null, "finalizers": null } });
    let value = reduced(&nothing).into_value();
    assert_eq!(value, json!({ "metadata": { "name": "apps" } }));
}

#[test]
fn every_kind_of_value_is_kept_as_written() {
    let values = json!({ "a": [null, true, -1, 1, 1.5, "x", { "audience": {} }, []] });
    let written = json!({ "metadata": {}, "spec": values, "status": { "b": values } });
    assert_eq!(reduced(&written).into_value(), written);
}

/// A spec of many short texts, which take far more memory than they have bytes.
fn many(count: usize) -> Value {
    json!({ "name": vec!["a"; count] })
}

#[test]
fn a_spec_that_is_too_large_is_not_kept_and_grants_nothing() {
    let mut written = access();
    for (field, size) in [
        ("spec", ObjectSize::SpecTooLarge),
        ("status", ObjectSize::StatusTooLarge),
    ] {
        let mut large = written.clone();
        large["metadata"]["deletionTimestamp"] = Value::Null;
        large[field]["targetClusterRef"] = many(MAX_KEPT_BYTES / 8);
        let object = reduced(&large);
        assert_eq!(object.size(), size);
        assert!(format!("{object:?}").len() < 2000, "{field}");
        let (name, stored) = StoredAccess::read_reduced(&object).unwrap();
        assert!(stored.read.is_err() && stored.record.finalizers.ours);
        let mut objects = StoredObjects::default();
        objects.accesses.insert(name.clone(), stored);
        let assembled = objects.assemble(&Namespace::new("keyferry-system").unwrap());
        assert_eq!(assembled.accesses[&name].reason, Reason::ObjectTooLarge);
        assert!(assembled.policy.accesses.is_empty());
    }
    written["spec"]["deliveries"] = json!([{ "name": "h", "type": "HTTP" }]);
    assert_eq!(reduced(&written).size(), ObjectSize::Kept);
}

/// A tenant may have hundreds of accesses, and a platform has few targets.
#[test]
fn a_spec_of_an_access_may_take_less_than_one_of_a_target() {
    let with_annotation = |characters: usize| {
        let callers: Vec<_> = (0..64).map(|index| format!("{index:c>253}")).collect();
        let deliveries: Vec<_> = (0..16)
            .map(|index| {
                json!({
                    "name": format!("mesh-{index}"), "type": "KubeConfigSecret", "objectName": format!("istio-remote-{index}"),
                    "secret": { "key": "kubeconfig", "labels": { "istio/multiCluster": "true" } },
                })
            })
            .collect();
        let mut object = access();
        object["spec"]["callers"] = json!(callers);
        object["spec"]["deliveries"] = json!(deliveries);
        object["spec"]["deliveries"][0]["secret"]["annotations"] =
            json!({ "networking.istio.io/cluster": "a".repeat(characters) });
        object
    };
    assert_eq!(reduced(&with_annotation(20)).size(), ObjectSize::Kept);
    let mut large = with_annotation(MAX_ACCESS_SPEC_BYTES);
    assert_eq!(reduced(&large).size(), ObjectSize::SpecTooLarge);
    assert_eq!(reduced(&large).into_value()["spec"], json!({}));
    large["metadata"]["namespace"] = Value::Null;
    assert_eq!(reduced(&large).size(), ObjectSize::Kept);
}

#[test]
fn a_target_that_is_too_large_keeps_its_audience() {
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n\
        objects: CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\n\
        discovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";
    let server = config::read(text).unwrap().server;
    let target = |name: &str, created: &str| {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": {
                "name": name, "uid": name, "generation": 1, "resourceVersion": "7",
                "creationTimestamp": created,
            },
            "spec": { "address": "https://prod.example.com", "audience": "x", "issuer": "Hub" },
        })
    };
    let mut objects = StoredObjects::default();
    let mut large = target("large", "2026-01-01T00:00:00Z");
    large["spec"]["allow"] = many(MAX_KEPT_BYTES / 8);
    for written in [large, target("later", "2026-01-02T00:00:00Z")] {
        let (name, stored) = StoredTarget::read_reduced(&reduced(&written), &server).unwrap();
        objects.targets.insert(name, stored);
    }
    assert_eq!(objects.audiences(), ["x".to_owned()].into());
    let assembled = objects.assemble(&Namespace::new("keyferry-system").unwrap());
    let reasons: Vec<_> = assembled
        .targets
        .values()
        .map(|fault| fault.reason)
        .collect();
    assert_eq!(
        reasons,
        [Reason::ObjectTooLarge, Reason::AudienceConflict],
        "it keeps its place before a younger one"
    );
    assert!(assembled.policy.targets.is_empty());
}
