//! Aggregated ClusterRoles. The suite `rbac` compares the same cases with the real controller.

use super::{policy_of, request, user};
use crate::{AggregationFault, ObjectId, ObjectKind, Policy, RbacObject, Role};

const ROLES: &str = include_str!("aggregated.yaml");

fn rules_of(policy: &Policy, name: &str) -> String {
    let role = policy.cluster_role(name).unwrap();
    let resources: Vec<String> = role
        .rules
        .iter()
        .map(|rule| rule.resources.join("+"))
        .collect();
    resources.join(" ")
}

#[test]
fn rules_come_by_selector_and_name_and_each_once() {
    let mut policy = policy_of(ROLES);
    let aggregation = policy.aggregate().unwrap();
    for (name, rules) in [
        // By the name of the selected ClusterRoles, `shared` once.
        ("by-label", "b shared a"),
        // By the order of the selectors.
        ("two-selectors", "c b shared a"),
        ("by-expression", "b shared a c"),
        ("everything-but", "c"),
        // It selects an aggregated one, and itself, whose rules are not its own source.
        ("of-aggregated", "b shared a"),
        // Nothing is selected, and nothing was written before: what is stored stays.
        ("none-selected", "stored"),
        ("replaced", "b shared a"),
    ] {
        assert_eq!(rules_of(&policy, name), rules, "{name}");
    }
    let changed = aggregation.changed.iter();
    let names: Vec<&str> = changed.map(|role| role.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "by-expression",
            "by-label",
            "everything-but",
            "of-aggregated",
            "replaced",
            "two-selectors"
        ]
    );
    assert_eq!(aggregation.undetermined, ["none-selected"]);
    let repeated = policy.aggregate().unwrap();
    assert_eq!(repeated.changed, [], "it is settled");
}

/// Each row is the writers of the field `rules`, and whether the rules go with their last source.
#[test]
fn rules_go_with_their_last_source_if_the_controller_wrote_them() {
    const CONTROLLER: &str = "clusterrole-aggregation-controller";
    for (writers, rules, undetermined) in [
        (&[CONTROLLER][..], "", false),
        (&["kubectl"], "stored", false),
        (&[CONTROLLER, "kubectl"], "stored", false),
        (&[], "stored", true),
    ] {
        let managed_fields: Vec<String> = writers
            .iter()
            .map(|writer| format!("{{manager: {writer}, fieldsV1: {{'f:rules': {{}}}}}}"))
            .collect();
        let name = format!(
            "name: none-selected, managedFields: [{}]",
            managed_fields.join(", ")
        );
        let mut policy = policy_of(&ROLES.replace("name: none-selected", &name));
        let aggregation = policy.aggregate().unwrap();
        assert_eq!(rules_of(&policy, "none-selected"), rules, "{writers:?}");
        assert_eq!(
            !aggregation.undetermined.is_empty(),
            undetermined,
            "{writers:?}"
        );
    }
}

#[test]
fn a_decision_reads_stored_rules_alone() {
    let binding = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jane}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: of-aggregated}
subjects: [{kind: User, name: jane}]
";
    let mut policy = policy_of(&format!("{ROLES}---{binding}"));
    let (jane, asked) = (user("jane"), request("get a"));
    assert!(!policy.decide(&jane, &asked).is_allowed());
    policy.aggregate().unwrap();
    let decision = policy.decide(&jane, &asked);
    let way = decision.way().unwrap().to_string();
    assert_eq!(
        way,
        "ClusterRoleBinding jane → ClusterRole of-aggregated, rule 2"
    );
}

#[test]
fn what_does_not_settle_or_is_too_much_is_refused_and_changes_nothing() {
    let link = |index: usize| {
        let text = format!(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: 'l{index:03}', labels: {{l: '{index}'}}}}
aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{l: '{}'}}}}]}}
",
            index + 1
        );
        policy_of(&text)
            .cluster_role(&format!("l{index:03}"))
            .unwrap()
            .clone()
    };
    let chain = |length: usize| {
        let mut policy = Policy::default();
        for index in 0..length {
            policy.insert(RbacObject::Role(link(index)));
        }
        let last = Role {
            aggregation: None,
            rules: policy_of(ROLES).cluster_role("a").unwrap().rules.clone(),
            ..link(length)
        };
        policy.insert(RbacObject::Role(last));
        policy
    };
    let mut short = chain(20);
    assert_eq!(short.aggregate().unwrap().changed.len(), 20);
    let mut long = chain(40);
    assert_eq!(long.aggregate(), Err(AggregationFault::Unsettled));
    assert!(long.cluster_role("l039").unwrap().rules.is_empty());

    let mut many = Policy::default();
    let gatherer = policy_of(ROLES)
        .cluster_role("everything-but")
        .unwrap()
        .clone();
    let labels = policy_of(ROLES).cluster_role("c").unwrap().labels.clone();
    for index in 0..1000 {
        let id = ObjectId::cluster_wide(ObjectKind::ClusterRole, &format!("r{index}"));
        many.insert(RbacObject::Role(Role {
            id,
            labels: labels.clone(),
            ..gatherer.clone()
        }));
    }
    assert_eq!(many.aggregate(), Err(AggregationFault::TooManyRules));
}
