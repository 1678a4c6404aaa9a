//! Files of a snapshot: which lists they make whole, and what is wrong with them.

#![allow(clippy::unwrap_used, missing_docs)]

use keyferry_api::name::Namespace;
use keyferry_reach::world::{SnapshotNote, World};
use keyferry_reach::{ListKind, Lists};

const EMPTY: &str = "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
const PODS: &str = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    namespace: b\n  spec:\n    \
    containers:\n    - args:\n      - |\n        - x\n\n        y\n      name: c\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";

fn new_world() -> World {
    World::new(Namespace::new("keyferry-system").unwrap())
}

fn whole(lists: &Lists) -> Vec<&'static str> {
    let kinds = ListKind::ALL.into_iter();
    kinds
        .filter(|kind| lists.is_whole(*kind))
        .map(ListKind::resource)
        .collect()
}

#[test]
fn a_file_makes_the_list_whole_that_it_is_named_after() {
    let json = "{\"kind\": \"PodList\", \"items\": [{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}], \"metadata\": {}}";
    let page = EMPTY.replace("resourceVersion: \"\"", "continue: abc");
    let cut = PODS.split("kind: List").next().unwrap();
    let in_item = PODS.split("      name: c").next().unwrap();
    for (path, text, list, note) in [
        ("hub/pods.yaml", EMPTY, &["pods"][..], None),
        ("hub/pods.yaml", PODS, &["pods"], None),
        ("hub/pods.json", json, &["pods"], None),
        (
            "hub/targetclusters.keyferry.dev.yaml",
            EMPTY,
            &["targetclusters"],
            None,
        ),
        ("hub/all.yaml", PODS, &[], None),
        ("hub/pods.b.yaml", PODS, &[], None),
        ("hub/namespaces.b.yaml", EMPTY, &[], None),
        ("hub/pods.yaml", "", &[], Some("cut")),
        ("hub/pods.yaml", cut, &[], Some("cut")),
        ("hub/pods.yaml", in_item, &[], Some("cut")),
        ("hub/pods.yaml", page.as_str(), &[], Some("cut")),
        ("hub/pods.yaml", "items: 1\nkind: List\n", &[], Some("cut")),
        ("hub/pods.yaml", "metadata: {name: a}\n", &[], Some("cut")),
        (
            "hub/secrets.yaml",
            "kind: Secret\nmetadata: {name: a, namespace: b}\ndata: {token: aHVudGVyMg==}\n",
            &["secrets"],
            Some("data"),
        ),
        ("gaps.yaml", "[]", &[], Some("skipped")),
        ("hub/deeper/pods.yaml", PODS, &[], Some("skipped")),
    ] {
        let mut world = new_world();
        let added = world.add_file(path, text).unwrap();
        let words = added.map(|note| match note {
            SnapshotNote::Cut(_) => "cut",
            SnapshotNote::SecretData(_) => "data",
            SnapshotNote::Skipped(_) => "skipped",
        });
        assert_eq!(
            (whole(&world.hub.lists).as_slice(), words),
            (list, note),
            "{path}: {text}"
        );
        assert!(
            !format!("{world:?}").contains("aHVudGVyMg"),
            "no data is kept"
        );
    }
    let mut world = new_world();
    world.add_file("hub/pods.b.yaml", PODS).unwrap();
    let lists = &world.hub.lists;
    assert!(lists.is_whole_in(ListKind::Pods, "b") && !lists.is_whole_in(ListKind::Pods, "c"));
}

#[test]
fn a_wrong_file_is_named_with_its_fix() {
    let role = |verb: &str| {
        format!(
            "kind: ClusterRole\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {{name: a}}\nrules: [{{verbs: [{verb}], apiGroups: [''], resources: [pods]}}]\n"
        )
    };
    let two = |one: &str, other: &str| {
        [
            ("hub/x.yaml", one.to_owned()),
            ("hub/y.yaml", other.to_owned()),
        ]
    };
    let target = "kind: TargetCluster\napiVersion: keyferry.dev/v1alpha1\nmetadata: {name: prod}\n";
    let account = |uid: &str| {
        format!("kind: ServiceAccount\nmetadata: {{name: a, namespace: b, uid: {uid}}}\n")
    };
    let mut lines = Vec::new();
    for files in [
        two("a: [", ""),
        two("{\"kind\": 1", ""),
        two(&role("get"), &role("list")),
        two(&role("get"), &role("get")),
        two(&account("u"), &account("v")),
        two(target, ""),
        two(
            "kind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: a}\n",
            "",
        ),
        [
            ("targets/prod/release", "v2\n".to_owned()),
            ("hub/x.yaml", String::new()),
        ],
        [
            ("targets/Prod/release", "v1.37.0\n".to_owned()),
            ("hub/x.yaml", String::new()),
        ],
    ] {
        let mut world = new_world();
        let failed = files
            .iter()
            .find_map(|(path, text)| world.add_file(path, text).err());
        lines.push(match failed {
            Some(error) => error.to_string(),
            None => "no mistake".to_owned(),
        });
    }
    insta::assert_snapshot!("wrong-files", lines.join("\n"));
}
