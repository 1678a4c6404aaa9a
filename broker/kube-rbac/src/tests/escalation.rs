//! The checks against escalation, in the cases of Kubernetes' own policy.

use super::{policy_of, user};
use crate::{
    Coverage, EscalationDecision, EscalationRefusal, ObjectId, ObjectKind, Policy, PolicyRule,
    Role, RoleWrite, rules_cover,
};

const OWNED: &str = include_str!("escalation.yaml");

/// `VERBS GROUPS RESOURCES [NAMES]`, or `VERBS PATHS`, each with commas between.
fn rule(text: &str) -> PolicyRule {
    let list = |text: &str| -> Vec<String> {
        text.split(',')
            .map(|item| item.replace("core", ""))
            .collect()
    };
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        [verbs, paths] => PolicyRule {
            verbs: list(verbs),
            non_resource_urls: list(paths),
            ..PolicyRule::default()
        },
        [verbs, groups, resources, names @ ..] => PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: names.iter().flat_map(|names| list(names)).collect(),
            ..PolicyRule::default()
        },
        _ => PolicyRule::default(),
    }
}

fn print(rule: &PolicyRule) -> String {
    let parts = [
        &rule.verbs,
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.non_resource_urls,
    ];
    let parts = parts.map(|part| part.join(","));
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(" ")
}

#[test]
fn a_part_is_covered_by_one_rule_as_a_whole() {
    for (owned, wanted, missing) in [
        (&["get core pods"][..], "get core pods", &[][..]),
        (&["get core pods"], "get,list core pods", &["list pods"]),
        (
            &["get core pods", "list core pods"],
            "get,list core pods",
            &[],
        ),
        (&["* core pods"], "get,list core pods", &[]),
        (&["get core pods"], "* core pods", &["* pods"]),
        (&["get * *"], "get apps deployments/scale", &[]),
        (
            &["get core *"],
            "get apps deployments",
            &["get apps deployments"],
        ),
        (&["get core *"], "get core */scale", &[]),
        (&["get core */scale"], "get core pods/scale", &[]),
        (
            &["get core pods/scale"],
            "get core */scale",
            &["get */scale"],
        ),
        (
            &["get core pods"],
            "get core pods/scale",
            &["get pods/scale"],
        ),
        (&["get core pods a"], "get core pods a", &[]),
        (&["get core pods"], "get core pods a", &[]),
        (&["get core pods a"], "get core pods", &["get pods"]),
        (&["get core pods a"], "get core pods a,b", &["get pods b"]),
        (
            &["get core pods a", "get core pods b"],
            "get core pods a,b",
            &[],
        ),
        (&["get /x"], "get /x", &[]),
        (&["get /x/*"], "get /x/y", &[]),
        (&["get /x/*"], "get /x/y/*", &[]),
        (&["get /x/y"], "get /x/*", &["get /x/*"]),
        (&["get *"], "get /x/*,/y", &[]),
        (&["get core pods"], "get /x", &["get /x"]),
        (&["* * *"], "get /x", &["get /x"]),
    ] {
        let owned: Vec<PolicyRule> = owned.iter().map(|text| rule(text)).collect();
        let missing_parts = match rules_cover(&owned, &[rule(wanted)]) {
            Coverage::Covered => Vec::new(),
            Coverage::Missing(parts) => parts.iter().map(print).collect(),
            Coverage::Undetermined => vec!["undetermined".to_owned()],
        };
        assert_eq!(missing_parts, missing, "{owned:?} {wanted}");
    }
}

#[test]
fn what_breaks_into_too_many_parts_is_undetermined() {
    let many: Vec<String> = (0..1000).map(|index| index.to_string()).collect();
    let rule = PolicyRule {
        verbs: many.clone(),
        api_groups: many.clone(),
        resources: many.clone(),
        resource_names: many,
        ..PolicyRule::default()
    };
    let all = [self::rule("* * *")];
    assert_eq!(
        rules_cover(&all, std::slice::from_ref(&rule)),
        Coverage::Undetermined
    );
}

fn described(decision: &EscalationDecision<'_>) -> String {
    match decision {
        EscalationDecision::Superuser => "superuser".to_owned(),
        EscalationDecision::ByVerb(way) => format!("by {way}"),
        EscalationDecision::ByCoverage => "covered".to_owned(),
        EscalationDecision::Refused(EscalationRefusal::RightsMissing(rules)) => {
            let missing: Vec<String> = rules.iter().map(print).collect();
            format!("lacks {}", missing.join("; "))
        }
        EscalationDecision::Refused(EscalationRefusal::RoleMissing(fault)) => fault.to_string(),
        EscalationDecision::Undetermined => "undetermined".to_owned(),
    }
}

#[test]
fn a_binding_needs_the_verb_or_all_rights_of_its_role() {
    let policy = policy_of(OWNED);
    for (name, namespace, binding, expected) in [
        ("root+system:masters", "shop", "wide", "superuser"),
        ("owner", "shop", "reads", "covered"),
        ("owner", "shop", "wide", "lacks * * *"),
        ("owner", "bank", "reads", "lacks get pods"),
        ("owner", "", "reads", "lacks get pods"),
        (
            "binder",
            "shop",
            "wide",
            "by RoleBinding shop/binder → ClusterRole binds-wide, rule 0",
        ),
        ("binder", "shop", "reads", "lacks get pods"),
        ("binder", "bank", "wide", "lacks * * *"),
        (
            "owner",
            "shop",
            "none",
            "clusterrole.rbac.authorization.k8s.io \"none\" not found",
        ),
    ] {
        let mut binding = binding_of(&policy, binding);
        binding.id = match namespace {
            "" => ObjectId::cluster_wide(ObjectKind::ClusterRoleBinding, "new"),
            namespace => ObjectId::namespaced(ObjectKind::RoleBinding, namespace, "new"),
        };
        let decision = policy.may_bind(&user(name), &binding);
        assert_eq!(described(&decision), expected, "{name} {namespace}");
        assert_eq!(
            decision.is_allowed(),
            !expected.contains("lacks") && !expected.contains("not found")
        );
    }
}

fn binding_of(policy: &Policy, role: &str) -> crate::Binding {
    let id = ObjectId::namespaced(ObjectKind::RoleBinding, "shop", "binder");
    let mut binding = policy.binding(&id).unwrap().clone();
    role.clone_into(&mut binding.role_ref.name);
    binding
}

#[test]
fn a_role_needs_the_verb_or_all_its_rights() {
    let policy = policy_of(OWNED);
    let role = |kind: ObjectKind, name: &str, text: &str| Role {
        id: match kind {
            ObjectKind::Role => ObjectId::namespaced(kind, "shop", name),
            _ => ObjectId::cluster_wide(kind, name),
        },
        labels: std::collections::BTreeMap::new(),
        rules: vec![rule(text)],
        aggregation: None,
        rules_owner: crate::RulesOwner::Unknown,
    };
    let aggregated = policy.cluster_role("gathers").unwrap();
    let rows = [
        (
            "root+system:masters",
            role(ObjectKind::Role, "x", "* * *"),
            RoleWrite::Create,
            "superuser",
        ),
        (
            "owner",
            role(ObjectKind::Role, "x", "get core pods"),
            RoleWrite::Create,
            "covered",
        ),
        (
            "owner",
            role(ObjectKind::Role, "x", "list core pods"),
            RoleWrite::Create,
            "lacks list pods",
        ),
        // A ClusterRole needs rights in the whole cluster.
        (
            "owner",
            role(ObjectKind::ClusterRole, "x", "get core pods"),
            RoleWrite::Create,
            "lacks get pods",
        ),
        // The right to escalate one name does not count for a creation, which names none.
        (
            "escalator",
            role(ObjectKind::Role, "mine", "* * *"),
            RoleWrite::Create,
            "lacks * * *",
        ),
        (
            "escalator",
            role(ObjectKind::Role, "mine", "* * *"),
            RoleWrite::Update,
            "by RoleBinding shop/escalator → ClusterRole escalates-mine, rule 0",
        ),
        (
            "escalator",
            role(ObjectKind::Role, "other", "* * *"),
            RoleWrite::Update,
            "lacks * * *",
        ),
        (
            "reader",
            Role {
                rules: Vec::new(),
                ..aggregated.clone()
            },
            RoleWrite::Create,
            "lacks * * *; * *",
        ),
        (
            "admin",
            aggregated.clone(),
            RoleWrite::Create,
            "by ClusterRoleBinding admin → ClusterRole all, rule 0",
        ),
    ];
    for (name, role, write, expected) in rows {
        let decision = policy.may_write_role(&user(name), &role, write, None);
        assert_eq!(described(&decision), expected, "{name} {}", role.id);
    }
    // Taking the aggregationRule away needs all rights too.
    let plain = role(ObjectKind::ClusterRole, "gathers", "get /x");
    let replaces = Some(aggregated);
    let decision = policy.may_write_role(&user("reader"), &plain, RoleWrite::Update, replaces);
    assert_eq!(described(&decision), "lacks * * *; * *");
    let decision = policy.may_write_role(&user("reader"), &plain, RoleWrite::Update, None);
    assert_eq!(described(&decision), "covered");
}
