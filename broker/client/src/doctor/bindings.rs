//! Finds bindings of a target that were meant for a user of the hub but name another subject.

use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::client::HubClient;
use serde::Deserialize;

use crate::doctor::diagnosis::MistakenBinding;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The most bindings of each kind that are read.
const MAX_BINDINGS: usize = 10_000;
/// How many mistaken bindings of each kind are kept. The report names three.
const MAX_MISTAKEN: usize = 16;

/// A RoleBinding or ClusterRoleBinding, reduced to its name and its subjects. Users of the target
/// decide how long the rest is, so it is skipped while a list is parsed.
#[derive(Debug, Deserialize)]
struct Binding {
    metadata: Place,
    subjects: Option<Vec<Subject>>,
}

#[derive(Debug, Deserialize)]
struct Place {
    namespace: Option<String>,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

/// Finds bindings with the wrong subject: the hub's ServiceAccount as if it were the target's own,
/// or its user name without the hub's prefix. What may not be read, and what comes after
/// [`MAX_BINDINGS`], is left out. So this is a hint, and no report says that there is none.
pub(crate) async fn mistaken(client: &HubClient, subject: &str) -> Vec<MistakenBinding> {
    let mut found = Vec::new();
    for (kind, plural) in [
        ("RoleBinding", "rolebindings"),
        ("ClusterRoleBinding", "clusterrolebindings"),
    ] {
        let path = format!("{RBAC}/{plural}");
        let mistake = |binding: Binding| mistake(kind, &binding, subject);
        let read = client
            .list_at_most(&path, MAX_BINDINGS, "list of bindings", mistake)
            .await;
        if let Ok(read) = read {
            found.extend(read.kept.into_iter().take(MAX_MISTAKEN));
        }
    }
    found
}

fn mistake(kind: &str, binding: &Binding, subject: &str) -> Option<MistakenBinding> {
    let account = ServiceAccount::from_username(subject).ok();
    let wrong = binding.subjects.iter().flatten().find_map(|named| {
        let (name, namespace) = (&named.name, &named.namespace);
        let is_account = account.as_ref().is_some_and(|account| {
            account.name.as_str() == name && account.namespace.as_str() == namespace
        });
        match named.kind.as_str() {
            "ServiceAccount" if is_account => Some(format!(
                "kind ServiceAccount {namespace}/{name}, which is the target's own"
            )),
            "User" if name == subject => {
                Some(format!("kind User {name}, without the hub's prefix"))
            }
            _ => None,
        }
    })?;
    let place = &binding.metadata;
    let namespace = place.namespace.as_ref();
    let namespace = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
    Some(MistakenBinding {
        binding: format!("{kind} {namespace}{}", place.name),
        subject: wrong,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::mistake;

    #[test]
    fn a_binding_to_the_targets_own_account_is_a_mistake() {
        let binding = |subject: serde_json::Value| {
            let metadata = json!({ "name": "x", "namespace": "apps" });
            let binding = json!({ "metadata": metadata, "subjects": [subject] });
            serde_json::from_value(binding).unwrap()
        };
        let user = "system:serviceaccount:tenant-a:reconciler";
        let mistake_about = |subject| mistake("RoleBinding", &binding(subject), user);
        let account = mistake_about(
            json!({ "kind": "ServiceAccount", "namespace": "tenant-a", "name": "reconciler" }),
        )
        .unwrap();
        assert_eq!(account.binding, "RoleBinding apps/x");
        assert!(
            account
                .subject
                .contains("kind ServiceAccount tenant-a/reconciler"),
            "{account:?}"
        );
        assert!(mistake_about(json!({ "kind": "User", "name": user })).is_some());
        for right in [
            json!({ "kind": "User", "name": format!("hub:{user}") }),
            json!({ "kind": "ServiceAccount", "namespace": "other", "name": "reconciler" }),
            json!({ "kind": "Group", "name": user }),
        ] {
            assert_eq!(mistake_about(right), None);
        }
    }
}
