//! Changes: rights, policy, roles, and objects of a target.

use super::asked::{CORE, RBAC, named, rule, with_right};
use super::snapshot::Snapshot;

/// A change, and what controllers and Keyferry make of it.
#[derive(Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) apply: String,
    pub(super) delete: Vec<&'static str>,
    pub(super) is_at_target: bool,
    pub(super) followed: String,
    pub(super) gone: Vec<&'static str>,
}

fn row(name: &str, apply: &str) -> Row {
    Row {
        name: name.to_owned(),
        apply: apply.to_owned(),
        ..Row::default()
    }
}

fn deleted(name: &'static str) -> Row {
    Row {
        name: format!("without {name}"),
        delete: vec![name],
        ..Row::default()
    }
}

fn at_target(row: Row) -> Row {
    Row {
        is_at_target: true,
        name: format!("{} at prod", row.name),
        ..row
    }
}

fn followed(row: Row, text: &str, gone: &[&'static str]) -> Row {
    Row {
        followed: text.to_owned(),
        gone: gone.to_vec(),
        ..row
    }
}

const KEYFERRY: &str = "apiGroups: [keyferry.dev]";

/// One right each for tenant-a/ci.
fn rights() -> Vec<Row> {
    let apps = "apiGroups: [apps]";
    let rules = [
        ("tenant-a", rule(CORE, "configmaps", "get")),
        ("tenant-a", rule(CORE, "serviceaccounts/token", "create")),
        ("tenant-b", rule(CORE, "serviceaccounts/token", "create")),
        ("tenant-c", rule(CORE, "serviceaccounts/token", "create")),
        (
            "tenant-a",
            named(CORE, "serviceaccounts/token", "create", "reconciler"),
        ),
        (
            "tenant-a",
            named(CORE, "serviceaccounts/token", "create", "web"),
        ),
        ("tenant-a", rule(CORE, "pods", "create")),
        ("tenant-b", rule(CORE, "pods", "create")),
        ("tenant-d", rule(CORE, "pods", "create")),
        ("tenant-a", rule(CORE, "pods", "get, list")),
        ("tenant-a", rule(CORE, "pods/exec", "create")),
        ("tenant-a", named(CORE, "pods/exec", "create", "web")),
        ("tenant-a", rule(CORE, "pods/ephemeralcontainers", "patch")),
        ("", rule(CORE, "nodes/proxy", "create")),
        ("tenant-b", rule(CORE, "secrets", "get")),
        ("tenant-b", rule(CORE, "secrets", "list")),
        ("tenant-b", named(CORE, "secrets", "get", "prod-kubeconfig")),
        ("tenant-b", named(CORE, "secrets", "get", "other")),
        ("tenant-c", rule(CORE, "secrets", "get, list")),
        ("keyferry-system", rule(CORE, "secrets", "get")),
        ("tenant-a", rule(CORE, "serviceaccounts", "impersonate")),
        ("", named(CORE, "users", "impersonate", "minter")),
        ("", named(CORE, "users", "impersonate", "nobody")),
        (
            "",
            format!(
                "{}, {}",
                named(CORE, "users", "impersonate", "x"),
                named(CORE, "groups", "impersonate", "minters")
            ),
        ),
        (
            "tenant-a",
            format!(
                "{}, {}",
                rule(RBAC, "rolebindings", "create"),
                named(RBAC, "clusterroles", "bind", "minter")
            ),
        ),
        ("tenant-a", rule(RBAC, "rolebindings", "create")),
        ("tenant-a", named(RBAC, "clusterroles", "bind", "minter")),
        ("tenant-a", rule(apps, "deployments", "create")),
        ("tenant-a", rule(apps, "deployments", "patch")),
        ("tenant-a", rule("apiGroups: ['*']", "'*'", "'*'")),
        ("", rule("apiGroups: ['*']", "'*'", "'*'")),
        ("", rule(KEYFERRY, "targetclusters", "patch")),
        ("tenant-a", rule(KEYFERRY, "targetaccesses", "create")),
        (
            "",
            rule(
                "apiGroups: [admissionregistration.k8s.io]",
                "validatingadmissionpolicies",
                "delete",
            ),
        ),
        (
            "",
            rule("apiGroups: [certificates.k8s.io]", "signers", "approve"),
        ),
    ];
    let row_of = |(place, rules): (&str, String)| {
        row(&format!("{place}: {rules}"), &with_right(place, &rules))
    };
    rules.into_iter().map(row_of).collect()
}

fn pairing(accounts: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: AudiencePairing\nmetadata: {{name: keyferry}}\npairs:\n  \
         https://prod.test: [keyferry-system/keyferry-canary{accounts}]\n"
    )
}

fn target_cluster(rest: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\nspec:\n  \
         address: https://prod.test:6443\n  audience: https://prod.test\n{rest}"
    )
}

fn access(namespace: &str, name: &str, rest: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{targetClusterRef: {{name: prod}}, {rest}}}\n"
    )
}

fn secret(name: &str, access: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: tenant-a, ownerReferences: [{{apiVersion: keyferry.dev/v1alpha1, \
         kind: TargetAccess, name: {access}, uid: u, controller: true}}]}}\ntype: Opaque\n"
    )
}

/// Changes of Keyferry's own objects, and what Keyferry then writes.
fn policies() -> Vec<Row> {
    let both = "  allow:\n    - {namespaces: [tenant-a], serviceAccounts: [reconciler], deliveries: [HTTP]}\n    \
        - {namespaces: [tenant-b], serviceAccounts: [deployer], deliveries: [KubeConfigSecret]}\n";
    let more = format!(
        "{both}    - {{namespaces: [tenant-a], serviceAccounts: [web], deliveries: [HTTP, KubeConfigSecret]}}\n"
    );
    let web = access("tenant-a", "web", "serviceAccountName: web");
    let file = access(
        "tenant-a",
        "web",
        "serviceAccountName: web, deliveries: [{name: file, type: KubeConfigSecret, objectName: web-prod}]",
    );
    let reader = with_right("tenant-a", &rule(CORE, "secrets", "get"));
    let all = ", tenant-a/reconciler, tenant-b/deployer";
    vec![
        row("the same target", &target_cluster(both)),
        row("an access that is not allowed", &web),
        followed(
            row("an access that is allowed", &(target_cluster(&more) + &web)),
            &pairing(&format!("{all}, tenant-a/web")),
            &[],
        ),
        followed(
            row(
                "a delivery, and a reader of Secrets",
                &(target_cluster(&more) + &file + &reader),
            ),
            &(pairing(&format!("{all}, tenant-a/web")) + &secret("web-prod", "web")),
            &[],
        ),
        followed(
            row(
                "a target without one tenant",
                &target_cluster(both.lines().take(2).collect::<Vec<_>>().join("\n").as_str()),
            ),
            &pairing(", tenant-a/reconciler"),
            &[],
        ),
        followed(
            row(
                "a suspended target",
                &target_cluster(&format!("  suspend: true\n{both}")),
            ),
            &pairing(""),
            &[],
        ),
        followed(
            row(
                "a suspended access",
                &access(
                    "tenant-a",
                    "prod",
                    "serviceAccountName: reconciler, suspend: true",
                ),
            ),
            &pairing(", tenant-b/deployer"),
            &[],
        ),
        followed(
            deleted("TargetAccess/tenant-a/prod"),
            &pairing(", tenant-b/deployer"),
            &[],
        ),
        followed(
            deleted("TargetAccess/tenant-b/prod"),
            &pairing(", tenant-a/reconciler"),
            &["Secret/tenant-b/prod-kubeconfig"],
        ),
        followed(
            deleted("ServiceAccount/tenant-a/reconciler"),
            &pairing(", tenant-b/deployer"),
            &[],
        ),
        deleted("Pod/tenant-a/worker"),
        deleted("Secret/tenant-c/robot-token"),
        deleted("ValidatingAdmissionPolicyBinding/keyferry-pairing"),
        deleted("AudiencePairing/keyferry"),
        followed(
            row(
                "another Namespace",
                "{apiVersion: v1, kind: Namespace, metadata: {name: tenant-e}}",
            ),
            "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: tenant-e}}",
            &[],
        ),
        row(
            "another Pod",
            "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: tenant-a}, spec: {serviceAccountName: ci, \
            volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t, audience: https://prod.test}}]}}]}}",
        ),
    ]
}

fn role_rows() -> Vec<Row> {
    let cluster_role = |name: &str, head: &str, rules: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}{head}}}\nrules: [{rules}]\n"
        )
    };
    let labels = ", labels: {kind: part}";
    let part = cluster_role(
        "part",
        labels,
        &rule(CORE, "serviceaccounts/token", "create"),
    );
    let whole = |rules: &str| {
        cluster_role("whole", "", rules)
            + "aggregationRule: {clusterRoleSelectors: [{matchLabels: {kind: part}}]}\n"
    };
    let bound = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: whole, namespace: tenant-a}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: whole}\nsubjects: [{kind: ServiceAccount, name: ci, namespace: tenant-a}]\n";
    let user = |role: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: more}}\nroleRef: {{apiGroup: \
             rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\nsubjects: [{{kind: User, apiGroup: rbac.authorization.k8s.io, \
             name: 'hub:system:serviceaccount:tenant-a:reconciler'}}]\n"
        )
    };
    let file = |text: &str| Snapshot::usual().authentication + text;
    vec![
        followed(
            row("an aggregated role", &(part + &whole("") + bound)),
            &whole(&rule(CORE, "serviceaccounts/token", "create")),
            &[],
        ),
        row(
            "a role that mints no more",
            &cluster_role("minter", "", &rule(CORE, "configmaps", "get")),
        ),
        deleted("RoleBinding/tenant-a/caller"),
        deleted("Role/tenant-a/caller"),
        deleted("RoleBinding/tenant-a/minters"),
        deleted("ClusterRoleBinding/admins"),
        deleted("RoleBinding/tenant-b/keyferry"),
        at_target(deleted("RoleBinding/apps/deployers")),
        at_target(deleted("ClusterRole/edit")),
        at_target(row("a binding of edit", &user("edit"))),
        at_target(row(
            "a role with more",
            &cluster_role(
                "edit",
                "",
                &rule("apiGroups: [apps]", "deployments", "get, delete, create"),
            ),
        )),
        at_target(row(
            "a role with less",
            &cluster_role("edit", "", &rule("apiGroups: [apps]", "deployments", "get")),
        )),
        at_target(row(
            "impersonation",
            &(cluster_role("as", "", &rule(CORE, "users", "impersonate")) + &user("as")),
        )),
        at_target(row(
            "a file with another prefix",
            &file("").replace("hub:", "other:"),
        )),
        at_target(row(
            "a file that refuses",
            &file("    claimValidationRules: [{claim: environment, requiredValue: prod}]\n"),
        )),
        at_target(row(
            "a file of another issuer",
            &file("").replace("https://hub.test", "https://other.test"),
        )),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    rights()
        .into_iter()
        .chain(policies())
        .chain(role_rows())
        .collect()
}
