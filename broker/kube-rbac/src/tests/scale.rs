//! A policy of 60,000 objects answers without a search through all of them.

use crate::{
    Attributes, Binding, ObjectId, ObjectKind, Policy, PolicyRule, RbacObject, ResourceRequest,
    Role, RoleKind, RoleRef, Subject, SubjectKind, User,
};

const NAMESPACES: usize = 500;
const BINDINGS_OF_NAMESPACE: usize = 60;

fn large_policy() -> Policy {
    let mut policy = Policy::default();
    for namespace in 0..NAMESPACES {
        let namespace = format!("n{namespace}");
        for index in 0..BINDINGS_OF_NAMESPACE {
            let name = format!("r{index}");
            policy.insert(RbacObject::Role(Role {
                id: ObjectId::namespaced(ObjectKind::Role, &namespace, &name),
                labels: std::collections::BTreeMap::new(),
                rules: vec![PolicyRule {
                    verbs: vec!["get".to_owned()],
                    api_groups: vec![String::new()],
                    resources: vec![format!("kind{index}")],
                    ..PolicyRule::default()
                }],
                aggregation: None,
                rules_owner: crate::RulesOwner::Unknown,
            }));
            policy.insert(RbacObject::Binding(Binding {
                id: ObjectId::namespaced(ObjectKind::RoleBinding, &namespace, &name),
                role_ref: RoleRef {
                    kind: RoleKind::Role,
                    name,
                },
                subjects: vec![Subject {
                    kind: SubjectKind::ServiceAccount,
                    name: format!("a{index}"),
                    namespace: String::new(),
                }],
            }));
        }
    }
    policy
}

/// A search through all bindings would compare 6,000,000,000 subjects, which takes minutes.
#[test]
fn two_hundred_thousand_questions_to_sixty_thousand_objects() {
    let policy = large_policy();
    assert_eq!(policy.roles().count() + policy.bindings().count(), 60_000);
    let mut allowed = 0;
    for question in 0..200_000 {
        let namespace = format!("n{}", question % NAMESPACES);
        let account = question / NAMESPACES % BINDINGS_OF_NAMESPACE;
        let user = User::service_account(&namespace, &format!("a{account}"));
        let request = ResourceRequest {
            resource: format!("kind{}", (account + question % 2) % BINDINGS_OF_NAMESPACE),
            namespace,
            ..ResourceRequest::default()
        };
        let decision = policy.decide(&user, &Attributes::resource("get", request));
        allowed += usize::from(decision.is_allowed());
    }
    assert_eq!(allowed, 100_000);
}
