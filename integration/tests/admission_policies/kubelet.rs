//! The kubelet's own requests for tokens that are bound to a Pod, for the audiences of its volumes.

use std::sync::Arc;

use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::stage::{AUDIENCE, ROLE, Stage, must_be_denied, must_pass, token_request};

pub(super) async fn bound_pods(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } });
        hub.admin().create("/api/v1/nodes", &node).await?;
        let certificate = hub.ca().client("system:node:node-1", "system:nodes")?;
        let kubelet = RestClient::with_certificate(&hub.url(), hub.ca_pem(), &certificate)?;
        for account in ["reconciler", "other"] {
            let pod = hub
                .admin()
                .create("/api/v1/namespaces/tenant-a/pods", &pod(account))
                .await?;
            let uid = &pod["metadata"]["uid"];
            let path = format!("/api/v1/namespaces/tenant-a/serviceaccounts/{account}/token");
            let ask = async |audiences: &[&str]| {
                let mut request = token_request(audiences);
                request["spec"]["boundObjectRef"] =
                    json!({ "kind": "Pod", "apiVersion": "v1", "name": account, "uid": uid });
                // The Node authoriser takes a moment to see a new Pod.
                let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
                loop {
                    let answer = kubelet.create(&path, &request).await;
                    let early = answer
                        .as_ref()
                        .is_err_and(|error| error.to_string().contains("no relationship found"));
                    if !early || std::time::Instant::now() > limit {
                        return answer;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            must_pass("the hub's own token", ask(&[]).await)?;
            must_pass("a volume of another system", ask(&["vault"]).await)?;
            // The one account may use the cluster, the other one its role.
            let (allowed, refused) = match account {
                "reconciler" => (AUDIENCE, ROLE),
                _ => (ROLE, AUDIENCE),
            };
            must_pass("a volume with the listed audience", ask(&[allowed]).await)?;
            must_be_denied(
                "a volume with another's audience",
                ask(&[refused]).await,
                "keyferry-pairing",
            )?;
        }
    }
    Ok(())
}

/// A Pod on the node whose volumes request tokens of four audiences.
fn pod(account: &str) -> Value {
    let source = |path: &str, audience: &str| json!({ "serviceAccountToken": { "path": path, "audience": audience } });
    let sources = json!([{ "serviceAccountToken": { "path": "own" } }, source("vault", "vault"), source("target", AUDIENCE), source("role", ROLE)]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": account, "namespace": "tenant-a" },
        "spec": {
            "nodeName": "node-1", "serviceAccountName": account, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "none.invalid/none" }],
            "volumes": [{ "name": "tokens", "projected": { "sources": sources } }],
        },
    })
}
