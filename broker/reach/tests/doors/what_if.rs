//! Changes, each predicted and compared with a world that was built with the change in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::name::ObjectName;
use keyferry_reach::answer::{Question, answer_question};
use keyferry_reach::what_if::{Comparison, WayChange, compare_worlds};
use keyferry_reach::world::{ChangedObject, World};
use keyferry_reach::{ListKind, Subject};
use serde_json::{Value, json};

use super::asked::{CORE, RBAC, ask, named, rule, with_right, word};
use super::snapshot::{Snapshot, documents, now};

/// A change, and what controllers and Keyferry make of it.
#[derive(Default)]
struct Row {
    name: String,
    apply: String,
    delete: Vec<&'static str>,
    is_at_target: bool,
    followed: String,
    gone: Vec<&'static str>,
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

fn rows() -> Vec<Row> {
    rights()
        .into_iter()
        .chain(policies())
        .chain(role_rows())
        .collect()
}

fn deleted_object(text: &str, target: Option<&ObjectName>) -> ChangedObject {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, "", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => panic!("{text}"),
    };
    ChangedObject {
        target: target.cloned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// What the change makes of the world, as predicted.
fn predicted(before: &World, row: &Row) -> (World, Vec<ChangedObject>) {
    let target = row.is_at_target.then(|| ObjectName::new("prod").unwrap());
    let (mut world, mut changed) = (before.clone(), Vec::new());
    for text in &row.delete {
        let object = deleted_object(text, target.as_ref());
        assert_eq!(world.delete(&object).unwrap(), None, "{}", row.name);
        changed.push(object);
    }
    for value in documents(&row.apply) {
        let object = ChangedObject::of(&value, target.as_ref()).unwrap();
        assert_eq!(
            world.apply(&object, value, now()).unwrap(),
            None,
            "{}",
            row.name
        );
        changed.push(object);
    }
    let unknown = world.settle(before, &changed);
    assert!(unknown.is_empty(), "{}: {unknown:?}", row.name);
    (world, changed)
}

/// The world with the change, built from all of its objects.
fn built(row: &Row) -> World {
    let mut snapshot = Snapshot::usual();
    for text in row.delete.iter().chain(&row.gone) {
        let gone = deleted_object(text, None);
        let objects = match row.is_at_target {
            true => &mut snapshot.target,
            false => &mut snapshot.hub,
        };
        objects.retain(|object| ChangedObject::of(object, None).ok().as_ref() != Some(&gone));
    }
    for mut value in documents(&row.apply)
        .into_iter()
        .chain(documents(&row.followed))
    {
        if value["kind"] == "AuthenticationConfiguration" {
            snapshot.authentication.clone_from(&row.apply);
            continue;
        }
        if value["kind"].as_str().unwrap().starts_with("Target") {
            for (field, text) in [
                ("uid", "u"),
                ("resourceVersion", "1"),
                ("creationTimestamp", "2026-05-01T00:00:00Z"),
            ] {
                value["metadata"][field] = json!(text);
            }
            value["status"] = json!({ "issuer": "https://hub.test" });
        }
        let same = |other: &Value| {
            ChangedObject::of(other, None).ok() == ChangedObject::of(&value, None).ok()
        };
        let objects = match row.is_at_target {
            true => &mut snapshot.target,
            false => &mut snapshot.hub,
        };
        objects.retain(|other| !same(other));
        objects.push(value);
    }
    snapshot.to_world()
}

type Words = BTreeMap<Subject, &'static str>;

fn words(world: &World) -> Words {
    let answers = ask(world, None).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

/// Whether each subject can be anybody at the target.
fn arrivals(world: &World) -> Words {
    let question = Question {
        request: None,
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: true,
        now: now(),
    };
    let answers = answer_question(world, &question).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

fn line(way: &WayChange) -> String {
    let is_certain = if way.is_certain { "" } else { "perhaps " };
    let change = if way.appears { "+" } else { "-" };
    let users: Vec<&str> = way.users.iter().map(String::as_str).collect();
    let rights: Vec<&str> = way.rights.iter().map(String::as_str).collect();
    let object = way
        .object
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!(
        "  {is_certain}{change} {} [{}] {}: {} {} ({object})",
        way.subject,
        way.door.map_or("any".to_owned(), |door| door.to_string()),
        way.target.as_ref().map_or("any", ObjectName::as_str),
        users.join(", "),
        rights.join("; "),
    )
}

/// The same without the objects that are named, which only the change itself has.
fn comparable(comparison: Comparison) -> (Vec<WayChange>, Vec<String>) {
    let ways = comparison.ways.into_iter().map(|way| WayChange {
        object: None,
        ..way
    });
    let broken = comparison.broken.iter().map(|it| format!("{it:?}"));
    (ways.collect(), broken.collect())
}

#[test]
fn a_predicted_change_is_the_world_with_the_change_in_it() {
    let before = Snapshot::usual().to_world();
    let (old_words, old_arrivals) = (words(&before), arrivals(&before));
    let mut lines = Vec::new();
    let rows = rows();
    assert!(rows.len() >= 60, "{}", rows.len());
    for row in rows {
        let (after, changed) = predicted(&before, &row);
        let scratch = built(&row);
        assert_eq!(words(&after), words(&scratch), "{}", row.name);
        let comparison = compare_worlds(&before, &after, &changed, now());
        let of_scratch = compare_worlds(&before, &scratch, &[], now());
        assert_eq!(
            comparable(comparison.clone()),
            comparable(of_scratch),
            "{}",
            row.name
        );
        check_words(
            &row.name,
            &comparison,
            &old_arrivals,
            &arrivals(&scratch),
            true,
        );
        check_words(&row.name, &comparison, &old_words, &words(&scratch), false);
        lines.push(row.name.clone());
        lines.extend(comparison.ways.iter().map(line));
        lines.extend(
            comparison
                .broken
                .iter()
                .map(|it| format!("  breaks: {it:?}")),
        );
    }
    insta::assert_snapshot!("changes", lines.join("\n"));
}

/// Each answer of who-can that changes is among the changed ways, as certain as it is.
fn check_words(name: &str, comparison: &Comparison, old: &Words, new: &Words, is_arrival: bool) {
    for subject in old.keys().chain(new.keys()) {
        let of = |words: &Words| words.get(subject).copied().unwrap_or("no");
        let has = |appears: bool| {
            let mut ways = comparison.ways.iter();
            ways.any(|way| way.subject == *subject && way.appears == appears && way.is_certain)
        };
        let any = comparison.ways.iter().any(|way| way.subject == *subject);
        match (of(old), of(new)) {
            ("no", "yes") => assert!(has(true), "{name}: {subject} gains"),
            ("yes", "no") => assert!(has(false), "{name}: {subject} loses"),
            (old, new) if old != new => assert!(any, "{name}: {subject}: {old}, {new}"),
            ("no", _) if is_arrival => {
                assert!(!has(true) && !has(false), "{name}: {subject} has no way");
            }
            _ => {}
        }
    }
}

/// A list that one of two folders lacks makes nothing appear or disappear.
#[test]
fn a_gap_in_one_of_two_worlds_is_never_a_change() {
    let rich = Snapshot::usual().and(&with_right(
        "tenant-a",
        &rule(CORE, "pods/exec, secrets", "create, get"),
    ));
    let whole = rich.to_world();
    let mut lines = Vec::new();
    let mut check = |name: String, blind: &World| {
        for (direction, before, after) in [("from", blind, &whole), ("to", &whole, blind)] {
            let comparison = compare_worlds(before, after, &[], now());
            let certain: Vec<String> = comparison
                .ways
                .iter()
                .filter(|it| it.is_certain)
                .map(line)
                .collect();
            assert!(certain.is_empty(), "{name} {direction}: {certain:#?}");
            let broken = comparison.broken.iter().filter(|it| it.is_certain);
            assert_eq!(broken.count(), 0, "{name} {direction}");
            lines.push(format!(
                "{name} not read in --{direction}: {} perhaps",
                comparison.ways.len()
            ));
        }
    };
    for kind in ListKind::ALL {
        check(
            kind.resource().to_owned(),
            &rich.clone().unread(kind).to_world(),
        );
    }
    for kind in ListKind::RBAC {
        let mut blind = rich.clone();
        blind.unread_of_target.insert(kind);
        check(format!("{} of prod", kind.resource()), &blind.to_world());
    }
    let without_file = Snapshot {
        authentication: String::new(),
        ..rich.clone()
    };
    check("authentication.yaml".to_owned(), &without_file.to_world());
    let mut without_target = rich.to_world();
    without_target.targets.clear();
    check("targets".to_owned(), &without_target);
    insta::assert_snapshot!("gaps-of-two-worlds", lines.join("\n"));
}

/// What makes no difference is none: the same objects, and rules written in another way.
#[test]
fn another_spelling_is_no_change() {
    let before = Snapshot::usual().to_world();
    let rewritten = Snapshot::usual()
        .and("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: caller, namespace: tenant-a}\n\
            rules: [{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create], resourceNames: [reconciler, reconciler]}]\n")
        .to_world();
    let mut files = (**before.targets.values().next().unwrap()).clone();
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit-2}, rules: \
        [{apiGroups: [apps], resources: [deployments], verbs: [delete]}, {apiGroups: [apps], resources: [deployments], verbs: [get]}]}";
    files.add(documents(role).remove(0)).unwrap();
    let mut split = before.clone();
    split
        .targets
        .insert(ObjectName::new("prod").unwrap(), Arc::new(files));
    for after in [&before, &rewritten, &split] {
        let comparison = compare_worlds(&before, after, &[], now());
        assert_eq!(comparison.ways, [], "no way changes");
        assert_eq!(comparison.broken, [], "no delivery breaks");
    }
}

/// Where nothing is known before, what is perhaps new is still named.
#[test]
fn what_was_not_read_hides_no_new_way() {
    let token = with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create"));
    let unread_role = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: unread, namespace: tenant-a}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: unread}\nsubjects: [{kind: ServiceAccount, name: ci, namespace: tenant-a}]\n";
    let deployer = with_right("tenant-b", &rule(CORE, "serviceaccounts/token", "create"))
        .replace("given", "more");
    let without_file = Snapshot {
        authentication: String::new(),
        ..Snapshot::usual()
    };
    for (name, before, text, kind) in [
        (
            "another account at a target without its file",
            without_file.and(&token),
            deployer,
            "",
        ),
        (
            "rolebindings",
            Snapshot::usual().unread(ListKind::RoleBindings),
            token.clone(),
            "ServiceAccount tenant-a/ci",
        ),
        (
            "a role that was not read",
            Snapshot::usual().unread(ListKind::Roles),
            unread_role.to_owned(),
            "",
        ),
    ] {
        let before = before.to_world();
        let (mut after, mut changed) = (before.clone(), Vec::new());
        for value in documents(&text) {
            let object = ChangedObject::of(&value, None).unwrap();
            assert_eq!(after.apply(&object, value, now()).unwrap(), None, "{name}");
            changed.push(object);
        }
        let unknown = after.settle(&before, &changed);
        let ways = compare_worlds(&before, &after, &changed, now()).ways;
        let perhaps = ways
            .iter()
            .any(|way| way.appears && !way.is_certain && way.subject.to_string().contains(kind));
        assert!(
            perhaps || !unknown.is_empty(),
            "{name}: {:#?}",
            ways.iter().map(line).collect::<Vec<_>>()
        );
    }
}
