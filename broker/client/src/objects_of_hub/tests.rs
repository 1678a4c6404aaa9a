use std::time::Duration;

use keyferry_api::config;
use keyferry_api::issuer::Issuer;
use keyferry_hub::client::MAX_PAGES;
use serde_json::json;

use super::*;
use crate::answering_hub::hub;
use crate::configuration_source::{ConfigurationSource, server_of_hub};
use crate::wanted_objects::Wanted;

fn target() -> Value {
    json!({
        "metadata": {
            "name": "prod", "uid": "u", "generation": 1, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "address": "https://prod.example.com", "audience": "https://prod" },
        "status": {
            "observedGeneration": 1, "usernamePrefix": "hub:", "issuer": "https://hub.example.com",
            "discoveryURL": "https://keys.example.com/.well-known/openid-configuration",
            "clusterResourceNamespace": "keyferry-system",
        },
    })
}

fn page(items: &[Value], next: &str) -> Value {
    json!({ "items": items, "metadata": { "continue": next } })
}

/// No command works with half a list: the missing half may have the older target of an
/// audience.
#[tokio::test]
async fn a_hub_that_goes_away_within_a_command_ends_it() {
    let all = async |answers: Vec<Value>| {
        let client = hub(answers).await;
        let source = ConfigurationSource::Hub;
        let read = source.read_configuration(async || Ok(client), Wanted::All);
        tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .unwrap()
    };
    let whole = page(&[target()], "");
    for (answers, doing) in [
        (vec![], "listing the TargetClusters of the hub"),
        (
            vec![page(&[target()], "more")],
            "listing the TargetClusters of the hub",
        ),
        (vec![whole.clone()], "listing the TargetClusters of the hub"),
        (
            vec![whole.clone(), whole.clone()],
            "listing the TargetAccesses of the hub",
        ),
    ] {
        let error = all(answers).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::HubCall { doing: step, error: HubError::Unreachable(_) } if *step == doing),
            "{error:?}"
        );
    }
    let read = all(vec![whole.clone(), whole, page(&[], "")]).await;
    assert_eq!(read.unwrap().policy.targets.len(), 1);
}

#[tokio::test]
async fn a_list_without_end_is_refused() {
    let client = hub(vec![page(&[], "more"); MAX_PAGES + 1]).await;
    let error = target_values(&client).await.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::HubCall {
                error: HubError::Unreadable(_),
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn the_settings_of_the_server_are_in_the_statuses() {
    let read = async |answer: Value| server_of_hub(&hub(vec![answer]).await).await;
    let server = read(page(&[target()], "")).await.unwrap();
    assert_eq!(server.public_url.as_str(), "https://keys.example.com");
    assert_eq!(
        server.hub_issuer.as_ref().map(Issuer::as_str),
        Some("https://hub.example.com")
    );
    let mut other = target();
    other["metadata"]["name"] = json!("other");
    other["status"]["issuer"] = json!("https://other.example.com");
    let server = read(page(&[target(), other], "")).await.unwrap();
    assert_eq!(server.hub_issuer, None, "they do not agree");
    let none = read(page(&[], "")).await.unwrap_err();
    assert!(matches!(none, ClientError::NoTargetClusters), "{none}");
    let mut stale = target();
    stale["status"]["observedGeneration"] = json!(0);
    let stale = read(page(&[stale], "")).await.unwrap_err();
    assert!(matches!(stale, ClientError::NoSettings), "{stale}");
}

/// With a configuration file, the settings do not come from the status, so nothing else compares
/// the generations.
#[tokio::test]
async fn one_access_at_a_target_that_the_server_has_not_judged_is_refused() {
    let access = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": {
            "name": "apps", "namespace": "tenant-a", "uid": "a", "generation": 1,
            "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
    });
    let name = AccessName::parse("tenant-a/apps").unwrap();
    let settings = config::of_hub_objects("hub", "https://k", "keyferry-system").unwrap();
    let mut judged = target();
    judged["apiVersion"] = json!("keyferry.dev/v1alpha1");
    judged["kind"] = json!("TargetCluster");
    let mut changed = judged.clone();
    changed["metadata"]["generation"] = json!(2);
    for (target, is_current) in [(judged, true), (changed, false)] {
        let client = hub(vec![access.clone(), target]).await;
        let read = with_access(settings.clone(), &client, &name).await;
        match read {
            Ok(read) => assert!(is_current && read.policy.targets.len() == 1),
            Err(error) => assert!(
                !is_current && matches!(&error, ClientError::StaleTarget(name) if name == "prod"),
                "{error}"
            ),
        }
    }
}

#[tokio::test]
async fn names_of_accesses_leave_out_what_is_being_deleted() {
    let access = |namespace: &str, name: &str, deleted: bool| {
        let mut metadata = json!({ "namespace": namespace, "name": name });
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({ "metadata": metadata })
    };
    let items = [
        access("tenant-a", "prod", false),
        access("tenant-a", "old", true),
        access("tenant-a", "../x", false),
    ];
    let client = hub(vec![page(&items, "")]).await;
    let names = access_names(&client, None).await.unwrap();
    assert_eq!(
        names.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["tenant-a/prod"]
    );
}

/// An answer about all targets is unknown if one of them is not read whole.
#[tokio::test]
async fn a_target_that_is_too_large_to_be_read_is_named() {
    let read = async |target: Value| {
        let client = hub(vec![page(&[target], "")]).await;
        whole_target_values(&client).await
    };
    let mut stuffed = target();
    stuffed["metadata"]["finalizers"] = json!(["x".repeat(4_000_000)]);
    assert_eq!(read(stuffed).await.unwrap().len(), 1);
    let mut large = target();
    large["spec"]["caBundle"] = json!("x".repeat(1_100_000));
    let error = read(large).await.unwrap_err().to_string();
    assert_eq!(error, "TargetCluster prod is too large to be read");
}
