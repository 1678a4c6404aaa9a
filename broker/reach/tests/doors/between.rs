//! A row for each thing between a subject and its right at the target.

use super::asked::{CORE, line, rule, with_right};
use super::snapshot::Snapshot;

/// What else decides: the access, the policies, the target's file and its RBAC.
#[test]
fn everything_between_subject_and_right_decides() {
    let usual = Snapshot::usual;
    let suspended = "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {name: prod, namespace: tenant-a, uid: u-a, \
        resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z'}\nspec: {targetClusterRef: {name: prod}, \
        serviceAccountName: reconciler, suspend: true, deliveries: [{name: http, type: HTTP}]}\n";
    let mint = with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create"));
    let access = with_right(
        "tenant-a",
        &rule("apiGroups: [keyferry.dev]", "targetaccesses", "create"),
    );
    let labels = with_right("", &rule(CORE, "namespaces", "patch"));
    let flux = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}}\n";
    let kustomize = with_right(
        "tenant-a",
        &rule(
            "apiGroups: [kustomize.toolkit.fluxcd.io]",
            "kustomizations",
            "create",
        ),
    );
    let impersonate = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: as}\n\
        rules: [{apiGroups: [''], resources: [users], verbs: [impersonate], resourceNames: ['hub:system:serviceaccount:tenant-b:deployer']}]\n\
        ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: as}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: as}\n\
        subjects: [{kind: Group, name: 'system:authenticated'}]\n";
    let mut without_rights = usual().without("Pod", "");
    without_rights
        .target
        .retain(|object| object["kind"] != "RoleBinding");
    let with = |text: &str| {
        let mut world = usual();
        world.authentication = text.to_owned();
        world
    };
    let rows: Vec<(&str, Snapshot, &str, &str)> = vec![
        ("account", usual(), "tenant-a/reconciler", "yes"),
        ("caller", usual(), "tenant-a/caller", "yes"),
        (
            "caller without the right",
            usual(),
            "tenant-a/stranger",
            "no",
        ),
        ("anybody", usual(), "group:system:authenticated", "no"),
        ("platform admins", usual(), "group:platform-admins", "yes"),
        ("masters", usual(), "group:system:masters", "yes"),
        ("another group", usual(), "group:others", "no"),
        ("a group that mints", usual(), "group:minters", "yes"),
        ("a user that mints", usual(), "user:minter", "yes"),
        ("a node", usual(), "group:system:nodes", "undetermined"),
        (
            "Keyferry's account",
            usual(),
            "keyferry-system/keyferry",
            "undetermined",
        ),
        (
            "an account that delivers",
            usual(),
            "tenant-b/deployer",
            "no",
        ),
        ("no such account", usual(), "tenant-a/nobody", "no"),
        (
            "suspended, with a Pod",
            usual().and(suspended),
            "tenant-a/reconciler",
            "yes",
        ),
        (
            "suspended, without",
            usual().and(suspended).without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "suspended, and mint",
            usual().and(suspended).without("Pod", "").and(&mint),
            "tenant-a/ci",
            "yes",
        ),
        (
            "not paired",
            usual().without("AudiencePairing", ""),
            "tenant-a/caller",
            "yes",
        ),
        ("mint of web", usual(), "tenant-a/ci", "no"),
        (
            "no pairing policy, but the target knows no such user",
            usual()
                .without("ValidatingAdmissionPolicyBinding", "keyferry-pairing")
                .and(&mint),
            "tenant-a/ci",
            "yes",
        ),
        (
            "Keyferry may not mint",
            usual()
                .without("RoleBinding", "keyferry")
                .without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "Keyferry may not use the audience",
            usual()
                .without("ClusterRoleBinding", "keyferry-audiences")
                .without("Pod", ""),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "author policy away",
            usual()
                .without("ValidatingAdmissionPolicyBinding", "keyferry-author")
                .and(&access),
            "tenant-a/ci",
            "no",
        ),
        (
            "labels without a selector",
            usual().and(&labels),
            "tenant-a/ci",
            "no",
        ),
        (
            "Flux is there",
            usual().and(flux).and(&kustomize),
            "tenant-a/ci",
            "undetermined",
        ),
        (
            "impersonation at the target",
            without_rights.clone().and_at_target(impersonate),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "no right at the target",
            without_rights,
            "tenant-a/reconciler",
            "no",
        ),
        (
            "impersonation of who has it",
            usual()
                .without("TargetAccess", "none")
                .and_at_target(impersonate),
            "tenant-a/reconciler",
            "yes",
        ),
        ("no file", with(""), "tenant-a/reconciler", "undetermined"),
        (
            "another audience",
            with(
                &usual()
                    .authentication
                    .replace("[https://prod.test]", "[https://other.test]"),
            ),
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "one more audience",
            with(&usual().authentication.replace(
                "[https://prod.test]",
                "[https://prod.test, https://b.test]\n      , audienceMatchPolicy: MatchAny",
            )),
            "tenant-a/ci",
            "undetermined",
        ),
        (
            "another issuer",
            with(
                &usual()
                    .authentication
                    .replace("https://hub.test", "https://other.test"),
            ),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "another prefix",
            with(&usual().authentication.replace("hub:", "other:")),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "a rule that refuses",
            with(&format!(
                "{}    claimValidationRules: [{{claim: environment, requiredValue: prod}}]\n",
                usual().authentication
            )),
            "tenant-a/reconciler",
            "no",
        ),
        (
            "a newer release",
            Snapshot {
                release: "v1.38.0",
                ..usual()
            },
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "no release",
            Snapshot {
                release: "",
                ..usual()
            },
            "tenant-a/reconciler",
            "undetermined",
        ),
        (
            "no release, and no way",
            Snapshot {
                release: "",
                ..usual()
            },
            "tenant-a/ci",
            "no",
        ),
    ];
    let mut lines = Vec::new();
    for (case, snapshot, subject, expected) in rows {
        let found = line(&snapshot.to_world(), subject);
        lines.push(format!("{case}: {subject}: {found}"));
        if found.split(':').next().unwrap() != expected {
            lines.push(format!("   ^ EXPECTED {expected}"));
        }
    }
    let lines = lines.join("\n");
    assert!(!lines.contains("EXPECTED"), "{lines}");
    insta::assert_snapshot!("between-subject-and-right", lines);
}
