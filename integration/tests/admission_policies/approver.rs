//! `keyferry approve-certificates`: it approves only while the policies that its answer depends on
//! are as shipped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use jiff::Timestamp;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_core::client_certificate::{COLLECTION_PATH, request_object};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rbac::{apply_manifests, service_account_kubeconfig};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use keyferry_keys::client_certificate::{CertificateRequest, ClientKey};
use serde_json::{Value, json};

use super::people;
use super::stage::{ADMISSION, KEYFERRY, Stage, restore};

const CONFIGURATION: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n\
    objects: CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\n\
    discovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";
const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/approved-hub";

pub(super) async fn nothing_is_approved_without_the_policies(stage: Arc<Stage>) -> TestResult {
    let installed = [
        "client-certificates/requester",
        "certificate-approver/approver",
    ]
    .map(|name| shipped(&format!("examples/install/{name}.yaml")));
    for hub in &stage.hubs {
        apply_manifests(hub, &installed.each_ref().map(PathBuf::as_path)).await?;
        let label = json!({ "metadata": { "labels": { "access.keyferry.dev/team": "a" } } });
        let namespace = "/api/v1/namespaces/tenant-a";
        hub.admin().patch(namespace, &label).await?;
        put_access(hub).await?;
        let by_name = json!({ "namespaces": ["tenant-a"] });
        let by_selector =
            json!({ "namespaceSelector": { "matchLabels": { "access.keyferry.dev/team": "a" } } });
        for rule in [&by_name, &by_selector] {
            put_target(hub, rule).await?;
            let (approved, said) = approved(&stage, hub).await?;
            assert!(approved, "{rule} on {}: {said}", hub.name());
        }
        // Without keyferry-labels, anyone who edits a namespace could make the selector match.
        for (binding, rule, may) in [
            ("keyferry-labels", &by_selector, false),
            ("keyferry-labels", &by_name, true),
            ("keyferry-retarget", &by_name, false),
            ("keyferry-self-targets", &by_name, false),
            ("keyferry-self-secrets", &by_name, false),
            ("keyferry-author", &by_name, false),
        ] {
            put_target(hub, rule).await?;
            let path = format!("{ADMISSION}/validatingadmissionpolicybindings/{binding}");
            let hollow = json!({ "spec": { "validationActions": ["Audit"] } });
            hub.admin().patch(&path, &hollow).await?;
            let (approved, said) = approved(&stage, hub).await?;
            let what = format!("without {binding}, {rule} on {}: {said}", hub.name());
            assert_eq!(approved, may, "{what}");
            assert!(may || said.contains(binding), "{what}");
            restore(hub).await?;
        }
        hub.admin().delete(TARGET).await?;
        hub.admin().delete(&access()).await?;
    }
    Ok(())
}

fn access() -> String {
    format!("{KEYFERRY}/namespaces/tenant-a/targetaccesses/approved")
}

async fn put_access(hub: &ControlPlane) -> TestResult {
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": { "name": "approved", "namespace": "tenant-a" },
        "spec": {
            "targetClusterRef": { "name": "approved-hub" }, "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }],
        },
    });
    hub.admin().apply(&access(), &object).await?;
    Ok(())
}

async fn put_target(hub: &ControlPlane, rule: &Value) -> TestResult {
    let mut allow = rule.clone();
    allow["serviceAccounts"] = json!(["reconciler"]);
    allow["deliveries"] = json!(["ClientCertificateSecret"]);
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "approved-hub" },
        "spec": {
            "address": hub.url(), "audience": "https://approved-hub.keyferry.test", "hub": true,
            "clientCertificates": { "approval": "Automatic" }, "allow": [allow],
        },
    });
    hub.admin().apply(TARGET, &object).await?;
    Ok(())
}

/// Creates a request as Keyferry does, runs the approver once under its own account, and returns
/// whether it approved, and what it said.
async fn approved(stage: &Stage, hub: &Arc<ControlPlane>) -> Result<(bool, String), TestError> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
        .map_err(|_| "no key could be made")?;
    let key = ClientKey::from_pkcs8(pkcs8.as_ref().to_vec().into());
    let user = "keyferry:tenant-a:reconciler";
    let request = CertificateRequest::sign(&key, user, Duration::from_secs(3600))
        .map_err(|_| "no request could be signed")?;
    let (access, delivery) = (
        AccessName::parse("tenant-a/approved")?,
        ObjectName::new("tls")?,
    );
    let request = request_object(&request, &access, &delivery, Timestamp::now());
    let created = people::keyferry(hub)
        .await?
        .create(COLLECTION_PATH, &request)
        .await?;
    let config = hub.folder().join("approver.yaml");
    std::fs::write(&config, CONFIGURATION)?;
    let approver = "keyferry-certificate-approver";
    let kubeconfig = service_account_kubeconfig(hub, "keyferry-system", approver, 600).await?;
    let command = [
        "approve-certificates",
        "--once",
        "--config",
        &config.display().to_string(),
        "--kubeconfig",
        &kubeconfig.path().display().to_string(),
    ];
    let output = stage.binary.run(&command, &[]).await?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{COLLECTION_PATH}/{name}");
    let conditions = hub.admin().get(&path).await?["status"]["conditions"].to_string();
    // Other runs must not decide about it.
    hub.admin().delete(&path).await?;
    Ok((conditions.contains("KeyferryPolicy"), said))
}
