//! A row for each right of the hub, and for each thing that keeps it from its door.

use super::asked::{CORE, RBAC, line, named, rule, with_right};
use super::snapshot::Snapshot;

/// A right of tenant-a/ci on the hub, and whether ci can delete Deployments in apps at prod.
#[test]
fn rights_of_the_hub_open_their_doors() {
    let token = "serviceaccounts/token";
    let write_bindings = rule(RBAC, "rolebindings", "create");
    let bind = |names: &str| named(RBAC, "clusterroles", "bind", names);
    let rows: Vec<(&str, &str, String, &str)> = vec![
        ("nothing", "tenant-a", rule(CORE, "configmaps", "get"), "no"),
        // Door 2.
        ("mint any", "tenant-a", rule(CORE, token, "create"), "yes"),
        (
            "mint by name",
            "tenant-a",
            named(CORE, token, "create", "reconciler"),
            "yes",
        ),
        (
            "mint another",
            "tenant-a",
            named(CORE, token, "create", "ci"),
            "no",
        ),
        (
            "mint elsewhere",
            "tenant-d",
            rule(CORE, token, "create"),
            "no",
        ),
        ("mint everywhere", "", rule(CORE, token, "create"), "yes"),
        (
            "create accounts only",
            "tenant-a",
            rule(CORE, "serviceaccounts", "create"),
            "no",
        ),
        // Door 3.
        ("run Pods", "tenant-a", rule(CORE, "pods", "create"), "yes"),
        (
            "run Jobs",
            "tenant-a",
            rule("apiGroups: [batch]", "jobs", "create"),
            "yes",
        ),
        (
            "run named Pods",
            "tenant-a",
            named(CORE, "pods", "create", "x"),
            "no",
        ),
        (
            "run Pods elsewhere",
            "tenant-d",
            rule(CORE, "pods", "create"),
            "no",
        ),
        (
            "change Deployments",
            "tenant-a",
            rule("apiGroups: [apps]", "deployments", "patch"),
            "undetermined",
        ),
        // Door 4. Pod worker runs as reconciler with a token for the target, web as web without.
        ("exec", "tenant-a", rule(CORE, "pods/exec", "create"), "yes"),
        (
            "exec by name",
            "tenant-a",
            named(CORE, "pods/exec", "create", "worker"),
            "yes",
        ),
        (
            "exec of another",
            "tenant-a",
            named(CORE, "pods/exec", "create", "web"),
            "no",
        ),
        (
            "exec of an ended Pod",
            "tenant-a",
            named(CORE, "pods/exec", "create", "done"),
            "no",
        ),
        (
            "get exec",
            "tenant-a",
            rule(CORE, "pods/exec", "get"),
            "undetermined",
        ),
        (
            "ephemeral",
            "tenant-a",
            rule(CORE, "pods/ephemeralcontainers", "patch"),
            "yes",
        ),
        (
            "change Pods",
            "tenant-a",
            rule(CORE, "pods", "patch"),
            "yes",
        ),
        ("node proxy", "", rule(CORE, "nodes/proxy", "create"), "yes"),
        (
            "node proxy of no node",
            "",
            named(CORE, "nodes/proxy", "create", "other"),
            "no",
        ),
        ("logs", "tenant-a", rule(CORE, "pods/log", "get"), "no"),
        // Door 5. Secret prod-kubeconfig is delivered to tenant-b, robot-token is the hub's.
        ("delivered", "tenant-b", rule(CORE, "secrets", "get"), "yes"),
        (
            "delivered by list",
            "tenant-b",
            rule(CORE, "secrets", "list"),
            "yes",
        ),
        (
            "delivered by name",
            "tenant-b",
            named(CORE, "secrets", "get", "prod-kubeconfig"),
            "yes",
        ),
        (
            "another Secret",
            "tenant-b",
            named(CORE, "secrets", "get", "other"),
            "no",
        ),
        (
            "secrets of tenant-a",
            "tenant-a",
            rule(CORE, "secrets", "get"),
            "no",
        ),
        (
            "token of robot",
            "tenant-c",
            named(CORE, "secrets", "get", "robot-token"),
            "yes",
        ),
        (
            "create and read",
            "tenant-c",
            rule(CORE, "secrets", "create, get"),
            "yes",
        ),
        (
            "create alone",
            "tenant-c",
            rule(CORE, "secrets", "create"),
            "no",
        ),
        // Door 7. Robot of tenant-c may mint in tenant-a.
        (
            "impersonate robot",
            "tenant-c",
            rule(CORE, "serviceaccounts", "impersonate"),
            "yes",
        ),
        (
            "impersonate robot by name",
            "tenant-c",
            named(CORE, "serviceaccounts", "impersonate", "robot"),
            "yes",
        ),
        (
            "impersonate an account",
            "tenant-a",
            rule(CORE, "serviceaccounts", "impersonate"),
            "yes",
        ),
        (
            "impersonate minter",
            "",
            named(CORE, "users", "impersonate", "minter"),
            "yes",
        ),
        (
            "impersonate in a namespace",
            "tenant-a",
            named(CORE, "users", "impersonate", "minter"),
            "no",
        ),
        (
            "impersonate a user",
            "",
            named(CORE, "users", "impersonate", "jane"),
            "no",
        ),
        (
            "impersonate a group alone",
            "",
            named(CORE, "groups", "impersonate", "minters"),
            "no",
        ),
        (
            "impersonate a user and a group",
            "",
            [
                named(CORE, "users", "impersonate", "jane"),
                named(CORE, "groups", "impersonate", "minters"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "constrained",
            "",
            rule(
                "apiGroups: [authentication.k8s.io]",
                "users",
                "'impersonate:user-info'",
            ),
            "undetermined",
        ),
        // Door 8. ClusterRole minter has create on serviceaccounts/token.
        (
            "bind",
            "tenant-a",
            [write_bindings.clone(), bind("minter")].join(", "),
            "yes",
        ),
        ("bind without writing", "tenant-a", bind("minter"), "no"),
        (
            "write without bind",
            "tenant-a",
            write_bindings.clone(),
            "no",
        ),
        (
            "bind another role",
            "tenant-a",
            [write_bindings.clone(), bind("harmless")].join(", "),
            "no",
        ),
        (
            "bind elsewhere",
            "tenant-d",
            [write_bindings.clone(), bind("minter")].join(", "),
            "no",
        ),
        (
            "join a binding",
            "tenant-a",
            [
                rule(RBAC, "rolebindings", "patch"),
                rule(RBAC, "clusterroles", "bind"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "join a binding of all",
            "",
            [
                rule(RBAC, "clusterrolebindings", "update"),
                rule(RBAC, "clusterroles", "bind"),
            ]
            .join(", "),
            "yes",
        ),
        (
            "escalate its own role",
            "tenant-a",
            rule(RBAC, "roles", "escalate, patch"),
            "yes",
        ),
        (
            "escalate without writing",
            "tenant-a",
            rule(RBAC, "roles", "escalate"),
            "no",
        ),
        (
            "escalate another role",
            "tenant-a",
            named(RBAC, "roles", "'escalate', patch", "other"),
            "undetermined",
        ),
        // Doors that are not evaluated.
        (
            "6",
            "tenant-a",
            rule(
                "apiGroups: [kustomize.toolkit.fluxcd.io]",
                "kustomizations",
                "create",
            ),
            "no",
        ),
        (
            "9 targets",
            "",
            rule("apiGroups: [keyferry.dev]", "targetclusters", "patch"),
            "no",
        ),
        (
            "9 accesses",
            "tenant-a",
            rule("apiGroups: [keyferry.dev]", "targetaccesses", "create"),
            "no",
        ),
        (
            "10",
            "",
            rule(
                "apiGroups: [admissionregistration.k8s.io]",
                "validatingadmissionpolicies",
                "patch",
            ),
            "no",
        ),
        (
            "11",
            "keyferry-system",
            rule(CORE, "secrets", "get"),
            "undetermined",
        ),
        (
            "12",
            "",
            rule("apiGroups: [certificates.k8s.io]", "signers", "approve"),
            "no",
        ),
        (
            "everything",
            "",
            "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}".to_owned(),
            "yes",
        ),
    ];
    let mut lines = Vec::new();
    for (case, namespace, rules, expected) in rows {
        let world = Snapshot::usual()
            .and(&with_right(namespace, &rules))
            .to_world();
        let found = line(&world, "tenant-a/ci");
        lines.push(format!("{case}: {found}"));
        if found.split(':').next().unwrap() != expected {
            lines.push(format!("   ^ EXPECTED {expected}"));
        }
    }
    let lines = lines.join("\n");
    assert!(!lines.contains("EXPECTED"), "{lines}");
    insta::assert_snapshot!("doors-of-the-hub", lines);
}
