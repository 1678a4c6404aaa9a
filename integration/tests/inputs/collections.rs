//! Tests the content of the collections, and the values that are never sent.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::stage::{Stage, bearer, cluster_path, inputs_path};

pub(super) async fn follow_the_hub(stage: Arc<Stage>) -> TestResult {
    let read = async |credential: &str, path: &str| {
        let reply = stage.read(credential, path).await?;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        Ok::<Value, keyferry_integration::runner::TestError>(serde_json::from_str(&reply.body)?)
    };
    assert_eq!(
        read("prod-a", &cluster_path("prod-a", "cluster")).await?,
        json!({ "inputs": [{
            "id": "prod-a", "clusterName": "prod-a", "clusterDNS": "prod-a.fleet.test",
            "environment": "production",
        }] })
    );
    // Policy does not allow tenant-b, although it has an access.
    assert_eq!(
        read("prod-a", &cluster_path("prod-a", "accesses")).await?,
        json!({ "inputs": [{
            "id": "tenant-a.a", "namespace": "tenant-a", "name": "a",
            "serviceAccountName": "reconciler",
            "username": "hub:system:serviceaccount:tenant-a:reconciler",
        }] })
    );
    assert_eq!(
        read("prod-a", &cluster_path("prod-a", "platform-components")).await?,
        json!({ "inputs": [{ "id": "ingress", "of": "prod-a", "version": "4.13.0" }] })
    );
    let targets = read("team-a", "/api/v2/flux/namespaces/tenant-a/targets").await?;
    let ids: Vec<&Value> = targets["inputs"].as_array().into_iter().flatten().collect();
    assert_eq!(ids.len(), 2, "{targets}");
    assert_eq!(targets["inputs"][1]["target"], "prod-b");
    assert_eq!(targets["inputs"][1]["clusterDNS"], "prod-b.fleet.test");

    // A new access appears, and disappears with its object.
    stage.put_access("tenant-a", "c", "prod-c").await?;
    let path = cluster_path("prod-c", "accesses");
    stage
        .until(&path, "the access", |reply| {
            reply.body.contains("tenant-a.c")
        })
        .await?;
    let access = "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses/c";
    stage.hub.admin().delete(access).await?;
    stage
        .until(&path, "no access", |reply| reply.body == r#"{"inputs":[]}"#)
        .await?;

    // Equal states have equal ETags, and different states different ones.
    let path = cluster_path("prod-c", "platform-components");
    let etag = |reply: &super::stage::Reply| {
        let mut headers = reply.headers.iter();
        headers
            .find(|(name, _)| name == "etag")
            .map(|(_, value)| value.clone())
    };
    let first = stage.read("platform", &path).await?;
    let tag = etag(&first).ok_or("no ETag")?;
    let url = format!("{}{path}", stage.broker.api_url());
    let request = stage.broker.http().get(url).header("if-none-match", &tag);
    let header = bearer(stage.token("platform"));
    let unchanged = request.header("authorization", header).send().await?;
    assert_eq!(unchanged.status().as_u16(), 304);
    assert!(unchanged.bytes().await?.is_empty());
    let changed = json!({ "ingress": "version: \"5.0.0\"\n" });
    stage.put_inputs("prod-c", &changed).await?;
    let next = stage
        .until(&path, "the change", |reply| reply.body.contains("5.0.0"))
        .await?;
    assert_ne!(etag(&next), Some(tag));
    Ok(())
}

pub(super) async fn never_cut(stage: Arc<Stage>) -> TestResult {
    let missing = stage
        .until_status("prod-d", "platform-components", 503)
        .await?;
    assert!(missing.body.contains("InputsMissing"), "{missing:?}");
    // Made here, so that no scanner finds it in this file.
    let key = format!("-----BEGIN {} KEY-----\nMIIB\n", "PRIVATE");
    let secrets = [
        (
            "InputLooksSecret",
            json!({ "a": "x: 1", "b": "password: hunter2" }),
        ),
        (
            "InputLooksSecret",
            json!({ "b": json!({ "x": key }).to_string() }),
        ),
        (
            "InputLooksSecret",
            json!({ "b": format!("x: {}", stage.token("prod-a")) }),
        ),
        ("InputsInvalid", json!({ "a": "x: 1", "b": "- hunter2" })),
        (
            "InputsTooLarge",
            json!({ "b": format!("x: {}", "hunter2 ".repeat(120_000)) }),
        ),
    ];
    let path = cluster_path("prod-d", "platform-components");
    for (reason, data) in secrets {
        stage.put_inputs("prod-d", &json!({ "a": "x: 1" })).await?;
        stage
            .until_status("prod-d", "platform-components", 200)
            .await?;
        stage.hub.admin().delete(&inputs_path("prod-d")).await?;
        stage.put_inputs("prod-d", &data).await?;
        let refused = stage
            .until(&path, reason, |reply| reply.body.contains(reason))
            .await?;
        assert_eq!(refused.status, 503);
        for value in ["hunter2", "MIIB", stage.token("prod-a")] {
            assert!(!refused.body.contains(value), "{refused:?}");
            assert!(
                !stage.broker.log()?.contains(value),
                "a value is in the log"
            );
        }
    }
    Ok(())
}
