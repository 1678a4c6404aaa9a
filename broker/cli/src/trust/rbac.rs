//! Renders RBAC for the users that the target rules admit. Nothing is bound unless it is requested.

use keyferry_api::service_account::ServiceAccount;

use super::target_rules::TargetRules;
use super::{indented, quoted};

/// Renders the objects as a YAML stream; empty if nothing is requested.
pub(super) fn of(rules: &TargetRules, bind: Option<&str>, flux: Option<&ServiceAccount>) -> String {
    let users: String = rules.users().map(|user| subject_user(&user)).collect();
    let name = name(&rules.prefix);
    let mut objects = Vec::new();
    if let Some(flux) = flux {
        objects.extend(for_flux(&name, &users, flux));
    }
    if let Some(role) = bind {
        let subjects = flux.map_or_else(|| users.clone(), subject_account);
        objects.push(binding(
            "ClusterRoleBinding",
            &format!("{name}-{}", slug(role)),
            None,
            "ClusterRole",
            role,
            &subjects,
        ));
    }
    objects.join("---\n")
}

/// Renders the rights of a hub's Flux controller whose objects name a ServiceAccount to impersonate
/// at the target.
fn for_flux(name: &str, users: &str, flux: &ServiceAccount) -> [String; 6] {
    let ServiceAccount {
        namespace,
        name: account,
    } = flux;
    let impersonate = format!("{name}-impersonate-{account}");
    let probe = format!("{name}-probe");
    let rule = format!(
        "- apiGroups: [\"\"]\n  resources: [serviceaccounts]\n  resourceNames: [{}]\n  verbs: \
         [impersonate]\n",
        quoted(account.as_str())
    );
    [
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n",
            quoted(namespace.as_str())
        ),
        format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n{}",
            metadata(account.as_str(), Some(namespace.as_str()))
        ),
        format!(
            "{}rules:\n{}",
            head("Role", &impersonate, Some(namespace.as_str())),
            indented(&rule, 2)
        ),
        binding(
            "RoleBinding",
            &impersonate,
            Some(namespace.as_str()),
            "Role",
            &impersonate,
            users,
        ),
        // Flux's client disables its own throttling only if it may call this.
        format!(
            "{}rules:\n  - nonResourceURLs: [/livez/ping]\n    verbs: [head]\n",
            head("ClusterRole", &probe, None)
        ),
        binding(
            "ClusterRoleBinding",
            &probe,
            None,
            "ClusterRole",
            &probe,
            &format!("{users}{}", subject_account(flux)),
        ),
    ]
}

fn head(kind: &str, name: &str, namespace: Option<&str>) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n{}",
        metadata(name, namespace)
    )
}

fn metadata(name: &str, namespace: Option<&str>) -> String {
    let namespace = namespace
        .map(|namespace| format!("  namespace: {}\n", quoted(namespace)))
        .unwrap_or_default();
    format!("  name: {}\n{namespace}", quoted(name))
}

fn binding(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    role_kind: &str,
    role: &str,
    subjects: &str,
) -> String {
    format!(
        "{}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {role_kind}\n  name: \
         {}\nsubjects:\n{}",
        head(kind, name, namespace),
        quoted(role),
        indented(subjects, 2)
    )
}

fn subject_user(user: &str) -> String {
    format!(
        "- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: {}\n",
        quoted(user)
    )
}

fn subject_account(account: &ServiceAccount) -> String {
    format!(
        "- kind: ServiceAccount\n  namespace: {}\n  name: {}\n",
        quoted(account.namespace.as_str()),
        quoted(account.name.as_str())
    )
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
