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
    let json = "{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": [{\"metadata\": {\"name\": \"a\"}}], \"metadata\": {}}";
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
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\ndata: {token: aHVudGVyMg==}\n",
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
        format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: a, namespace: b, uid: {uid}}}\n"
        )
    };
    let mut lines = Vec::new();
    for files in [
        two("a: [", ""),
        two("{\"kind\": 1", ""),
        two(&role("get"), &role("list")),
        two(&role("get"), &role("get")),
        two(&account("u"), &account("v")),
        two(target, ""),
        two(&target.replace("v1alpha1", "v2"), ""),
        two(&role("get").replace("/v1", "/v1beta1"), ""),
        two("apiVersion: v2\nkind: Pod\nmetadata: {name: a}\n", ""),
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

/// An apiserver leaves kind and version out in the items of a list of one kind. Skipping those would
/// make a list whole without its objects, so that answers say no.
#[test]
fn an_item_has_the_kind_of_its_list_unless_it_has_its_own() {
    const ROLE: &str = r#""metadata": {"name": "found"}, "rules": []"#;
    const V1: &str = r#""apiVersion": "rbac.authorization.k8s.io/v1""#;
    let own = |version: &str, kind: &str| {
        format!(r#"{{"apiVersion": "{version}", "kind": "{kind}", {ROLE}}}"#)
    };
    let list = |version: &str, kind: &str, item: &str| {
        format!(r#"{{{version}, "kind": "{kind}", "metadata": {{}}, "items": [{item}]}}"#)
    };
    let bare = format!("{{{ROLE}}}");
    let raw = list(V1, "ClusterRoleList", &bare);
    let core = r#""apiVersion": "v1""#;
    let metadata = list(
        r#""apiVersion": "meta.k8s.io/v1""#,
        "PartialObjectMetadataList",
        &bare,
    );
    for (case, text, is_whole, is_found) in [
        ("raw", raw.clone(), true, true),
        (
            "raw as YAML",
            raw.replace("{\"apiVersion", "--- {\"apiVersion"),
            true,
            true,
        ),
        ("a list in a list", list(core, "List", &raw), true, true),
        (
            "its own kind",
            list(
                core,
                "List",
                &own("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ),
            true,
            true,
        ),
        (
            "its own kind in a list of another",
            list(
                core,
                "PodList",
                &own("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ),
            true,
            true,
        ),
        (
            "another group",
            list(core, "List", &own("example.com/v1", "ClusterRole")),
            true,
            false,
        ),
        ("no kind", list(core, "List", &bare), false, false),
        (
            "no version",
            list(r#""a": 1"#, "ClusterRoleList", &bare),
            false,
            false,
        ),
        ("items that are none", list(core, "List", "1"), false, false),
        (
            "a list that is cut in a list",
            list(core, "List", r#"{"kind": "RoleList"}"#),
            false,
            false,
        ),
        ("metadata alone", metadata, false, false),
    ] {
        let mut world = new_world();
        world.add_file("hub/clusterroles.yaml", &text).unwrap();
        let lists = &world.hub.lists;
        assert_eq!(lists.is_whole(ListKind::ClusterRoles), is_whole, "{case}");
        let is_read = format!("{world:?}").contains("found");
        assert_eq!(is_read && case != "metadata alone", is_found, "{case}");
    }
}
