//! A Keyferry with a configuration file: inputs of the file's targets, with the rights of the
//! plain manifests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::BrokerSpec;
use serde_json::json;

use super::stage::{Stage, authority, bearer, client_of, grant_authority};

/// The Secret with the CA of client certificates.
const CA: &str = "by-file-readers-ca";
/// The URI of a caller of tokens.
const CALLER: &str = "spiffe://fleet.test/caller";
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
    let certified = |name: &str, scope: &str, ca: &str, uri: &str| {
        format!(
            "{{name: {name}, {scope}, clientCertificate: {{caSecretRef: {{name: {ca}}}, \
             uriSAN: '{uri}'}}}}"
        )
    };
    let first = certified("first", "scope: Admin", CA, "spiffe://fleet.test/first");
    let caller = format!(
        "  clientCertificates:\n    - {{caSecretRef: {{name: {CA}}}, uriSAN: '{CALLER}', \
         serviceAccount: {{namespace: tenant-a, name: reconciler, uid: none}}}}\n"
    );
    let lines =
        format!("inputs:\n  enabled: true\n  requestsPerSecond: 0\n  credentials: [{first}]\n");
    let spec = BrokerSpec::of_hub("by-file", &stage.hub)
        .alone()
        .with_api_lines(&caller)
        .with_server_lines(&lines);
    let namespace = spec.namespace().to_owned();
    let readers = authority("readers of a file");
    stage.hub.create_namespace(&namespace).await?;
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CA },
        "stringData": { "ca.crt": readers.pem() },
    });
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets/{CA}");
    stage.hub.admin().apply(&secrets, &object).await?;
    grant_authority(&stage.ground, &stage.hub, CA, &namespace).await?;
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
    let own_uri = "spiffe://fleet.test/edge";
    let by_certificate = certified(
        "edge-certificate",
        "scope: Read, cluster: edge.fleet.test",
        CA,
        own_uri,
    );
    let text = text.replace(&first, &format!("{credential}, {by_certificate}"));
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

    // A credential with a certificate counts at once too, and one that was removed no longer.
    let by = async |uri: &str| {
        let client = client_of(&broker, &readers.issue(uri, |_| {}))?;
        let url = format!("{}{PATH}cluster", broker.api_url());
        Ok::<_, TestError>(client.get(url).send().await?.status().as_u16())
    };
    // The Secret of its CA arrives by a watch, as that of the token does.
    while by(own_uri).await? != 200 {
        assert!(Instant::now() < limit, "no certificate of the CA counts");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(by("spiffe://fleet.test/first").await?, 401);
    // The CA of another Secret is not watched before a restart; the rest of the file counts.
    let elsewhere = certified(
        "new",
        "scope: Admin",
        "another-ca",
        "spiffe://fleet.test/new",
    );
    let further = text.replace(credential, &format!("{credential}, {elsewhere}"));
    broker.rewrite_config(&further, "success").await?;
    assert_eq!(by("spiffe://fleet.test/new").await?, 401);
    assert!(
        broker
            .log()?
            .contains("a Secret with a CA that is not watched")
    );
    // The list of callers changes only with a restart, so until then no reader may have one of
    // their URIs.
    let stolen = text.replace(own_uri, CALLER).replace(&caller, "");
    broker.rewrite_config(&stolen, "failure").await?;
    assert!(
        broker
            .log()?
            .contains("is also in api.clientCertificates of the running")
    );
    assert_eq!((by(own_uri).await?, by(CALLER).await?), (200, 401));

    // A second target with the same DNS name is a mistake, and the previous file stays active.
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
