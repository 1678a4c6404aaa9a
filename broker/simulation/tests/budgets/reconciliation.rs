//! What accesses with the most deliveries cost: memory, and what the hub and the audit log get.
//!
//! The fake hub keeps its objects in the same memory. They count in the peak, which is therefore
//! rather too high; from what is kept, the size of a copy of them is taken off.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config;
use keyferry_controller::context::Context;
use keyferry_controller::delivery::{CredentialSources, Deliveries};
use keyferry_controller::delivery_queue::run_delivery_queue;
use keyferry_controller::tasks::run_policy_assembly;
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::object_store::{Collection, Faults, ObjectStore};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_hub::testing::OwnUser;
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::testing::{
    CONFIGURATION, FakeClock, FakeObjects, SmallWorld, activation_delay,
};
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use keyferry_platform::testing::SilentTargets;
use serde_json::{Value, json};

use crate::cost::{Cost, Memory};
use crate::requests::{CountedLog, count_calls};

const ACCESSES: usize = 10;
const DELIVERIES: usize = 16;
const MAX_STALE: Duration = Duration::from_secs(300);
const GROUP: &str = "/apis/keyferry.dev/v1alpha1";

/// Writes a target, and the accesses to it.
fn put_objects(objects: &FakeObjects, created: &str) {
    let metadata =
        |name: &str| json!({ "name": name, "generation": 1, "creationTimestamp": created });
    let rule = json!({
        "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["KubeConfigSecret"],
    });
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata("prod"),
        "spec": {
            "address": "https://prod.example.test", "audience": "https://prod.example.test", "allow": [rule],
        },
    });
    objects.put_foreign(&format!("{GROUP}/targetclusters/prod"), target);
    for access in 0..ACCESSES {
        let deliveries: Vec<Value> = (0..DELIVERIES)
            .map(|index| json!({ "name": format!("d{index}"), "type": "KubeConfigSecret", "objectName": format!("o-{access}-{index}") }))
            .collect();
        let mut metadata = metadata(&format!("apps-{access}"));
        metadata["namespace"] = json!("tenant-a");
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata,
            "spec": {
                "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler",
                "deliveries": deliveries, "probe": "Off",
            },
        });
        let path = format!("{GROUP}/namespaces/tenant-a/targetaccesses/apps-{access}");
        objects.put_foreign(&path, object);
    }
}

/// From the first sight of the accesses until all their Secrets are written and nothing is sent.
pub(crate) async fn reconciled_accesses() -> Cost {
    let world = SmallWorld::start().await;
    let clock = || Arc::<FakeClock>::clone(&world.clock) as Arc<dyn Clock>;
    let (objects, log) = (
        Arc::new(FakeObjects::default()),
        Arc::new(CountedLog::default()),
    );
    put_objects(&objects, &clock().now().wall.to_string());
    let server = config::read(CONFIGURATION).unwrap().server;
    let store = Arc::new(ObjectStore::new(server));
    let (policy, faults) = (
        PolicyWriter::new(config::Policy::default()),
        Faults::default(),
    );
    let reader = policy.reader();
    let assembly = tokio::spawn(run_policy_assembly(
        Arc::clone(&store),
        policy,
        faults.clone(),
    ));
    // It must wait for changes before there are some.
    tokio::task::yield_now().await;
    store.list(Collection::TargetClusters, &objects.all("/targetclusters/"));
    store.list(Collection::TargetAccesses, &objects.all("/targetaccesses/"));
    let (author_policy, leadership, targets) = (
        AdmissionPolicyWriter::for_author_policy(),
        LeadershipWriter::default(),
        TargetWriter::default(),
    );
    author_policy.set_state(Standing::Active);
    leadership.set(Some(Duration::from_secs(1_000_000_000)));
    let mut changes = reader.changes();
    changes
        .wait_for(|_| reader.current().accesses.len() == ACCESSES)
        .await
        .unwrap();
    let current = reader.current();
    let state = |target: &config::TargetCluster| TargetState {
        generation: target.generation,
        readiness: Readiness::Ready(None),
        client_certificate: false,
    };
    targets.replace(
        current
            .targets
            .values()
            .map(|target| (target.name.clone(), state(target)))
            .collect(),
    );
    let context = Arc::new(Context {
        policy: reader,
        store,
        faults,
        live: Arc::clone(&world.live),
        published: world.publisher.reader(),
        targets: targets.reader(),
        author_policy: author_policy.reader(),
        objects: Arc::<FakeObjects>::clone(&objects),
        probe: Arc::new(SilentTargets),
        leadership: leadership.reader(),
        clock: clock(),
        random: Arc::new(SystemRandomness::default()),
        metrics: world.metrics.clone(),
    });
    let sources = CredentialSources {
        mint: world.new_mint(),
        client_keys: Arc::new(SystemClientKeys),
        facts: Arc::<OwnUser>::default(),
        audit: Arc::<CountedLog>::clone(&log),
        activation_delay: activation_delay(),
    };
    let (before, memory) = (count_calls(&world), Memory::measure());
    let deliveries = Arc::new(Deliveries::new(Arc::clone(&context), sources));
    let store = Arc::clone(&context.store);
    let queue = tokio::spawn(run_delivery_queue(context, deliveries, MAX_STALE));
    wait_until_written(&objects, &store, &world.clock).await;
    let cost = memory.cost();
    queue.abort();
    assembly.abort();
    Cost {
        kept: cost.kept.saturating_sub(size_of_written(&objects)),
        hub_calls: objects.calls().len() + count_calls(&world) - before,
        audit_bytes: log.bytes(),
        ..cost
    }
}

/// The memory of the Secrets that the fake hub holds, and of its list of calls.
fn size_of_written(objects: &FakeObjects) -> usize {
    let memory = Memory::measure();
    let copies = (objects.all("/secrets/"), objects.calls());
    let size = memory.cost().kept;
    drop(copies);
    size
}

/// Waits until every Secret is written, and then until nothing is sent for a second. Meanwhile the
/// watch shows what was written, and time goes on.
async fn wait_until_written(objects: &FakeObjects, store: &ObjectStore, clock: &FakeClock) {
    let waiting = async {
        let (mut calls, mut silence) = (0, 0);
        while silence < 5 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            clock.advance(Duration::from_secs(1));
            store.list(Collection::TargetAccesses, &objects.all("/targetaccesses/"));
            let is_written = objects.all("/secrets/").len() == ACCESSES * DELIVERIES;
            let is_silent = is_written && objects.calls().len() == calls;
            silence = if is_silent { silence + 1 } else { 0 };
            calls = objects.calls().len();
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let states = || {
        (
            objects.calls(),
            objects.all("/targetaccesses/").first().cloned(),
        )
    };
    assert!(waited.is_ok(), "{:?}", states());
}
