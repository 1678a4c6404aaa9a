use futures::{Stream, StreamExt as _, TryStreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};

use super::*;

/// `init a`, `apply a`, `delete a`, `done`: the events without what does not matter here.
fn describe_event<K>(event: Event<K>) -> Option<String>
where
    K: kube::Resource,
{
    let name = |object: K| object.meta().name.clone().unwrap();
    match event {
        Event::Init => None,
        Event::InitApply(object) => Some(format!("init {}", name(object))),
        Event::InitDone => Some("done".to_owned()),
        Event::Apply(object) => Some(format!("apply {}", name(object))),
        Event::Delete(object) => Some(format!("delete {}", name(object))),
    }
}

async fn next<K, S>(stream: &mut S) -> String
where
    K: kube::Resource,
    S: Stream<Item = watcher::Result<Event<K>>> + Unpin,
{
    loop {
        let event = soon(stream.try_next()).await.unwrap().unwrap();
        if let Some(told) = describe_event(event) {
            return told;
        }
    }
}

#[tokio::test]
async fn a_metadata_watcher_sees_what_is_added_and_deleted() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let hub = hub().await;
        hub.add_service_account("ci", "first");
        let api: Api<PartialObjectMeta<ServiceAccount>> = Api::all(broker(&hub).await);
        let stream = watcher(api, config);
        pin_mut!(stream);
        assert_eq!(next(&mut stream).await, "init first");
        assert_eq!(next(&mut stream).await, "done");
        hub.add_service_account("ci", "second");
        assert_eq!(next(&mut stream).await, "apply second");
        hub.delete_service_account("ci", "first");
        assert_eq!(next(&mut stream).await, "delete first");
    }
}

#[tokio::test]
async fn a_watcher_sees_labels_change() {
    let hub = hub().await;
    hub.add_namespace("ci", &[]);
    let api: Api<Namespace> = Api::all(broker(&hub).await);
    let stream = watcher(api, watcher::Config::default());
    pin_mut!(stream);
    assert_eq!(next(&mut stream).await, "init ci");
    assert_eq!(next(&mut stream).await, "done");
    hub.add_namespace("ci", &[("team", "red")]);
    let event = soon(stream.next()).await.unwrap().unwrap();
    let Event::Apply(namespace) = event else {
        panic!("no change but {event:?}");
    };
    assert_eq!(namespace.metadata.labels.unwrap()["team"], "red");
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_lists_again() {
    let hub = hub().await;
    hub.add_service_account("ci", "first");
    let client = https(hub.ca_pem());
    hub.add_service_account("ci", "second");
    hub.compact();
    let url = format!(
        "{}/api/v1/serviceaccounts?watch=true&resourceVersion=1",
        hub.url()
    );
    let answer = client
        .get(url)
        .bearer_auth(hub.broker_token().expose_secret())
        .send()
        .await
        .unwrap();
    let text = soon(answer.text()).await.unwrap();
    let event: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
}

#[tokio::test]
async fn a_metadata_list_holds_no_more_than_metadata() {
    let hub = hub().await;
    hub.add_service_account("ci", "first");
    let api: Api<ServiceAccount> = Api::namespaced(broker(&hub).await, "ci");
    let list = api.list_metadata(&Default::default()).await.unwrap();
    let names: Vec<_> = list
        .items
        .iter()
        .map(|item| item.metadata.name.clone())
        .collect();
    assert_eq!(names, [Some("first".to_owned())]);
    let one = api.get_metadata("first").await.unwrap();
    let ObjectMeta { uid, .. } = one.metadata;
    assert!(uid.is_some());
}
