#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod roles;

use serde_json::{Value, json};

use super::{MAX_ACCESSES, StoredAccess, StoredObjects, StoredTarget};
use crate::config::{self, DeliveryType, ServerConfiguration};
use crate::name::{Namespace, ObjectName};
use crate::reason::Reason;

fn server() -> ServerConfiguration {
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: CustomResources\nhubName: hub\n\
                publicURL: https://keyferry.example.com\ndiscovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";
    config::read(text).unwrap().server
}

fn target(name: &str, created: &str, audience: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "7", "creationTimestamp": created,
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": { "address": "https://prod.example.com", "audience": audience, "issuer": "Hub" },
        "status": { "observedGeneration": 1 },
    })
}

fn access(deliveries: Value) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": {
            "name": "prod", "namespace": "tenant-a", "uid": "u", "generation": 3, "resourceVersion": "8",
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["keyferry.dev/drain"],
        },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler", "deliveries": deliveries },
    })
}

fn objects(targets: &[Value]) -> StoredObjects {
    let mut objects = StoredObjects::default();
    for target in targets {
        let (name, target) = StoredTarget::read(target, &server()).unwrap();
        objects.targets.insert(name, target);
    }
    objects
}

fn named(name: &str) -> ObjectName {
    ObjectName::new(name).unwrap()
}

fn own() -> Namespace {
    Namespace::new("keyferry-system").unwrap()
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T00:00:01Z";

#[test]
fn the_oldest_keeps_an_audience_and_the_other_is_not_promoted() {
    let mut objects = objects(&[
        target("new", LATE, "x"),
        target("old", EARLY, "x"),
        target("other", LATE, "y"),
    ]);
    let first = objects.assemble(&own());
    assert!(
        first.policy.targets.contains_key(&named("old"))
            && first.policy.targets.contains_key(&named("other"))
    );
    assert_eq!(
        first.targets[&named("new")].reason,
        Reason::AudienceConflict
    );
    objects.targets.remove(&named("old"));
    let second = objects.assemble(&own());
    assert_eq!(
        second.targets[&named("new")].reason,
        Reason::AudienceConflict,
        "it is not promoted"
    );
    let mut changed = target("new", LATE, "x");
    changed["metadata"]["generation"] = json!(2);
    let (name, stored) = StoredTarget::read(&changed, &server()).unwrap();
    assert_eq!(
        second.targets[&name].generation,
        objects.targets[&name].record.spec()
    );
    assert_ne!(
        second.targets[&name].generation,
        stored.record.spec(),
        "what was found of one spec is no word on the next"
    );
    objects.targets.insert(name, stored);
    assert!(
        objects
            .assemble(&own())
            .policy
            .targets
            .contains_key(&named("new")),
        "a changed spec takes the free audience"
    );
}

#[test]
fn a_conflict_outlives_the_process_by_status() {
    let mut lost = target("new", LATE, "x");
    lost["status"]["conditions"] =
        json!([{ "type": "AudienceConflict", "status": "True", "observedGeneration": 1 }]);
    assert_eq!(
        objects(&[lost.clone()]).assemble(&own()).targets[&named("new")].reason,
        Reason::AudienceConflict
    );
    lost["metadata"]["generation"] = json!(2);
    assert!(objects(&[lost]).assemble(&own()).targets.is_empty());
}

#[test]
fn same_second_is_decided_by_uid_and_a_broken_object_keeps_its_audience() {
    let mut objects = objects(&[target("b", EARLY, "x"), target("a", EARLY, "x")]);
    assert!(
        objects
            .assemble(&own())
            .policy
            .targets
            .contains_key(&named("a"))
    );
    let mut broken = target("a", EARLY, "x");
    broken["spec"]["address"] = json!("http://prod.example.com");
    let (name, stored) = StoredTarget::read(&broken, &server()).unwrap();
    objects.targets.insert(name, stored);
    let assembled = objects.assemble(&own());
    assert_eq!(assembled.targets[&named("a")].reason, Reason::SpecInvalid);
    assert!(
        assembled.targets[&named("a")]
            .message
            .contains("spec.address"),
        "{assembled:?}"
    );
    assert!(
        assembled.policy.targets.is_empty(),
        "nobody slips into the place of a target that is being edited"
    );
}

#[test]
fn a_deleted_target_is_gone_at_once() {
    let mut going = target("a", EARLY, "x");
    going["metadata"]["deletionTimestamp"] = json!(LATE);
    let assembled = objects(&[going]).assemble(&own());
    assert!(assembled.policy.targets.is_empty() && assembled.targets.is_empty());
}

#[test]
fn a_deleted_target_drains_by_its_finalizer_and_for_a_day_at_most() {
    let mut going = target("a", EARLY, "x");
    going["metadata"]["deletionTimestamp"] = json!(LATE);
    assert_eq!(
        objects(&[going.clone()]).draining(&named("a")),
        None,
        "without the finalizer it is not kept"
    );
    going["metadata"]["finalizers"] = json!(["theirs.example/x", crate::config::FINALIZER]);
    let mut stored = objects(&[going.clone()]);
    let draining = stored.draining(&named("a")).unwrap();
    assert_eq!(
        (
            draining.target.audience.as_str(),
            draining.since.to_string().as_str()
        ),
        ("x", LATE)
    );
    assert_eq!(draining.ends().to_string(), "2026-01-02T00:00:01Z");
    assert!(
        stored.assemble(&own()).policy.targets.is_empty(),
        "and nothing is minted for it"
    );
    going["spec"]["deletionPolicy"] = json!("Immediate");
    assert_eq!(objects(&[going.clone()]).draining(&named("a")), None);
    going["spec"]["deletionPolicy"] = json!("Drain");
    going["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("deletionTimestamp");
    assert_eq!(
        objects(&[going]).draining(&named("a")),
        None,
        "it is not deleted"
    );
}

/// Others' metadata must not be kept: 40 accesses with 3,600 finalizers each once raised the memory
/// of a process by 56 MiB for good.
#[test]
fn what_others_write_into_metadata_takes_no_room() {
    let plain = StoredAccess::read(&access(json!([]))).unwrap().1;
    let mut stuffed = access(json!([]));
    let many: Vec<String> = (0..3600)
        .map(|number| format!("theirs.example/finalizer-{number}"))
        .collect();
    stuffed["metadata"]["finalizers"] = json!(
        many.iter()
            .cloned()
            .chain([crate::config::FINALIZER.to_owned()])
            .collect::<Vec<_>>()
    );
    stuffed["metadata"]["labels"] = json!({ "a": "x".repeat(60_000) });
    stuffed["metadata"]["annotations"] =
        json!({ "b": "x".repeat(60_000), "keyferry.dev/requestedAt": "x".repeat(60_000) });
    stuffed["metadata"]["managedFields"] = json!([{ "manager": "x".repeat(60_000) }]);
    stuffed["metadata"]["ownerReferences"] = json!(
        many.iter()
            .map(|name| json!({ "name": name }))
            .collect::<Vec<_>>()
    );
    let read = StoredAccess::read(&stuffed).unwrap().1;
    let sizes = [&plain, &read].map(|stored| format!("{stored:?}").len());
    assert!(sizes[1] < sizes[0] + 256, "{sizes:?}");
    assert!(read.record.finalizers.ours && read.record.finalizers.others != 0);
}

#[test]
fn a_change_of_others_finalizers_is_seen_though_none_is_kept() {
    let of = |finalizers: Value| {
        let mut object = access(json!([]));
        object["metadata"]["finalizers"] = finalizers;
        StoredAccess::read(&object).unwrap().1.record.finalizers
    };
    let (none, ours) = (of(json!([])), of(json!([crate::config::FINALIZER])));
    assert_eq!(
        (none.ours, none.others, ours.ours, ours.others),
        (false, 0, true, 0)
    );
    let first = of(json!(["a", crate::config::FINALIZER]));
    assert!(first.ours && first.others != 0);
    assert_eq!(
        first.others,
        of(json!([crate::config::FINALIZER, "a"])).others,
        "ours changes nothing about the others"
    );
    assert_ne!(first.others, of(json!(["a", "b"])).others);
    assert_ne!(of(json!(["a", "b"])).others, of(json!(["b", "a"])).others);
}

#[test]
fn a_foreign_finalizer_holds_no_audience() {
    let mut going = target("a", EARLY, "x");
    going["metadata"]["finalizers"] = json!(["example.com/stays"]);
    assert_eq!(
        objects(&[going.clone()]).audiences(),
        ["x".to_owned()].into()
    );
    going["metadata"]["deletionTimestamp"] = json!(LATE);
    assert!(objects(&[going.clone()]).audiences().is_empty());
    let mut drains = going.clone();
    drains["metadata"]["finalizers"] = json!(["example.com/stays", crate::config::FINALIZER]);
    assert_eq!(
        objects(&[drains]).audiences(),
        ["x".to_owned()].into(),
        "Keyferry's own ends within a day"
    );
    assert_eq!(
        objects(&[going, target("b", LATE, "x")]).audiences(),
        ["x".to_owned()].into(),
        "another target has it"
    );
}

#[test]
fn what_changes_no_policy_is_no_news() {
    let record = |change: &dyn Fn(&mut Value)| {
        let mut object = access(json!([]));
        change(&mut object);
        StoredAccess::read(&object).unwrap().1.record
    };
    let before = record(&|_| {});
    let asked = record(&|object| {
        object["metadata"]["annotations"] =
            json!({ "keyferry.dev/requestedAt": "x".repeat(10_000) })
    });
    assert!(
        asked.means_the_same_as(&before),
        "a tenant can set it as often as it likes"
    );
    assert!(asked.requested_at.unwrap().len() <= 128);
    assert!(
        record(&|object| object["metadata"]["finalizers"] = json!([])).means_the_same_as(&before)
    );
    for (field, value) in [
        ("generation", json!(4)),
        ("uid", json!("v")),
        ("deletionTimestamp", json!(LATE)),
    ] {
        assert!(
            !record(&|object| object["metadata"][field] = value.clone()).means_the_same_as(&before),
            "{field}"
        );
    }
}

#[test]
fn audiences_of_keyferry_itself_are_no_targets() {
    for audience in ["keyferry.dev", crate::managed_issuer::INERT_AUDIENCE] {
        assert_eq!(
            objects(&[target("a", EARLY, audience)])
                .assemble(&own())
                .targets[&named("a")]
                .reason,
            Reason::SpecInvalid
        );
    }
    let mut managed_issuer = target("a", EARLY, "x");
    managed_issuer["spec"]["issuer"] = json!("Keyferry");
    let assembled = objects(&[managed_issuer]).assemble(&own());
    assert!(
        assembled.targets[&named("a")]
            .message
            .contains("not enabled"),
        "{assembled:?}"
    );
}

#[test]
fn deliveries_name_their_objects() {
    let deliveries = json!([
        { "name": "flux", "type": "FluxConfigMap" },
        { "name": "secret", "type": "KubeConfigSecret", "tokenLifetime": "6h" },
        { "name": "argo", "type": "ArgoCDSecret", "argoCD": { "project": "apps" } },
        { "name": "profile", "type": "ClusterProfile" },
        { "name": "http", "type": "HTTP" },
    ]);
    let (_, stored) = StoredAccess::read(&access(deliveries)).unwrap();
    let access = stored.read.unwrap();
    let object = |name: &str| {
        access
            .deliveries
            .iter()
            .find(|delivery| delivery.name.as_str() == name)
            .unwrap()
            .object_name
            .clone()
    };
    assert_eq!(object("flux"), Some(named("prod")));
    assert_eq!(object("secret"), Some(named("prod-kubeconfig")));
    assert_eq!(object("argo"), Some(named("cluster-prod")));
    assert_eq!(object("profile"), Some(named("prod")));
    assert_eq!(object("http"), None);
    assert_eq!(access.uid.unwrap().as_str(), "u");
    assert!(
        !access.deliveries[2].holds_token(),
        "the exec form is the default"
    );
    assert!(
        access.deliveries[1].holds_token()
            && access.deliveries[1].delivery_type == DeliveryType::KubeConfigSecret
    );
}

fn of_secret(secret: Value) -> Value {
    json!([{ "name": "a", "type": "KubeConfigSecret", "secret": secret }])
}

fn numbered_labels(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("label-{number}"), json!("x")));
    Value::Object(labels.collect())
}

#[test]
fn mistakes_of_deliveries_are_named() {
    for (deliveries, place) in [
        (
            json!([{ "name": "a", "type": "KubeConfigSecret" }, { "name": "b", "type": "ClusterAPISecret" }]),
            "deliveries[1].objectName",
        ),
        (
            json!([{ "name": "a", "type": "FluxConfigMap", "tokenLifetime": "1h" }]),
            "deliveries[0].tokenLifetime",
        ),
        (
            json!([{ "name": "a", "type": "ArgoCDSecret" }]),
            "deliveries[0].argoCD.project",
        ),
        (
            json!([{ "name": "a", "type": "ArgoCDSecret", "argoCD": { "project": "" } }]),
            "deliveries[0].argoCD.project",
        ),
        (
            json!([{ "name": "a", "type": "ClusterAPISecret", "objectName": "x" }]),
            "deliveries[0].objectName",
        ),
        (
            json!([{ "name": "a", "type": "HTTP", "objectName": "x" }]),
            "deliveries[0].objectName",
        ),
        (
            json!([{ "name": "a", "type": "KubeConfigSecret", "tokenLifetime": "5m" }]),
            "deliveries[0].tokenLifetime",
        ),
        (
            json!([{ "name": "a", "type": "KubeConfigSecret", "namespace": "other" }]),
            "deliveries[0].namespace",
        ),
        (
            json!([{ "name": "a", "type": "ClusterAPISecret", "secret": { "key": "x" } }]),
            "deliveries[0].secret",
        ),
        (of_secret(json!({ "key": ".." })), "secret.key"),
        (
            of_secret(json!({ "type": "kubernetes.io/service-account-token" })),
            "secret.type",
        ),
        (
            of_secret(json!({ "type": "bootstrap.kubernetes.io/token" })),
            "secret.type",
        ),
        (
            of_secret(json!({ "type": "cluster.x-k8s.io/secret" })),
            "secret.type",
        ),
        (of_secret(json!({ "type": "a b" })), "secret.type"),
        (
            of_secret(json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" } })),
            "secret.labels[app.kubernetes.io/managed-by]",
        ),
        (
            of_secret(json!({ "labels": { "argocd.argoproj.io/secret-type": "cluster" } })),
            "secret.labels[argocd.argoproj.io/secret-type]",
        ),
        (
            of_secret(json!({ "labels": { "team": "a b" } })),
            "secret.labels[team]",
        ),
        (
            of_secret(
                json!({ "annotations": { "keyferry.dev/expires-at": "2099-01-01T00:00:00Z" } }),
            ),
            "secret.annotations[keyferry.dev/expires-at]",
        ),
        (
            of_secret(json!({ "annotations": { "team": "x".repeat(1025) } })),
            "secret.annotations[team]",
        ),
        (
            of_secret(json!({ "labels": numbered_labels(17) })),
            "secret.labels",
        ),
    ] {
        let (_, stored) = StoredAccess::read(&access(deliveries)).unwrap();
        let mistakes = stored.read.unwrap_err();
        assert!(
            mistakes.iter().any(|mistake| mistake.path.ends_with(place)),
            "{place}: {mistakes:?}"
        );
    }
}

#[test]
fn the_oldest_accesses_of_a_namespace_to_a_target_count_and_no_more() {
    let mut objects = StoredObjects::default();
    let mut add = |namespace: &str, name: &str, created: &str, target: &str| {
        let mut object = access(json!([]));
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["creationTimestamp"] = json!(created);
        object["spec"]["targetClusterRef"]["name"] = json!(target);
        let (name, stored) = StoredAccess::read(&object).unwrap();
        objects.accesses.insert(name, stored);
    };
    for index in 0..MAX_ACCESSES + 2 {
        add("tenant-a", &format!("crowd-{index:04}"), LATE, "prod");
    }
    // The oldest counts, although its name is the last.
    add("tenant-a", "zz", EARLY, "prod");
    add("tenant-a", "other", LATE, "staging");
    add("tenant-b", "apps", LATE, "prod");
    let assembled = objects.assemble(&own());
    let surplus: Vec<String> = assembled.accesses.keys().map(ToString::to_string).collect();
    assert_eq!(
        surplus,
        [255, 256, 257].map(|index| format!("tenant-a/crowd-{index:04}"))
    );
    let faults = assembled.accesses.values();
    assert!(
        faults
            .into_iter()
            .all(|fault| fault.reason == Reason::TooManyAccesses)
    );
    let counted = |name: &str| {
        let name = crate::name::AccessName::parse(name).unwrap();
        assembled.policy.accesses.contains_key(&name)
    };
    for name in [
        "tenant-a/zz",
        "tenant-a/crowd-0254",
        "tenant-a/other",
        "tenant-b/apps",
    ] {
        assert!(counted(name), "{name}");
    }
}
