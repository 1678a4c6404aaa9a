//! Creates the accounts that tests act as, each with the rights that such people have.

use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::TestError;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Keyferry's own account, with the rights of its manifests.
pub(super) async fn keyferry(hub: &ControlPlane) -> Result<RestClient, TestError> {
    account(hub, "keyferry-system", "keyferry").await
}

/// An account without rights from this test. It is created unless it exists.
pub(super) async fn account(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
) -> Result<RestClient, TestError> {
    hub.create_namespace_with_service_account(namespace, name)
        .await?;
    let token = hub.token_request(namespace, name, &[], 3600).await?.token;
    Ok(hub.as_bearer(&token)?)
}

/// A tenant's engineer: in one namespace, the rules that make up the role `edit` (only a
/// controller-manager aggregates it) and all rights on TargetAccesses.
pub(super) async fn tenant(hub: &ControlPlane, namespace: &str) -> Result<RestClient, TestError> {
    let client = account(hub, namespace, "engineer").await?;
    bind(
        hub,
        namespace,
        "engineer",
        "ClusterRole",
        "system:aggregate-to-edit",
    )
    .await?;
    grant(
        hub,
        namespace,
        "engineer",
        json!([{ "apiGroups": ["keyferry.dev"], "resources": ["targetaccesses"], "verbs": ["*"] }]),
    )
    .await?;
    Ok(client)
}

/// An account with these rules in one namespace and no other rights.
pub(super) async fn with_rules(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    rules: Value,
) -> Result<RestClient, TestError> {
    let client = account(hub, namespace, name).await?;
    grant(hub, namespace, name, rules).await?;
    Ok(client)
}

/// An account with these rules in the whole cluster.
pub(super) async fn with_cluster_rules(
    hub: &ControlPlane,
    name: &str,
    rules: Value,
) -> Result<RestClient, TestError> {
    let client = account(hub, "people", name).await?;
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
    hub.admin()
        .apply(&format!("{RBAC}/clusterroles/{name}"), &role)
        .await?;
    hub.bind_user_to_cluster_role(&format!("system:serviceaccount:people:{name}"), name)
        .await?;
    Ok(client)
}

/// A ServiceAccount that is bound to cluster-admin. RBAC applies to it, unlike to a member of
/// system:masters.
pub(super) async fn cluster_admin(hub: &ControlPlane) -> Result<RestClient, TestError> {
    let client = account(hub, "people", "root").await?;
    hub.bind_user_to_cluster_role("system:serviceaccount:people:root", "cluster-admin")
        .await?;
    Ok(client)
}

/// Grants these rules in one namespace to an account of any namespace.
pub(super) async fn allow(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    account: (&str, &str),
    rules: Value,
) -> Result<(), TestError> {
    let metadata = json!({ "name": name, "namespace": namespace });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules });
    hub.admin()
        .apply(
            &format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
            &role,
        )
        .await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "namespace": account.0, "name": account.1 }],
    });
    hub.admin()
        .apply(
            &format!("{RBAC}/namespaces/{namespace}/rolebindings/{name}"),
            &binding,
        )
        .await?;
    let username = format!("system:serviceaccount:{}:{}", account.0, account.1);
    Ok(hub
        .until_it_counts(Whom::User(&username), namespace, &role["rules"][0])
        .await?)
}

async fn grant(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    rules: Value,
) -> Result<(), TestError> {
    let metadata = json!({ "name": name, "namespace": namespace });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules });
    hub.admin()
        .apply(
            &format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
            &role,
        )
        .await?;
    bind(hub, namespace, name, "Role", name).await
}

async fn bind(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    kind: &str,
    role: &str,
) -> Result<(), TestError> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": format!("{name}-{role}"), "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
    });
    hub.admin()
        .apply(
            &format!("{RBAC}/namespaces/{namespace}/rolebindings/{name}-{role}"),
            &binding,
        )
        .await?;
    let of_what = match kind {
        "ClusterRole" => {
            hub.admin()
                .get(&format!("{RBAC}/clusterroles/{role}"))
                .await?
        }
        _ => {
            hub.admin()
                .get(&format!("{RBAC}/namespaces/{namespace}/roles/{role}"))
                .await?
        }
    };
    let username = format!("system:serviceaccount:{namespace}:{name}");
    Ok(hub
        .until_it_counts(Whom::User(&username), namespace, &of_what["rules"][0])
        .await?)
}
