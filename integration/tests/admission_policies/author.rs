//! keyferry-author: restricts who may write TargetAccesses.

use std::sync::Arc;

use http::Method;
use keyferry_core::admission_policy;
use keyferry_integration::rest::{RestClient, RestError};
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::people;
use super::stage::{ADMISSION, KEYFERRY, Stage, must_be_denied, must_pass};

const POLICY: &str = "keyferry-author";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let path = format!("{KEYFERRY}/namespaces/tenant-a/targetaccesses");
        let accesses = json!({ "apiGroups": ["keyferry.dev"], "resources": ["targetaccesses", "targetaccesses/status"], "verbs": ["*"] });
        let secrets =
            json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] });
        let token = |names: &[&str]| json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": names, "verbs": ["create"] });
        // May write accesses and read the delivered Secrets, but not mint.
        let reader =
            people::with_rules(hub, "tenant-a", "reader", json!([accesses, secrets])).await?;
        // May mint for one of the two ServiceAccounts.
        let minter = people::with_rules(
            hub,
            "tenant-a",
            "minter",
            json!([accesses, token(&["other"])]),
        )
        .await?;
        let engineer = people::tenant(hub, "tenant-a").await?;

        for (name, client, account) in [
            ("reader", &reader, "other"),
            ("minter", &minter, "reconciler"),
        ] {
            let description = format!("{name} for {account} on {}", hub.name());
            must_be_denied(
                &description,
                client.create(&path, &access("new", account)).await,
                POLICY,
            )?;
            must_be_denied(
                &description,
                client
                    .create(&format!("{path}?dryRun=All"), &access("new", account))
                    .await,
                POLICY,
            )?;
            must_be_denied(
                &description,
                client
                    .apply(&format!("{path}/new"), &access("new", account))
                    .await,
                POLICY,
            )?;
            let mut unnamed = access("", account);
            unnamed["metadata"] = json!({ "generateName": "new-", "namespace": "tenant-a" });
            must_be_denied(&description, client.create(&path, &unnamed).await, POLICY)?;
        }
        must_pass(
            "a minter for its account",
            minter.create(&path, &access("by-minter", "other")).await,
        )?;
        must_pass(
            "an engineer",
            engineer
                .create(&path, &access("by-engineer", "reconciler"))
                .await,
        )?;
        let generated = json!({ "generateName": "new-", "namespace": "tenant-a" });
        let mut unnamed = access("", "other");
        unnamed["metadata"] = generated;
        must_pass("a generated name", minter.create(&path, &unnamed).await)?;

        // A change of the ServiceAccount alone, by every way of writing.
        let there = format!("{path}/by-minter");
        let change = json!({ "spec": { "serviceAccountName": "reconciler" } });
        must_be_denied("a merge patch", minter.patch(&there, &change).await, POLICY)?;
        must_be_denied(
            "a dry merge patch",
            minter.patch(&format!("{there}?dryRun=All"), &change).await,
            POLICY,
        )?;
        must_be_denied(
            "a server-side apply",
            minter
                .apply(&there, &access("by-minter", "reconciler"))
                .await,
            POLICY,
        )?;
        must_be_denied("a JSON patch", json_patch(&minter, &there).await, POLICY)?;
        let mut whole = minter.get(&there).await?;
        whole["spec"]["serviceAccountName"] = json!("reconciler");
        must_be_denied("a PUT", minter.replace(&there, &whole).await, POLICY)?;
        // A write to the status changes nothing in the spec.
        let by_status = must_pass(
            "status",
            minter.replace(&format!("{there}/status"), &whole).await,
        )?;
        assert_eq!(
            by_status["spec"]["serviceAccountName"],
            "other",
            "on {}",
            hub.name()
        );
        let by_status = must_pass(
            "status",
            minter.patch(&format!("{there}/status"), &change).await,
        )?;
        assert_eq!(
            by_status["spec"]["serviceAccountName"],
            "other",
            "on {}",
            hub.name()
        );

        // Every other change of a spec is refused too: another delivery stores the token in another
        // place.
        let theirs = format!("{path}/by-engineer");
        for change in [
            json!({ "targetClusterRef": { "name": "x" } }),
            json!({ "deliveries": [] }),
            json!({ "suspend": true }),
        ] {
            must_be_denied(
                "another field",
                minter.patch(&theirs, &json!({ "spec": change })).await,
                POLICY,
            )?;
        }
        // The controller and `kubectl annotate` write only metadata, which changes no spec.
        let metadata = json!({ "annotations": { "keyferry.dev/requestedAt": "now" }, "finalizers": ["keyferry.dev/drain"], "labels": { "a": "b" } });
        must_pass(
            "metadata",
            reader
                .patch(&theirs, &json!({ "metadata": metadata }))
                .await,
        )?;
        must_pass(
            "status",
            reader
                .patch(
                    &format!("{theirs}/status"),
                    &json!({ "status": { "observedGeneration": 1 } }),
                )
                .await,
        )?;
        must_pass(
            "no finalizer",
            reader
                .patch(&theirs, &json!({ "metadata": { "finalizers": null } }))
                .await,
        )?;
        must_pass("deletion", reader.delete(&theirs).await)?;
    }
    Ok(())
}

/// Checks that Keyferry recognises the policy as an apiserver returns it, with defaults filled in,
/// and does not accept versions without effect.
pub(super) async fn active_policy_is_recognised(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let policy_path = format!("{ADMISSION}/validatingadmissionpolicies/{POLICY}");
        let binding_path = format!("{ADMISSION}/validatingadmissionpolicybindings/{POLICY}");
        let keyferry = people::keyferry(hub).await?;
        let (policy, binding) = (
            keyferry.get(&policy_path).await?,
            keyferry.get(&binding_path).await?,
        );
        admission_policy::AUTHOR_POLICY.compare_with_shipped(
            &policy,
            &binding,
            &admission_policy::HubSite::of_shipped_manifests(),
        )?;
        // The policies as the apiserver would store them.
        let hollow = [
            json!({ "spec": { "validations": [{ "expression": "true" }] } }),
            json!({ "spec": { "failurePolicy": "Ignore" } }),
            json!({ "spec": { "matchConditions": [{ "name": "none", "expression": "false" }] } }),
            json!({ "spec": { "matchConstraints": { "namespaceSelector": { "matchLabels": { "a": "b" } } } } }),
            json!({ "spec": { "matchConstraints": { "excludeResourceRules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }] } } }),
            json!({ "spec": { "variables": [{ "name": "authorizer", "expression": "1" }] } }),
        ];
        for change in hollow {
            let policy = hub
                .admin()
                .patch(&format!("{policy_path}?dryRun=All"), &change)
                .await?;
            assert!(
                admission_policy::AUTHOR_POLICY
                    .compare_with_shipped(
                        &policy,
                        &binding,
                        &admission_policy::HubSite::of_shipped_manifests()
                    )
                    .is_err(),
                "{change} on {}",
                hub.name()
            );
        }
        let unbound = [
            json!({ "spec": { "validationActions": ["Audit"] } }),
            json!({ "spec": { "validationActions": ["Warn"] } }),
            json!({ "spec": { "policyName": "other" } }),
            json!({ "spec": { "matchResources": { "namespaceSelector": { "matchLabels": { "a": "b" } } } } }),
            json!({ "spec": { "matchResources": { "objectSelector": { "matchLabels": { "a": "b" } } } } }),
            json!({ "spec": { "paramRef": { "name": "x", "parameterNotFoundAction": "Allow" } } }),
        ];
        for change in unbound {
            let binding = hub
                .admin()
                .patch(&format!("{binding_path}?dryRun=All"), &change)
                .await?;
            assert!(
                admission_policy::AUTHOR_POLICY
                    .compare_with_shipped(
                        &policy,
                        &binding,
                        &admission_policy::HubSite::of_shipped_manifests()
                    )
                    .is_err(),
                "{change} on {}",
                hub.name()
            );
        }
    }
    Ok(())
}

fn access(name: &str, account: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": name, "namespace": "tenant-a" },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": account, "deliveries": [{ "name": "a", "type": "KubeConfigSecret" }] },
    })
}

async fn json_patch(client: &RestClient, path: &str) -> Result<Value, RestError> {
    let change =
        json!([{ "op": "replace", "path": "/spec/serviceAccountName", "value": "reconciler" }]);
    patch_as(client, path, "application/json-patch+json", &change).await
}

async fn patch_as(
    client: &RestClient,
    path: &str,
    kind: &str,
    change: &Value,
) -> Result<Value, RestError> {
    let request = client
        .request(Method::PATCH, path)
        .header("content-type", kind)
        .body(change.to_string());
    let answered: Result<(u16, String), TestError> = async {
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
    .await;
    let (status, message) = answered.unwrap_or((0, "no answer".to_owned()));
    if status == 200 {
        return Ok(Value::Null);
    }
    Err(RestError::Status {
        method: Method::PATCH,
        path: path.to_owned(),
        status,
        reason: String::new(),
        message,
    })
}
