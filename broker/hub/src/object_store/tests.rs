#![allow(clippy::unwrap_used)]

use keyferry_api::config;
use serde_json::{Value, json};

use super::*;

fn store() -> ObjectStore {
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keys.example.com\n\
                objects: CustomResources\n\
                discovery: {tls: {certFile: /tls.crt, keyFile: /tls.key}}\napi: {tls: {certFile: /tls.crt, keyFile: /tls.key}}\n";
    ObjectStore::new(config::read(text).unwrap().server)
}

fn access(version: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": {
            "name": "apps", "namespace": "tenant-a", "uid": "uid-of-the-access", "resourceVersion": version, "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
        "status": { "phase": phase },
    })
}

fn reduced(object: &Value) -> ReducedObject {
    ReducedObject::of(object)
}

fn phase(store: &ObjectStore) -> Option<String> {
    let stored = store.access(&AccessName::parse("tenant-a/apps").unwrap())?;
    stored.record.status["phase"].as_str().map(str::to_owned)
}

#[test]
fn what_was_written_is_known_before_the_watch_shows_it() {
    let store = store();
    store.store_object(Collection::TargetAccesses, &reduced(&access("5", "seen")));
    assert!(
        store
            .store_written(&reduced(&access("7", "written")))
            .is_some()
    );
    assert_eq!(phase(&store).as_deref(), Some("written"));
    store.store_object(
        Collection::TargetAccesses,
        &reduced(&access("6", "between")),
    );
    assert_eq!(
        phase(&store).as_deref(),
        Some("written"),
        "the watch is behind"
    );
    store.store_object(
        Collection::TargetAccesses,
        &reduced(&access("7", "written")),
    );
    store.store_object(
        Collection::TargetAccesses,
        &reduced(&access("6", "restored")),
    );
    assert_eq!(
        phase(&store).as_deref(),
        Some("restored"),
        "once it was shown, the watch alone counts"
    );
}

#[test]
fn an_answer_takes_nothing_back() {
    let store = store();
    store.store_object(Collection::TargetAccesses, &reduced(&access("9", "seen")));
    store.store_written(&reduced(&access("7", "late")));
    assert_eq!(
        phase(&store).as_deref(),
        Some("seen"),
        "the watch has shown a later version"
    );
    store.remove_object(Collection::TargetAccesses, &reduced(&access("10", "gone")));
    store.store_written(&reduced(&access("11", "late")));
    assert_eq!(phase(&store), None, "what is gone stays gone");
    let mut other = access("12", "another");
    other["metadata"]["uid"] = json!("uid-of-another");
    store.store_object(Collection::TargetAccesses, &reduced(&other));
    store.store_written(&reduced(&access("13", "late")));
    assert_eq!(
        phase(&store).as_deref(),
        Some("another"),
        "another object of that name"
    );
}

#[test]
fn a_whole_list_counts_in_any_case() {
    let store = store();
    store.store_object(Collection::TargetAccesses, &reduced(&access("5", "seen")));
    store.store_written(&reduced(&access("700", "written")));
    store.list(Collection::TargetAccesses, &[access("6", "restored")]);
    assert_eq!(phase(&store).as_deref(), Some("restored"));
    store.store_object(Collection::TargetAccesses, &reduced(&access("8", "later")));
    assert_eq!(phase(&store).as_deref(), Some("later"));
}

#[test]
fn versions_that_are_no_numbers_leave_it_to_the_watch() {
    let store = store();
    store.store_object(Collection::TargetAccesses, &reduced(&access("a", "seen")));
    store.store_written(&reduced(&access("b", "written")));
    assert_eq!(phase(&store).as_deref(), Some("seen"));
    store.store_object(Collection::TargetAccesses, &reduced(&access("0", "shown")));
    assert_eq!(phase(&store).as_deref(), Some("shown"));
}

#[test]
fn a_target_that_no_assembly_has_seen_refuses_nobody_yet() {
    let store = store();
    let (name, faults) = (ObjectName::new("prod").unwrap(), Faults::default());
    assert!(
        store.is_in_policy(&name, &Policy::default(), &faults.last_assembly()),
        "what is absent is absent"
    );
    for (address, has_part) in [
        ("https://prod.example.com", true),
        ("http://prod.example.com", false),
    ] {
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "prod", "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "address": address, "audience": "prod" },
        });
        store.list(Collection::TargetClusters, &[target]);
        assert!(!store.is_in_policy(
            &name,
            &Policy::default(),
            &Faults::default().last_assembly()
        ));
        let assembled = store.assemble_policy();
        assert_eq!(assembled.policy.targets.contains_key(&name), has_part);
        assert!(store.is_in_policy(&name, &assembled.policy, &assembled));
    }
}

fn named(name: &str, version: &str) -> Value {
    let mut object = access(version, "seen");
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    object
}

/// Returns how many objects a listing stores itself.
fn count_stored_objects(listing: &Listing) -> usize {
    let Listed::Accesses(listed) = &listing.0 else {
        return 0;
    };
    listed
        .values()
        .filter(|seen| matches!(seen, ListedObject::New(_)))
        .count()
}

#[test]
fn a_list_holds_nothing_twice_and_counts_at_its_end() {
    let store = store();
    let names = || store.each_access(|name, _| name.name.to_string());
    store.list(
        Collection::TargetAccesses,
        &["a", "b", "c"].map(|name| named(name, "5")),
    );
    let mut changes = store.changes();
    changes.mark_unchanged();
    let mut listing = Listing::of_collection(Collection::TargetAccesses);
    store.note_listed(&mut listing, &reduced(&named("a", "5")));
    store.note_listed(&mut listing, &reduced(&named("b", "6")));
    store.note_listed(&mut listing, &reduced(&named("d", "7")));
    assert_eq!(count_stored_objects(&listing), 2, "a is as it was");
    assert_eq!(
        (names(), changes.has_changed().unwrap()),
        (["a", "b", "c"].map(str::to_owned).to_vec(), false),
        "the list is not complete"
    );
    store.replace_all(listing);
    assert_eq!(names(), ["a", "b", "d"]);
    assert!(changes.has_changed().unwrap());
    let version = |name: &str| {
        store
            .access(&AccessName::parse(&format!("tenant-a/{name}")).unwrap())
            .unwrap()
            .record
            .version
    };
    assert_eq!(["a", "b", "d"].map(version), ["5", "6", "7"]);
}

#[test]
fn another_spec_of_the_same_version_counts() {
    let store = store();
    store.list(Collection::TargetAccesses, &[named("a", "5")]);
    // A hub that was restored from a backup starts with earlier versions again.
    let mut restored = named("a", "5");
    restored["spec"]["suspend"] = json!(true);
    store.list(Collection::TargetAccesses, &[restored]);
    let stored = store
        .access(&AccessName::parse("tenant-a/a").unwrap())
        .unwrap();
    assert!(stored.read.unwrap().suspend);
}

#[test]
fn what_was_written_during_a_list_stays() {
    let store = store();
    store.store_object(Collection::TargetAccesses, &reduced(&access("5", "seen")));
    let mut listing = Listing::of_collection(Collection::TargetAccesses);
    store.note_listed(&mut listing, &reduced(&access("5", "seen")));
    store.store_written(&reduced(&access("7", "written")));
    store.replace_all(listing);
    assert_eq!(
        phase(&store).as_deref(),
        Some("written"),
        "the list is older than the write"
    );
    store.store_object(
        Collection::TargetAccesses,
        &reduced(&access("6", "between")),
    );
    assert_eq!(
        phase(&store).as_deref(),
        Some("between"),
        "and then the watch counts"
    );
}
