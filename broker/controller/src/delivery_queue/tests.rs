#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{ObjectSource, ReducedObject};
use keyferry_api::name::AccessName;
use keyferry_hub::live::{LiveObjects, Watched};
use keyferry_hub::object_store::Collection;
use keyferry_issuer::testing::{FakeClock, FakeObjects};
use keyferry_platform::clock::Clock;
use serde_json::json;

use super::{
    MAX_CONCURRENT_RECONCILIATIONS, MAX_CONCURRENT_RECONCILIATIONS_PER_NAMESPACE,
    MIN_RECONCILE_INTERVAL, QueueEntry, is_view_current, mark_changed_due, record_result,
    retry_after_panic, select_due,
};
use crate::context::Context;

fn name(text: &str) -> AccessName {
    AccessName::parse(text).unwrap()
}

fn due(at: u64) -> QueueEntry {
    QueueEntry {
        due: Some(Duration::from_secs(at)),
        ..QueueEntry::default()
    }
}

const ALL: [Watched; 4] = [
    Watched::ServiceAccounts,
    Watched::Namespaces,
    Watched::TargetClusters,
    Watched::TargetAccesses,
];

/// How long a watch may fail.
const MAX_STALE: Duration = Duration::from_secs(300);

fn context(clock: &Arc<FakeClock>) -> Context {
    let live = LiveObjects::for_source(ObjectSource::CustomResources);
    ALL.into_iter()
        .for_each(|watched| live.watch_listed(watched));
    let objects = Arc::<FakeObjects>::default();
    Context {
        live: Arc::new(live),
        ..Context::empty(Arc::<FakeClock>::clone(clock), objects)
    }
}

#[test]
fn one_tenant_does_not_hold_up_the_others() {
    let now = Duration::from_secs(100);
    let mut queue: HashMap<_, _> = (0..500)
        .map(|index| (name(&format!("greedy/a{index}")), due(1)))
        .collect();
    queue.insert(name("other/late"), due(99));
    queue.insert(name("other/early"), due(98));
    queue.insert(name("other/not-yet"), due(101));
    let first = select_due(&queue, now);
    assert_eq!(
        first
            .iter()
            .filter(|name| name.namespace.as_str() == "greedy")
            .count(),
        MAX_CONCURRENT_RECONCILIATIONS_PER_NAMESPACE
    );
    assert!(
        first.ends_with(&[name("other/early"), name("other/late")]),
        "{first:?}"
    );
    for name in &first {
        queue.get_mut(name).unwrap().running = true;
    }
    assert!(
        select_due(&queue, now).is_empty(),
        "while they are under way, no more of the same"
    );
    let crowd = (0..50).map(|index| (name(&format!("tenant-{index}/a")), due(1)));
    queue.extend(crowd);
    assert_eq!(
        select_due(&queue, now).len(),
        MAX_CONCURRENT_RECONCILIATIONS - first.len()
    );
}

#[test]
fn nothing_is_written_by_a_policy_that_nobody_keeps_current() {
    let clock = FakeClock::start();
    let context = context(&clock);
    assert!(is_view_current(&context, MAX_STALE, clock.now()));
    context
        .live
        .watch_failed(Watched::TargetClusters, clock.now());
    assert!(
        is_view_current(&context, MAX_STALE, clock.now()),
        "a short failure is none"
    );
    clock.advance(MAX_STALE + Duration::from_secs(1));
    assert!(
        !is_view_current(&context, MAX_STALE, clock.now()),
        "who was taken out of allow[] meanwhile would get tokens for ever"
    );
    context.live.watch_listed(Watched::TargetClusters);
    assert!(is_view_current(&context, MAX_STALE, clock.now()));
}

#[test]
fn an_access_that_changes_all_the_time_is_looked_at_once_a_second() {
    let clock = FakeClock::start();
    let (context, now) = (context(&clock), Duration::from_secs(50));
    let change = |asked: &str| {
        let access = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": "a", "namespace": "t", "uid": "u", "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { "keyferry.dev/requestedAt": asked },
            },
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "s" },
        });
        context
            .store
            .store_object(Collection::TargetAccesses, &ReducedObject::of(&access));
    };
    let mut queue = HashMap::new();
    change("1");
    mark_changed_due(&context, &mut queue, now);
    assert_eq!(queue.get(&name("t/a")).unwrap().due, Some(now));
    queue.get_mut(&name("t/a")).unwrap().started = Some(now);
    change("2");
    mark_changed_due(&context, &mut queue, now);
    assert_eq!(
        queue.get(&name("t/a")).unwrap().due,
        Some(now + MIN_RECONCILE_INTERVAL)
    );
}

#[test]
fn a_revocation_puts_every_access_to_the_front() {
    let clock = FakeClock::start();
    let (context, now) = (context(&clock), Duration::from_secs(50));
    for access in ["a", "b"] {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": { "name": access, "namespace": "t", "uid": access, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "s" },
        });
        context
            .store
            .store_object(Collection::TargetAccesses, &ReducedObject::of(&object));
    }
    let mut queue = HashMap::new();
    mark_changed_due(&context, &mut queue, now);
    queue.values_mut().for_each(|entry| entry.due = None);
    mark_changed_due(&context, &mut queue, now);
    assert!(
        queue.values().all(|entry| entry.due.is_none()),
        "nothing has changed"
    );
    context.published.set_revoked(&["stolen"]);
    mark_changed_due(&context, &mut queue, now);
    assert!(
        queue.len() == 2
            && queue
                .values()
                .all(|entry| entry.due == Some(now) && entry.urgent)
    );
}

#[test]
fn what_has_changed_goes_first() {
    let second = Duration::from_secs(1);
    let mut queue: HashMap<AccessName, QueueEntry> = (0..500)
        .map(|index| (name(&format!("t{index}/a")), due(1)))
        .collect();
    queue.insert(
        name("changed/a"),
        QueueEntry {
            urgent: true,
            ..due(2)
        },
    );
    queue.insert(
        name("changed/running"),
        QueueEntry {
            urgent: true,
            running: true,
            ..due(1)
        },
    );
    queue.insert(
        name("changed/later"),
        QueueEntry {
            urgent: true,
            ..due(3)
        },
    );
    let first = select_due(&queue, second * 2);
    assert_eq!(
        first.first(),
        Some(&name("changed/a")),
        "neither what runs nor what is not due"
    );
    assert_eq!(first.len(), MAX_CONCURRENT_RECONCILIATIONS - 1);
}

#[tokio::test]
async fn an_access_whose_reconciliation_panics_is_tried_again() {
    let now = Duration::from_secs(100);
    let access = name("tenant/a");
    let running = QueueEntry {
        running: true,
        inputs: 1,
        ..QueueEntry::default()
    };
    let mut queue = HashMap::from([(access.clone(), running)]);
    let next = retry_after_panic(async { panic!("a planted defect") }).await;
    record_result(&mut queue, &access, next, now);
    assert!(select_due(&queue, now).is_empty(), "after a pause");
    let later = now + Duration::from_secs(2);
    assert_eq!(select_due(&queue, later), [access]);
}
