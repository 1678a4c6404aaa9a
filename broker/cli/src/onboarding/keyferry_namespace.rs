//! Finds Keyferry's own namespace on the hub, by what Keyferry's account cannot write.
//!
//! `onboard` binds rights to the ServiceAccount of that namespace and writes CA Secrets there. A
//! status is written by Keyferry's account, so a thief of it could name any namespace,
//! and keep the rights after the theft has ended.

use std::collections::BTreeSet;

use keyferry_api::name::{NameError, Namespace};
use keyferry_client::lenient::{Lenient, or_default, readable_items};
use keyferry_client::object_view::Reference;
use keyferry_client::objects_of_hub::target_statuses;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use serde::Deserialize;

use super::objects::KEYFERRY_ACCOUNT;
use crate::command_error::CommandError;

/// The namespace of the shipped installation.
const DEFAULT_NAMESPACE: &str = "keyferry-system";
/// Every installation binds Keyferry's account by this name. Only an account that may grant
/// these rights can write it.
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/keyferry";

/// Returns the namespace in which ClusterRoleBinding `keyferry` has Keyferry's account. Without
/// that binding, it is the namespace of the shipped installation, unless a status states another.
///
/// # Errors
/// The hub cannot be read, or only a status says that Keyferry is elsewhere.
pub(crate) async fn find(client: &HubClient) -> Result<Namespace, CommandError> {
    let bound = match client
        .get_object::<Lenient<RoleBinding>>(BINDING, "ClusterRoleBinding")
        .await
    {
        Ok(Lenient(binding)) => accounts_in(binding),
        Err(HubError::NotFound(_) | HubError::Forbidden(_)) => BTreeSet::new(),
        Err(error) => {
            return Err(CommandError::new(format!(
                "reading ClusterRoleBinding {KEYFERRY_ACCOUNT}: {error}"
            )));
        }
    };
    let stated = match bound.is_empty() {
        true => target_statuses(client).await?,
        false => Vec::new(),
    };
    let stated = stated
        .into_iter()
        .filter_map(|status| status.cluster_resource_namespace);
    decide(bound, &stated.collect()).map_err(|error| {
        CommandError::with_fix(
            error.to_string(),
            "see where Keyferry runs on this hub, and name that namespace by --keyferry-namespace",
        )
    })
}

/// A ClusterRoleBinding, reduced to its role and its subjects.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoleBinding {
    #[serde(deserialize_with = "or_default")]
    role_ref: Reference,
    #[serde(deserialize_with = "readable_items")]
    subjects: Vec<Subject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: Option<String>,
}

/// The namespaces whose account `keyferry` has the role.
fn accounts_in(binding: RoleBinding) -> BTreeSet<String> {
    if binding.role_ref.name != KEYFERRY_ACCOUNT {
        return BTreeSet::new();
    }
    let subjects = binding.subjects.into_iter();
    let ours = subjects
        .filter(|subject| subject.kind == "ServiceAccount" && subject.name == KEYFERRY_ACCOUNT);
    ours.filter_map(|subject| subject.namespace).collect()
}

/// Why Keyferry's namespace is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NamespaceError {
    #[error("finding Keyferry's namespace: ClusterRoleBinding keyferry names several")]
    Several,
    #[error(
        "finding Keyferry's namespace: a TargetCluster's status states {0:?}, and \
         ClusterRoleBinding keyferry, which would prove it, cannot be read"
    )]
    OnlyStated(String),
    #[error("finding Keyferry's namespace {name:?}: {error}")]
    Invalid { name: String, error: NameError },
}

/// Decides by the bound accounts. What statuses state is never enough.
fn decide(bound: BTreeSet<String>, stated: &BTreeSet<String>) -> Result<Namespace, NamespaceError> {
    let mut bound = bound.into_iter();
    let name = match (bound.next(), bound.next()) {
        (Some(_), Some(_)) => return Err(NamespaceError::Several),
        (Some(one), None) => one,
        (None, _) => match stated.iter().find(|name| *name != DEFAULT_NAMESPACE) {
            None => DEFAULT_NAMESPACE.to_owned(),
            Some(other) => return Err(NamespaceError::OnlyStated(other.clone())),
        },
    };
    Namespace::new(name.as_str()).map_err(|error| NamespaceError::Invalid { name, error })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn accounts_in(binding: &Value) -> BTreeSet<String> {
        let Lenient(binding) = Lenient::deserialize(binding).unwrap_or_default();
        super::accounts_in(binding)
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_status_alone_never_moves_keyferrys_namespace() {
        let decided_namespace = |bound: &[&str], stated: &[&str]| {
            decide(names(bound), &names(stated)).map(|namespace| namespace.to_string())
        };
        assert_eq!(
            decided_namespace(&[], &[]).as_deref(),
            Ok("keyferry-system")
        );
        assert_eq!(
            decided_namespace(&[], &["keyferry-system"]).as_deref(),
            Ok("keyferry-system")
        );
        assert!(decided_namespace(&[], &["evil"]).is_err());
        assert!(decided_namespace(&[], &["keyferry-system", "evil"]).is_err());
        // The binding decides, whatever is stated.
        for stated in [&[] as &[&str], &["evil"], &["keyferry-system"]] {
            assert_eq!(
                decided_namespace(&["platform"], stated).as_deref(),
                Ok("platform")
            );
        }
        assert!(decided_namespace(&["a", "b"], &[]).is_err());
        assert!(decided_namespace(&["a/b"], &[]).is_err());
    }

    #[test]
    fn only_keyferrys_account_with_its_role_counts() {
        let binding = |role: &str, kind: &str, name: &str| {
            json!({
                "roleRef": { "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": kind, "name": name, "namespace": "platform" }],
            })
        };
        let good = binding("keyferry", "ServiceAccount", "keyferry");
        assert_eq!(accounts_in(&good), names(&["platform"]));
        for other in [
            binding("view", "ServiceAccount", "keyferry"),
            binding("keyferry", "User", "keyferry"),
            binding("keyferry", "ServiceAccount", "other"),
            Value::Null,
        ] {
            assert_eq!(accounts_in(&other), BTreeSet::new());
        }
    }
}
