//! Constrained impersonation (KEP-5284, on by default from 1.36) by the user of a role.

use http::Method;
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::TestResult;
use serde_json::json;

use super::{NAMESPACES, TARGETS};

const NAMESPACE: &str = "role-acts";
/// The first minor whose feature gate ConstrainedImpersonation is on by default.
const SINCE: u16 = 36;

/// What the target's admin binds to the group of `deploy`: it may list ConfigMaps as one account.
const RBAC: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: act, namespace: role-acts}
rules:
- {apiGroups: [authentication.k8s.io], resources: [serviceaccounts], resourceNames: [runner], verbs: ["impersonate:serviceaccount"]}
- {apiGroups: [""], resources: [configmaps], verbs: ["impersonate-on:serviceaccount:list"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: act, namespace: role-acts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: act}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "hub:role:deploy"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: runner, namespace: role-acts}
rules:
- {apiGroups: [""], resources: [configmaps, secrets], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: runner, namespace: role-acts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: runner}
subjects:
- {kind: ServiceAccount, name: runner, namespace: role-acts}
"#;

/// The token of `deploy` lists ConfigMaps as the account, and nothing else; that of `view` acts as
/// nobody. Before [`SINCE`] the verbs mean nothing, so neither does.
pub(super) async fn a_role_acts_as_an_account_where_it_may(
    hub: &ControlPlane,
    target: &ControlPlane,
) -> TestResult {
    target.create_namespace(NAMESPACE).await?;
    target.create_service_account(NAMESPACE, "runner").await?;
    let file = target.folder().join("role-acts.yaml");
    std::fs::write(&file, RBAC)?;
    apply_manifests(target, &[&file]).await?;
    let list = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list"] });
    let act = json!({
        "apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["impersonate-on:serviceaccount:list"],
    });
    let runner = format!("system:serviceaccount:{NAMESPACE}:runner");
    for (whom, rule) in [
        (Whom::User(&runner), &list),
        (Whom::Group("hub:role:deploy"), &act),
    ] {
        target.until_it_counts(whom, NAMESPACE, rule).await?;
    }
    let [_, view, deploy] = TARGETS;
    let acts = if target.minor().number() >= SINCE {
        200
    } else {
        403
    };
    let client = RestClient::anonymous(&target.url(), target.ca_pem())?;
    for ((_, _, audience), resource, account, expected) in [
        (deploy, "configmaps", "runner", acts),
        (deploy, "secrets", "runner", 403),
        (deploy, "configmaps", "default", 403),
        (deploy, "configmaps", "", 403),
        (view, "configmaps", "runner", 403),
        (view, "configmaps", "", 200),
    ] {
        // This account may use all of them.
        let minted = hub
            .token_request(NAMESPACES[1], "worker-9", &[audience], 600)
            .await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/{resource}");
        let mut request = client.request(Method::GET, &path).bearer_auth(minted.token);
        if !account.is_empty() {
            let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
            request = request.header("Impersonate-User", user);
        }
        let status = request.send().await?.status().as_u16();
        assert_eq!(
            status, expected,
            "{audience} lists {resource} as {account:?}"
        );
    }
    Ok(())
}
