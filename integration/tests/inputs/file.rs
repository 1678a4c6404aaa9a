//! A Keyferry with a configuration file: inputs of the file's targets, with the rights of the
//! plain manifests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::BrokerSpec;
use serde_json::json;

use super::stage::{Stage, bearer};

const PATH: &str = "/api/v2/flux/clusters/edge.fleet.test/";

fn target(name: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: {name}}}\n\
         spec:\n  address: https://{name}.keyferry.test\n  audience: https://{name}.keyferry.test\n\
         \x20 probe: \"Off\"\n\
         \x20 identity: {{clusterName: edge, clusterDNS: edge.fleet.test, environment: test}}\n"
    )
}

pub(super) async fn serves_inputs_too(stage: Arc<Stage>) -> TestResult {
    let lines = "inputs:\n  enabled: true\n  credentials: []\n";
    let spec = BrokerSpec::of_hub("by-file", &stage.hub)
        .alone()
        .with_server_lines(lines);
    let namespace = spec.namespace().to_owned();
    let broker = stage.ground.start_broker(&stage.hub, spec).await?;
    let token = stage.token("platform");
    let secret = stage
        .hub
        .admin()
        .get("/api/v1/namespaces/keyferry-system/secrets/keyferry-input-prod-a")
        .await?;
    let copy = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "edge" }, "data": secret["data"],
    });
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets/edge");
    stage.hub.admin().apply(&secrets, &copy).await?;
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "keyferry-inputs-edge" },
        "data": { "ingress": "version: \"1\"" },
    });
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/keyferry-inputs-edge");
    stage.hub.admin().apply(&path, &config_map).await?;

    // The credential and the target arrive by a changed file, without a restart.
    let credential = "{name: edge, scope: Read, cluster: edge.fleet.test, secretRef: {name: edge}}";
    let text = std::fs::read_to_string(broker.config())?;
    let text = text.replace("credentials: []", &format!("credentials: [{credential}]"));
    assert!(text.contains(credential), "{text}");
    let text = text + &target("edge");
    broker.rewrite_config(&text, "success").await?;
    let answer = async |view: &str, token: &str| {
        let request = broker
            .http()
            .get(format!("{}{PATH}{view}", broker.api_url()));
        let response = request
            .header("authorization", bearer(token))
            .send()
            .await?;
        Ok::<_, TestError>((response.status().as_u16(), response.text().await?))
    };
    let limit = Instant::now() + Duration::from_secs(30);
    let own = stage.token("prod-a");
    while answer("cluster", own).await?.0 != 200 {
        assert!(
            Instant::now() < limit,
            "{:?}",
            answer("cluster", own).await?
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let read = answer("platform-components", own).await?;
    assert_eq!(
        read,
        (
            200,
            r#"{"inputs":[{"id":"ingress","version":"1"}]}"#.to_owned()
        )
    );
    assert_eq!(
        answer("accesses", own).await?,
        (200, r#"{"inputs":[]}"#.to_owned())
    );
    assert_eq!(
        answer("cluster", token).await?.0,
        401,
        "it is a credential of another Keyferry"
    );

    // A second target with the name is a mistake, and the file before stays active.
    broker
        .rewrite_config(&(text + &target("second")), "failure")
        .await?;
    assert_eq!(answer("cluster", own).await?.0, 200);
    assert!(
        broker
            .log()?
            .contains("is also the DNS name of TargetCluster/edge")
    );
    Ok(())
}
