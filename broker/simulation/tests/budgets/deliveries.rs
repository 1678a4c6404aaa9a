//! What a reconciliation reads: a tenant may have written into each of these objects before.

use futures::future::join_all;
use jiff::Timestamp;
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::FluxObject;
use keyferry_hub::objects::KubeObjects;
use keyferry_hub::ports::HubObjects;

use crate::cost::{Cost, Memory};
use crate::hub_objects::{name, namespace};
use crate::large_hub::{LargeHub, LargeObject, Stored};

/// Reconciliations of one namespace at once.
const RECONCILIATIONS: usize = 4;
/// The objects of a list, few because a call has its time.
const LISTED: usize = 2;
/// The largest answer of the hub that is read. An object of etcd's largest size can be longer as
/// JSON.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024 - 16 * 1024;

/// A Secret that has as many parts as fit, each of them a mapping of its own.
fn large_secret() -> LargeObject {
    let begin = format!(
        r#"{{"apiVersion":"v1","kind":"Secret","type":"Opaque","data":{{"value":"eA=="}},"metadata":{{"name":"{}","namespace":"{}","uid":"u","resourceVersion":"7","ownerReferences":[{{"apiVersion":"v1","kind":"a","name":"a","uid":"a"}}"#,
        name(0),
        namespace(),
    );
    let filler = r#",{"apiVersion":"v1","kind":"a","name":"a","uid":"a"}"#;
    LargeObject::of_size(LARGEST_ANSWER, begin, filler, "]}}")
}

pub(crate) async fn delivered_objects() -> Cost {
    let path = format!("/api/v1/namespaces/{}/secrets/{}", namespace(), name(0));
    let stored = vec![(path.clone(), Stored::Object(large_secret()))];
    let hub = LargeHub::start(stored).await;
    let objects = KubeObjects::new(hub.client());
    let memory = Memory::measure();
    let _outcomes = join_all((0..RECONCILIATIONS).map(|_| objects.get(&path))).await;
    let cost = memory.cost();
    drop(_outcomes);
    Cost {
        hub_calls: hub.requests(),
        kept: memory.cost().kept,
        ..cost
    }
}

pub(crate) async fn flux_objects() -> Cost {
    let object = |index: usize| {
        let begin = format!(
            r#"{{"spec":{{"kubeConfig":{{"secretRef":{{"name":"{}"}}}}}},"metadata":{{"name":"{}","finalizers":["a/b""#,
            name(index),
            name(index),
        );
        LargeObject::largest(begin, r#","c/d""#, "]}}")
    };
    let all = (0..LISTED).map(object).collect();
    let hub = LargeHub::start(vec![("/list".to_owned(), Stored::List(all))]).await;
    let objects = KubeObjects::new(hub.client());
    let memory = Memory::measure();
    let uses = |object: &FluxObject| object.names_any("prod");
    assert!(!objects.is_used_by_flux("/list", &uses).await.unwrap());
    Cost {
        hub_calls: hub.requests(),
        ..memory.cost()
    }
}

pub(crate) async fn certificate_requests() -> Cost {
    let annotation = "x".repeat(250 * 1024);
    let object = |_| {
        let begin = format!(
            r#"{{"metadata":{{"creationTimestamp":"2026-01-01T00:00:00Z","annotations":{{"keyferry.dev/access":"{annotation}"}}}},"spec":{{"signerName":"kubernetes.io/kube-apiserver-client","username":"mallory","request":""#,
        );
        LargeObject::largest(begin, "eA==", "\"}}")
    };
    let all = (0..LISTED).map(object).collect();
    let hub = LargeHub::start(vec![("/list".to_owned(), Stored::List(all))]).await;
    let objects = KubeObjects::new(hub.client());
    let (namespace, now) = (
        keyferry_api::name::Namespace::new("tenant-a").unwrap(),
        "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap(),
    );
    let memory = Memory::measure();
    let counted = |request: &CountedRequest| request.counted_time("keyferry", &namespace, now);
    let times = objects.certificate_request_times("/list?labelSelector=a", 64, &counted);
    assert!(times.await.unwrap().is_empty());
    Cost {
        hub_calls: hub.requests(),
        ..memory.cost()
    }
}
