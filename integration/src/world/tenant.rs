//! Tenants on a hub: their namespaces, ServiceAccounts and roles, and the tokens that Keyferry
//! minted for them.

use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Whom};
use crate::runner::TestError;

/// Keyferry's own username on a hub.
const KEYFERRY: &str = "system:serviceaccount:keyferry-system:keyferry";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The subject that receives the right to create tokens.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A ServiceAccount, by namespace and name.
    ServiceAccount(&'a str, &'a str),
    /// A group.
    Group(&'a str),
}

impl Subject<'_> {
    fn in_rbac(self) -> Value {
        match self {
            Subject::ServiceAccount(namespace, name) => {
                json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
            }
            Subject::Group(name) => {
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name })
            }
        }
    }
}

/// Creates a namespace with ServiceAccounts and lets Keyferry mint for each of them, as
/// `examples/in-cluster/tenant-a.yaml` does.
///
/// # Errors
/// Any error from the hub.
pub async fn make_tenant(
    hub: &ControlPlane,
    namespace: &str,
    accounts: &[&str],
) -> Result<(), TestError> {
    hub.create_namespace(namespace).await?;
    for account in accounts {
        hub.create_service_account(namespace, account).await?;
    }
    let_mint(
        hub,
        "keyferry-minter",
        Subject::ServiceAccount("keyferry-system", "keyferry"),
        namespace,
        accounts,
    )
    .await
}

/// Lets a subject create tokens for these ServiceAccounts of the namespace, by a Role and a
/// RoleBinding of this name. Waits until the hub's authorizer has seen them.
///
/// # Errors
/// Any error from the hub.
pub async fn let_mint(
    hub: &ControlPlane,
    name: &str,
    subject: Subject<'_>,
    namespace: &str,
    accounts: &[&str],
) -> Result<(), TestError> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": { "name": name, "namespace": namespace },
        "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": accounts, "verbs": ["create"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [subject.in_rbac()],
    });
    hub.admin()
        .apply(
            &format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
            &role,
        )
        .await?;
    hub.admin()
        .apply(&binding_path(namespace, name), &binding)
        .await?;
    let rule = &role["rules"][0];
    match subject {
        Subject::ServiceAccount(home, name) => {
            let username = format!("system:serviceaccount:{home}:{name}");
            hub.until_it_counts(Whom::User(&username), namespace, rule)
                .await?;
        }
        Subject::Group(name) => {
            hub.until_it_counts(Whom::Group(name), namespace, rule)
                .await?
        }
    }
    Ok(())
}

/// Deletes the Role and the RoleBinding that [`let_mint`] created.
///
/// # Errors
/// Any error from the hub.
pub async fn take_back(hub: &ControlPlane, name: &str, namespace: &str) -> Result<(), TestError> {
    hub.admin().delete(&binding_path(namespace, name)).await?;
    Ok(())
}

/// How often Keyferry requested a token for a ServiceAccount of the namespace, counted in the hub's
/// own audit log. Refused requests count too.
///
/// # Errors
/// The hub writes no audit log.
pub fn token_requests(hub: &ControlPlane, namespace: &str) -> Result<usize, TestError> {
    let events = hub.audit_events()?;
    let of_keyferry = events.iter().filter(|event| {
        let object = &event["objectRef"];
        event["user"]["username"] == KEYFERRY
            && object["subresource"] == "token"
            && object["namespace"] == namespace
    });
    Ok(of_keyferry.count())
}

fn binding_path(namespace: &str, name: &str) -> String {
    format!("{RBAC}/namespaces/{namespace}/rolebindings/{name}")
}
