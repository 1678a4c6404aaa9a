//! keyferry-retarget: restricts changes of where a target's tokens are sent.

use std::sync::Arc;

use keyferry_integration::control_plane::Whom;
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::people;
use super::stage::{KEYFERRY, Stage, must_be_denied, must_pass};

const POLICY: &str = "keyferry-retarget";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let path = format!("{KEYFERRY}/targetclusters");
        let verbs = json!(["get", "list", "create", "update", "patch", "delete"]);
        let rules = json!([
            { "apiGroups": ["keyferry.dev"], "resources": ["targetclusters", "targetclusters/status"], "verbs": verbs },
            { "apiGroups": ["keyferry.dev"], "resources": ["audiences"], "verbs": ["claim"] },
        ]);
        let editor = people::with_cluster_rules(hub, "target-editor", rules).await?;
        let platform = people::account(hub, "people", "platform").await?;
        hub.bind_user_to_cluster_role("system:serviceaccount:people:platform", "keyferry-platform")
            .await?;

        must_be_denied(
            "creation",
            editor.create(&path, &target("prod")).await,
            POLICY,
        )?;
        must_be_denied(
            "creation by apply",
            editor.apply(&format!("{path}/prod"), &target("prod")).await,
            POLICY,
        )?;
        must_pass(
            "creation by the platform",
            platform.create(&path, &target("prod")).await,
        )?;
        let there = format!("{path}/prod");
        let moves = [
            json!({ "address": "https://evil.example.com" }),
            json!({ "address": "https://prod.example.com:6444" }),
            json!({ "tlsServerName": "evil.example.com" }),
            json!({ "proxyURL": "http://evil.example.com:3128" }),
            json!({ "issuer": "Keyferry" }),
            json!({ "targetIssuer": "https://evil.example.com" }),
            json!({ "certSecretRef": { "name": "evil" } }),
            json!({ "certSecretRef": null }),
            json!({ "certSecretRef": null, "clusterTrustBundleRef": { "name": "evil" } }),
            json!({ "certSecretRef": null, "caBundle": "-----BEGIN CERTIFICATE-----" }),
            json!({ "probe": "Off" }),
            json!({ "tokenLifetime": { "max": "24h" } }),
            json!({ "tokenLifetime": { "default": "10m" } }),
        ];
        for change in moves {
            let change = json!({ "spec": change });
            must_be_denied(
                &change.to_string(),
                editor.patch(&there, &change).await,
                POLICY,
            )?;
            must_be_denied(
                &change.to_string(),
                editor.patch(&format!("{there}?dryRun=All"), &change).await,
                POLICY,
            )?;
            let mut whole = target("prod");
            whole["spec"]["address"] = json!("https://evil.example.com");
            must_be_denied("apply", editor.apply(&there, &whole).await, POLICY)?;
            // A write to the status changes nothing in the spec.
            let by_status = must_pass(
                "status",
                editor.patch(&format!("{there}/status"), &change).await,
            )?;
            assert_eq!(
                by_status["spec"],
                target("prod")["spec"],
                "on {}",
                hub.name()
            );
            must_pass(
                &change.to_string(),
                platform
                    .patch(&format!("{there}?dryRun=All"), &change)
                    .await,
            )?;
        }
        // Who approves a client certificate of the hub is no decision of an editor either.
        let mut hub_itself = target("hub-itself");
        hub_itself["spec"]["audience"] = json!("https://hub.example.com");
        hub_itself["spec"]["hub"] = json!(true);
        hub_itself["spec"]["allow"][0]["deliveries"] = json!(["ClientCertificateSecret"]);
        must_pass(
            "creation of a target that is the hub",
            platform.create(&path, &hub_itself).await,
        )?;
        for change in [
            json!({ "clientCertificates": { "approval": "Automatic" } }),
            json!({ "clientCertificates": { "maxLifetime": "12h" } }),
        ] {
            must_be_denied(
                &change.to_string(),
                editor
                    .patch(&format!("{path}/hub-itself"), &json!({ "spec": change }))
                    .await,
                POLICY,
            )?;
        }
        for change in [
            json!({ "suspend": true }),
            json!({ "allow": [] }),
            json!({ "deletionPolicy": "Immediate" }),
            // Without it false, as it is.
            json!({ "hub": null }),
        ] {
            must_pass(
                &change.to_string(),
                editor
                    .patch(&format!("{there}?dryRun=All"), &json!({ "spec": change }))
                    .await,
            )?;
        }
        // Who stopped a target decides when it goes on.
        let suspended = |suspend: bool| json!({ "spec": { "suspend": suspend } });
        must_pass("a stop", editor.patch(&there, &suspended(true)).await)?;
        let resumed = editor.patch(&there, &suspended(false)).await;
        must_be_denied("going on", resumed, POLICY)?;
        let removed = json!({ "spec": { "suspend": null } });
        must_be_denied("going on", editor.patch(&there, &removed).await, POLICY)?;
        let allowed = json!({ "spec": { "allow": [] } });
        let changed = editor.patch(&format!("{there}?dryRun=All"), &allowed).await;
        must_pass("another change meanwhile", changed)?;
        must_pass(
            "the platform",
            platform.patch(&there, &suspended(false)).await,
        )?;
        // An account of that name elsewhere is no account of Keyferry.
        let namesake = people::account(hub, "tenant-b", "keyferry").await?;
        hub.bind_user_to_cluster_role("system:serviceaccount:tenant-b:keyferry", "target-editor")
            .await?;
        let changed = namesake
            .patch(&format!("{there}?dryRun=All"), &allowed)
            .await;
        must_pass("an account of the same name", changed)?;
        // Keyferry's own account needs the right to patch the object for its finalizer. RBAC cannot
        // limit the right to that field.
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let rule = json!({ "apiGroups": ["keyferry.dev"], "resources": ["targetclusters"], "verbs": ["patch"] });
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "keyferry-finalizer" },
            "rules": [rule],
        });
        hub.admin()
            .apply(&format!("{rbac}/clusterroles/keyferry-finalizer"), &role)
            .await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "keyferry-finalizer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keyferry-finalizer" },
            "subjects": [{ "kind": "ServiceAccount", "namespace": "keyferry-system", "name": "keyferry" }],
        });
        hub.admin()
            .apply(
                &format!("{rbac}/clusterrolebindings/keyferry-finalizer"),
                &binding,
            )
            .await?;
        hub.until_it_counts(
            Whom::User("system:serviceaccount:keyferry-system:keyferry"),
            "",
            &rule,
        )
        .await?;
        let own = people::keyferry(hub).await?;
        for change in [
            json!({ "allow": [] }),
            json!({ "suspend": true }),
            json!({ "address": "https://evil.example.com" }),
        ] {
            must_be_denied(
                &change.to_string(),
                own.patch(&format!("{there}?dryRun=All"), &json!({ "spec": change }))
                    .await,
                POLICY,
            )?;
        }
        let finalizer = json!({ "metadata": { "finalizers": ["keyferry.dev/drain"] } });
        must_pass(
            "its finalizer",
            own.patch(&format!("{there}?dryRun=All"), &finalizer).await,
        )?;
        // Deleting the target and creating it again does not bypass the policy.
        must_pass("deletion", editor.delete(&there).await)?;
        let mut elsewhere = target("prod");
        elsewhere["spec"]["address"] = json!("https://evil.example.com");
        must_be_denied("recreated", editor.create(&path, &elsewhere).await, POLICY)?;
    }
    Ok(())
}

fn target(name: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name },
        "spec": { "kind": "Cluster",
            "address": "https://prod.example.com:6443", "audience": "https://prod.example.com", "certSecretRef": { "name": "prod-ca" },
            "issuer": "Hub", "deletionPolicy": "Drain", "suspend": false, "hub": false, "probe": "Report",
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"] }],
        },
    })
}
