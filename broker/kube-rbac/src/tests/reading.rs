//! What is read, and what is refused.

use serde_json::Value;

use super::policy_of;
use crate::{FieldFault, Reading, list_items, read_object, read_objects};

fn read(text: &str, reading: Reading) -> String {
    let document: Value = serde_saphyr::from_str(text).unwrap();
    match read_objects(document, reading) {
        Ok(objects) => {
            let ids: Vec<String> = objects
                .iter()
                .map(|object| object.id().to_string())
                .collect();
            format!("read [{}]", ids.join(", "))
        }
        Err(error) => error.to_string(),
    }
}

/// Each row is the kind and the rest of an object.
#[test]
fn faults_are_named_by_kind_name_and_field() {
    let rows = [
        ("Role", "metadata: {name: a}"),
        ("Role", "metadata: {name: a, namespace: b}\nrules: null"),
        ("ClusterRole", "metadata: {name: a, namespace: b}"),
        ("ClusterRole", "metadata: {}"),
        ("ClusterRole", "metadata: [a]"),
        ("ClusterRole", "metadata: {name: 1}"),
        ("ClusterRole", "metadata: {name: a, labels: {b: 1}}"),
        ("ClusterRole", "metadata: {name: a}\nrules: {}"),
        ("ClusterRole", "metadata: {name: a}\nrules: [a]"),
        (
            "ClusterRole",
            "metadata: {name: a}\nrules: [{verbs: []}, {verb: [get]}]",
        ),
        ("ClusterRole", "metadata: {name: a}\nrules: [{verbs: get}]"),
        (
            "ClusterRole",
            "metadata: {name: a}\nrules: [{verbs: [get, 1]}]",
        ),
        ("ClusterRole", "metadata: {name: a}\nrule: []"),
        ("ClusterRole", "metadata: {name: a}\naggregationRule: {}"),
        ("ClusterRole", "metadata: {name: a}\naggregationRule: null"),
        (
            "Role",
            "metadata: {name: a, namespace: b}\naggregationRule: {clusterRoleSelectors: [{}]}",
        ),
        (
            "ClusterRole",
            "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}",
        ),
        (
            "ClusterRole",
            "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchLabel: {a: b}}]}",
        ),
        (
            "ClusterRole",
            "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: Is}]}]}",
        ),
        (
            "ClusterRole",
            "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: In}]}]}",
        ),
        (
            "ClusterRole",
            "metadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}",
        ),
        ("ClusterRoleBinding", "metadata: {name: a}"),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {name: b}",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: Other, name: b}",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: Role, name: b}",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {apiGroup: other, kind: ClusterRole, name: b}",
        ),
        (
            "RoleBinding",
            "metadata: {name: a, namespace: c}\nroleRef: {kind: Role, name: b}",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: b}\nsubjects: [{kind: Crowd, name: c}]",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: b}\nsubjects: [{kind: User}]",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: b}\nsubjects: [{kind: User, name: c, uid: d}]",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: b}\nsubjects: [{kind: User, apiGroup: v1, name: c}]",
        ),
        (
            "ClusterRoleBinding",
            "metadata: {name: a}\nroleRef: {kind: ClusterRole, name: b}\nsubjects: [{kind: ServiceAccount, apiGroup: rbac.authorization.k8s.io, name: c, namespace: d}]",
        ),
        ("PodRole", "metadata: {name: a}"),
    ];
    let outcomes: String = rows
        .iter()
        .map(|(kind, rest)| {
            let text = format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n{rest}\n");
            let (strict, stored) = (read(&text, Reading::Strict), read(&text, Reading::Stored));
            let stored = match strict == stored {
                true => String::new(),
                false => format!("  stored: {stored}\n"),
            };
            format!("{kind} {}\n  {strict}\n{stored}", rest.replace('\n', "; "))
        })
        .collect();
    insta::assert_snapshot!(outcomes);
}

#[test]
fn lists_are_split_and_other_objects_skipped() {
    for (text, read_as) in [
        (
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}, {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a, namespace: b}}]}",
            "read [Role b/a]",
        ),
        (
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}]}]}",
            "read [ClusterRole a]",
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleList, items: [{metadata: {name: b}}, {metadata: {name: a}}]}",
            "read [ClusterRole b, ClusterRole a]",
        ),
        ("{apiVersion: v1, kind: List}", "read []"),
        ("{apiVersion: apps/v1, kind: Deployment}", "read []"),
        ("{apiVersion: rbac.example/v1, kind: Role}", "read []"),
        ("null", "read []"),
        ("[]", "read []"),
        (
            "{apiVersion: v1, kind: List, items: {}}",
            "reading List \"\": items: it is not a list",
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleList, metadata: {continue: abc}, items: []}",
            "reading RoleList \"\": the list has further pages; fix: read it whole",
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: a}}",
            "reading ClusterRole \"a\": its apiVersion is \"rbac.authorization.k8s.io/v1beta1\"; fix: write rbac.authorization.k8s.io/v1",
        ),
    ] {
        assert_eq!(read(text, Reading::Strict), read_as, "{text}");
        assert_eq!(read(text, Reading::Stored), read_as, "{text}");
    }
}

#[test]
fn one_bad_item_does_not_hide_the_others() {
    let document = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleList",
        "items": [{ "metadata": { "name": "a" } }, { "metadata": { "name": "a", "namespace": "b" } }],
    });
    let mut items = list_items(document).unwrap().into_iter();
    let mut next = || read_object(items.next().unwrap(), Reading::Stored);
    assert_eq!(next().unwrap_err().fault, FieldFault::NamespaceMissing);
    assert!(next().unwrap().is_some());
}

#[test]
fn the_same_name_in_two_kinds_is_two_objects() {
    let text = include_str!("shop.yaml");
    let policy = policy_of(&text.replace("name: editors,", "name: editor,"));
    assert_eq!(policy.roles().count(), 2);
    assert_eq!(policy.bindings().count(), 5);
}
