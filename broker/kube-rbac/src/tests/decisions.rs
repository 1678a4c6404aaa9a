//! Decisions, and the reasons that an access review shows.

use super::{policy_of, request, user};
use crate::{
    Binding, Decision, ObjectId, ObjectKind, RbacObject, RoleKind, RoleRef, Subject, SubjectKind,
};

const SHOP: &str = include_str!("shop.yaml");

#[test]
fn reasons_are_those_of_the_authorizer() {
    let policy = policy_of(SHOP);
    let rows = [
        ("r+readers", "get pods a in shop"),
        ("r+readers", "list pods"),
        ("r+readers", "watch pods"),
        ("r+readers", "get pods.batch"),
        ("r+readers", "get pods/log a in shop"),
        ("r+readers", "get deployments.apps/scale a in shop"),
        ("r+readers", "get deployments.apps/status a in shop"),
        ("r+readers", "get deployments.apps a in shop"),
        ("r+readers", "delete configmaps one in shop"),
        ("r+readers", "delete configmaps two in shop"),
        ("r+readers", "list configmaps in shop"),
        ("r+readers", "get /metrics"),
        ("r+readers", "get /metrics/"),
        ("r+readers", "get /logs/a/b"),
        ("r+readers", "get /logs"),
        ("r+readers", "head /metrics"),
        ("r", "get pods a in shop"),
        ("jane", "update deployments.apps a in shop"),
        ("jane", "update deployments.apps a in bank"),
        ("jane", "update deployments.apps a"),
        ("account shop/app", "update pods a in shop"),
        ("account bank/app", "update pods a in shop"),
        ("account tools/ci", "update pods a in shop"),
        ("account lab/any", "update pods a in shop"),
        ("account lab/any", "update pods a in lab"),
        ("system:serviceaccount::without-a-namespace", "get pods"),
        ("system:serviceaccount:shop:without-a-namespace", "get pods"),
        ("joe", "update pods a in shop"),
        ("jim", "update pods a in shop"),
        ("jim", "update pods a in bank"),
        ("root+system:masters", "anything pods in shop"),
    ];
    let answers: String = rows
        .iter()
        .map(|&(name, asked)| {
            let (user, asked) = (user(name), request(asked));
            let decision = policy.decide(&user, &asked);
            let ways = policy.ways(&user, &asked);
            if decision != Decision::Superuser {
                assert_eq!(decision.way(), ways.first().copied(), "{name} {asked}");
            }
            let verdict = if decision.is_allowed() { "yes" } else { "no" };
            format!("{name}: {asked}: {verdict} {}\n", decision.reason())
        })
        .collect();
    insta::assert_snapshot!(answers);
}

/// No apiserver stores these, but a folder of objects may have them.
#[test]
fn what_no_apiserver_stores_gives_nothing() {
    let reader = user("r+readers");
    let asked = request("get pods a in shop");
    for (role, subject, reason) in [
        (
            RoleKind::Role,
            SubjectKind::Group,
            "RBAC: role.rbac.authorization.k8s.io \"reader\" not found",
        ),
        (
            RoleKind::Unsupported("Rôle\n".to_owned()),
            SubjectKind::Group,
            "RBAC: unsupported role reference kind: \"Rôle\\n\"",
        ),
        (
            RoleKind::ClusterRole,
            SubjectKind::Unsupported("Crowd".to_owned()),
            "",
        ),
    ] {
        let mut policy = policy_of(SHOP);
        policy.insert(RbacObject::Binding(Binding {
            id: ObjectId::cluster_wide(ObjectKind::ClusterRoleBinding, "readers"),
            role_ref: RoleRef {
                kind: role,
                name: "reader".to_owned(),
            },
            subjects: vec![Subject {
                kind: subject,
                name: "readers".to_owned(),
                namespace: String::new(),
            }],
        }));
        let decision = policy.decide(&reader, &asked);
        assert!(!decision.is_allowed(), "{reason}");
        assert_eq!(decision.reason(), reason);
    }
}

#[test]
fn an_object_replaces_the_earlier_one_and_can_be_removed() {
    let mut policy = policy_of(SHOP);
    let asked = request("update pods a in shop");
    let allows =
        |policy: &crate::Policy, name: &str| policy.decide(&user(name), &asked).is_allowed();
    let id = ObjectId::namespaced(ObjectKind::RoleBinding, "shop", "editors");
    let before = policy.clone();
    let Some(RbacObject::Binding(mut binding)) = policy.remove(&id) else {
        panic!("the policy has {id}");
    };
    assert!(!allows(&policy, "jane") && !allows(&policy, "account shop/app"));
    assert!(policy.remove(&id).is_none() && policy.binding(&id).is_none());
    binding
        .subjects
        .retain(|subject| subject.kind == SubjectKind::User);
    assert!(
        policy
            .insert(RbacObject::Binding(binding.clone()))
            .is_none()
    );
    assert!(policy.insert(RbacObject::Binding(binding)).is_some());
    assert!(allows(&policy, "jane") && !allows(&policy, "account shop/app"));
    // The clone is another policy.
    assert!(allows(&before, "account shop/app"));
    let role = ObjectId::namespaced(ObjectKind::Role, "shop", "editor");
    policy.remove(&role);
    assert!(!allows(&policy, "jane"));
}

#[test]
fn the_order_of_the_objects_does_not_matter() {
    let asked = request("update pods a in shop");
    let forward = policy_of(SHOP);
    let backward: Vec<&str> = SHOP.split("---\n").collect();
    let backward: Vec<&str> = backward.into_iter().rev().collect();
    let backward = policy_of(&backward.join("---\n"));
    for name in ["jane", "joe", "jim", "account shop/app"] {
        let user = user(name);
        let (left, right) = (
            forward.decide(&user, &asked),
            backward.decide(&user, &asked),
        );
        assert_eq!(left, right, "{name}");
    }
}
