//! The RBAC objects for the users that the target rules admit. Nothing is bound unless it is
//! requested.

use keyferry_api::service_account::ServiceAccount;
use serde_json::{Value, json};

use super::target_rules::TargetRules;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the objects in the order in which they can be applied; none if nothing is requested.
pub(super) fn objects(
    rules: &TargetRules,
    bind: Option<&str>,
    flux: Option<&ServiceAccount>,
) -> Vec<Value> {
    let users: Vec<Value> = rules.users().map(|user| subject_user(&user)).collect();
    let name = name(&rules.prefix);
    let mut objects = Vec::new();
    if let Some(flux) = flux {
        objects.extend(for_flux(&name, &users, flux));
    }
    if let Some(role) = bind {
        let subjects = flux.map_or(users, |account| vec![subject_account(account)]);
        let name = format!("{name}-{}", slug(role));
        objects.push(cluster_role_binding(&name, role, &subjects));
    }
    objects
}

/// The rights of a hub's Flux controller whose objects name a ServiceAccount to impersonate at the
/// target.
fn for_flux(name: &str, users: &[Value], flux: &ServiceAccount) -> [Value; 6] {
    let ServiceAccount {
        namespace,
        name: account,
    } = flux;
    let impersonate = format!("{name}-impersonate-{account}");
    let probe = format!("{name}-probe");
    let in_namespace = |name: &str| json!({ "name": name, "namespace": namespace.as_str() });
    let probing: Vec<Value> = users
        .iter()
        .cloned()
        .chain([subject_account(flux)])
        .collect();
    [
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace.as_str() },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": in_namespace(account.as_str()),
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "Role",
            "metadata": in_namespace(&impersonate),
            "rules": [{
                "apiGroups": [""],
                "resources": ["serviceaccounts"],
                "resourceNames": [account.as_str()],
                "verbs": ["impersonate"],
            }],
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "RoleBinding",
            "metadata": in_namespace(&impersonate),
            "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": impersonate },
            "subjects": users,
        }),
        // Flux's client disables its own throttling only if it may call this.
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "ClusterRole",
            "metadata": { "name": probe },
            "rules": [{ "nonResourceURLs": ["/livez/ping"], "verbs": ["head"] }],
        }),
        cluster_role_binding(&probe, &probe, &probing),
    ]
}

fn cluster_role_binding(name: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
}

fn subject_user(user: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": "User", "name": user })
}

fn subject_account(account: &ServiceAccount) -> Value {
    json!({
        "kind": "ServiceAccount",
        "namespace": account.namespace.as_str(),
        "name": account.name.as_str(),
    })
}

/// Returns a name for the objects of the hub with this prefix.
fn name(prefix: &str) -> String {
    format!("keyferry-{}", slug(prefix))
        .trim_end_matches('-')
        .to_owned()
}

fn slug(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    text.chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect::<String>()
        .trim_matches('-')
        .to_owned()
}
