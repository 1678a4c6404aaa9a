//! What a replica keeps of the objects that it watches.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{self, Policy};
use keyferry_controller::tasks::run_policy_assembly;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::watch;
use keyferry_issuer::testing::CONFIGURATION;
use keyferry_platform::clock::SystemClock;
use keyferry_platform::policy_store::PolicyWriter;
use serde_json::json;

use crate::cost::{Cost, Memory};
use crate::large_hub::{LargeHub, LargeObject, Stored};

/// The objects of a kind that only a quota of the hub limits.
const UNLIMITED: usize = 10;
/// The accesses of the shipped quota.
pub(crate) const ACCESSES: usize = 256;
/// The characters of the longest value of a label.
const LONGEST_LABEL: usize = 63;

/// The longest name of a namespace.
pub(crate) fn namespace() -> String {
    "n".repeat(63)
}

/// An object's longest name.
pub(crate) fn name(index: usize) -> String {
    format!("{index:x>253}")
}

async fn until(is_done: impl Fn() -> bool) {
    let waiting = async {
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), waiting)
        .await
        .unwrap();
}

/// Ends a watch, so that only what it stored is still there.
async fn end(task: tokio::task::JoinHandle<()>) {
    task.abort();
    let _ = task.await;
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// A ServiceAccount with finalizers as large as etcd takes them.
pub(crate) fn large_account(index: usize) -> LargeObject {
    let name = name(index);
    let annotation = "x".repeat(250 * 1024);
    let begin = format!(
        r#"{{"apiVersion":"v1","kind":"ServiceAccount","metadata":{{"name":"{name}","namespace":"{}","uid":"{index:0>36}","resourceVersion":"7","annotations":{{"credential.auth.fluxcd.io/type":"{annotation}"}},"finalizers":["a/b""#,
        namespace()
    );
    LargeObject::largest(begin, r#","c/d""#, "]}}")
}

pub(crate) async fn service_accounts() -> Cost {
    let objects = (0..UNLIMITED).map(large_account).collect();
    let path = "/api/v1/serviceaccounts".to_owned();
    let hub = LargeHub::start(vec![(path, Stored::List(objects))]).await;
    let (live, clock) = (
        Arc::new(LiveObjects::default()),
        Arc::new(SystemClock::start()),
    );
    let memory = Memory::measure();
    let task = tokio::spawn(watch::service_accounts(
        hub.watch_client(),
        Arc::clone(&live),
        clock,
    ));
    let account = keyferry_issuer::testing::account_of(&namespace(), &name(UNLIMITED - 1));
    until(|| live.flux_credential(&account).is_some()).await;
    end(task).await;
    Cost {
        hub_calls: hub.requests(),
        ..memory.cost()
    }
}

pub(crate) async fn namespaces() -> Cost {
    // As many guarded labels as are kept, with the shortest names: an entry costs more than its text.
    let guarded: Vec<String> = (0..2_700)
        .map(|index| format!(r#""access.keyferry.dev/{index:x}":"""#))
        .collect();
    let guarded = guarded.join(",");
    let object = |index: usize| {
        let begin = format!(
            r#"{{"metadata":{{"name":"{index:n>63}","resourceVersion":"7","labels":{{{guarded},"a":"b""#
        );
        LargeObject::largest(begin, r#","c":"d""#, "}}}")
    };
    let objects = (0..UNLIMITED).map(object).collect();
    let path = "/api/v1/namespaces".to_owned();
    let hub = LargeHub::start(vec![(path, Stored::List(objects))]).await;
    let (live, clock) = (
        Arc::new(LiveObjects::default()),
        Arc::new(SystemClock::start()),
    );
    let memory = Memory::measure();
    let task = tokio::spawn(watch::watch_namespaces(
        hub.watch_client(),
        Arc::clone(&live),
        clock,
    ));
    let last = format!("{:n>63}", UNLIMITED - 1);
    let last = keyferry_api::name::Namespace::new(last).unwrap();
    until(|| keyferry_core::authorise::HubView::namespace_labels(&*live, &last).is_some()).await;
    end(task).await;
    Cost {
        hub_calls: hub.requests(),
        ..memory.cost()
    }
}

/// A valid access with many texts, each of this length: short texts take more memory than their
/// length.
pub(crate) fn large_access(index: usize, value_length: usize) -> String {
    let texts: serde_json::Map<_, _> = (0..8)
        .map(|index| (format!("a.b/{index}"), json!("v".repeat(value_length))))
        .collect();
    let deliveries: Vec<_> = (0..16)
        .map(|index| {
            json!({
                "name": format!("d{index}"), "type": "KubeConfigSecret",
                "objectName": format!("o{index}"),
                "secret": { "key": "k", "type": "t", "labels": texts, "annotations": texts },
            })
        })
        .collect();
    let callers: Vec<_> = (0..64).map(|index| format!("c{index}")).collect();
    let spec = json!({
        "targetClusterRef": { "name": "t" },
        "serviceAccountName": "s", "callers": callers, "deliveries": deliveries,
    });
    format!(
        r#"{{"apiVersion":"keyferry.dev/v1alpha1","kind":"TargetAccess","spec":{spec},"metadata":{{"name":"{}","namespace":"{}","uid":"{index:0>36}","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["a/b""#,
        name(index),
        namespace(),
    )
}

/// Stores the accesses, assembles the policy, and stores them again as a failed watch does.
async fn store_accesses(value_length: usize) -> (Cost, Policy, usize) {
    // Other metadata costs nothing, as the rows above show, and would take the test its time.
    let object = |index| LargeObject {
        begin: large_access(index, value_length),
        filler: "".into(),
        times: 0,
        end: "]}}",
    };
    let objects = (0..ACCESSES).map(object).collect();
    let path = "/apis/keyferry.dev/v1alpha1/targetaccesses".to_owned();
    let hub = LargeHub::start(vec![(path, Stored::List(objects))]).await;
    let server = config::read(CONFIGURATION).unwrap().server;
    let store = Arc::new(ObjectStore::new(server));
    let live = Arc::new(LiveObjects::default());
    let (writer, faults) = (PolicyWriter::new(Policy::default()), Faults::default());
    let policy = writer.reader();
    let memory = Memory::measure();
    let assembly = tokio::spawn(run_policy_assembly(
        Arc::clone(&store),
        writer,
        faults.clone(),
    ));
    for _ in 0..2 {
        let mut changes = policy.changes();
        changes.mark_unchanged();
        let task = tokio::spawn(watch::target_accesses(
            hub.watch_client(),
            Arc::clone(&store),
            Arc::clone(&live),
            Arc::new(SystemClock::start()),
        ));
        tokio::time::timeout(Duration::from_secs(300), changes.changed())
            .await
            .unwrap()
            .unwrap();
        until(|| {
            policy.current().accesses.len() + faults.last_assembly().accesses.len() == ACCESSES
        })
        .await;
        end(task).await;
    }
    let cost = Cost {
        hub_calls: hub.requests(),
        ..memory.cost()
    };
    let refused = faults.last_assembly().accesses.len();
    assembly.abort();
    (cost, Policy::clone(&policy.current()), refused)
}

pub(crate) async fn accesses() -> Cost {
    let (cost, policy, _) = store_accesses(LARGEST_VALUES).await;
    assert_eq!(policy.accesses.len(), ACCESSES, "they are valid");
    cost
}

/// The length of the texts of the largest access that is still kept.
const LARGEST_VALUES: usize = 10;

pub(crate) async fn too_large_accesses() -> Cost {
    let (cost, _, refused) = store_accesses(LONGEST_LABEL).await;
    assert_eq!(refused, ACCESSES);
    cost
}
