//! Finds bindings of a target that were meant for a user of the hub but name another subject.

use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::doctor::MistakenBinding;
use serde_json::Value;

use crate::listed::next_page;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// Bindings per page of a list.
const PAGE: usize = 200;
/// The most pages that are read of each kind.
const MAX_PAGES: usize = 50;

/// Finds bindings with the wrong subject: the hub's ServiceAccount as if it were the target's own,
/// or its user name without the hub's prefix. Lists that may not be read are skipped, so this is a
/// hint and not a proof.
pub(crate) async fn mistaken(client: &HubClient, subject: &str) -> Vec<MistakenBinding> {
    let mut found = Vec::new();
    for (kind, plural) in [
        ("RoleBinding", "rolebindings"),
        ("ClusterRoleBinding", "clusterrolebindings"),
    ] {
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let path = format!("{RBAC}/{plural}?limit={PAGE}{next}");
            let Ok(list) = client.get_object::<Value>(&path, "list of bindings").await else {
                break;
            };
            let items = list["items"].as_array().into_iter().flatten();
            found.extend(items.filter_map(|binding| mistake(kind, binding, subject)));
            match next_page(&list) {
                Some(query) => next = query,
                None => break,
            }
        }
    }
    found
}

fn mistake(kind: &str, binding: &Value, subject: &str) -> Option<MistakenBinding> {
    let account = ServiceAccount::from_username(subject).ok();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wrong = binding["subjects"].as_array()?.iter().find_map(|named| {
        let (of, name, namespace) = (
            text(&named["kind"]),
            text(&named["name"]),
            text(&named["namespace"]),
        );
        let is_account = account.as_ref().is_some_and(|account| {
            account.name.as_str() == name && account.namespace.as_str() == namespace
        });
        match of.as_str() {
            "ServiceAccount" if is_account => Some(format!(
                "kind ServiceAccount {namespace}/{name}, which is the target's own"
            )),
            "User" if name == subject => {
                Some(format!("kind User {name}, without the hub's prefix"))
            }
            _ => None,
        }
    })?;
    let metadata = &binding["metadata"];
    let place = metadata["namespace"]
        .as_str()
        .map_or_else(String::new, |namespace| format!("{namespace}/"));
    Some(MistakenBinding {
        binding: format!("{kind} {place}{}", text(&metadata["name"])),
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
        let binding = |subject: serde_json::Value| json!({ "metadata": { "name": "x", "namespace": "apps" }, "subjects": [subject] });
        let user = "system:serviceaccount:tenant-a:reconciler";
        let found = |subject| mistake("RoleBinding", &binding(subject), user);
        let account = found(
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
        assert!(found(json!({ "kind": "User", "name": user })).is_some());
        for right in [
            json!({ "kind": "User", "name": format!("hub:{user}") }),
            json!({ "kind": "ServiceAccount", "namespace": "other", "name": "reconciler" }),
            json!({ "kind": "Group", "name": user }),
        ] {
            assert_eq!(found(right), None);
        }
    }
}
