//! Random Roles, ClusterRoles and bindings that an apiserver stores.

use serde_json::{Value, json};

use super::{
    ACCOUNTS, API_GROUPS, GROUPS, NAMES, PATHS, RESOURCES, ROLES, SUBRESOURCES, USERS, VERBS,
};
use crate::random::Random;

/// The namespaces of generated objects.
pub const NAMESPACES: [&str; 4] = ["shop", "bank", "lab", "tools"];
const GROUP: &str = "rbac.authorization.k8s.io";
/// How many of the roles of a scope exist: a binding of another one has no role.
const EXISTING_ROLES: usize = 7;
const BINDINGS_OF_NAMESPACE: usize = 12;
const CLUSTER_ROLE_BINDINGS: usize = 14;
const AGGREGATED_ROLES: usize = 4;
/// Labels of ClusterRoles, which aggregated ClusterRoles select.
const LABEL_VALUES: [&str; 3] = ["one", "two", "three"];

/// Generates the objects of one round. The same seed and round give the same objects.
pub fn generate_objects(seed: u64, round: u64) -> Vec<Value> {
    let mut random = Random::of(seed, round);
    let mut objects = Vec::new();
    for &name in &ROLES[..EXISTING_ROLES] {
        let rules = rules(&mut random, true);
        let mut role =
            json!({ "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
        if random.percent(60) {
            role["metadata"]["labels"] = json!({ "part": random.pick(&LABEL_VALUES) });
        }
        objects.push(role);
    }
    for index in 0..AGGREGATED_ROLES {
        objects.push(aggregated(&mut random, index));
    }
    for index in 0..CLUSTER_ROLE_BINDINGS {
        objects.push(json!({
            "kind": "ClusterRoleBinding", "metadata": { "name": format!("b{index}") },
            "roleRef": cluster_role_ref(&mut random), "subjects": subjects(&mut random, false),
        }));
    }
    for namespace in NAMESPACES {
        for &name in &ROLES[..EXISTING_ROLES] {
            // Which ones are missing differs between the namespaces.
            if random.percent(75) {
                let rules = rules(&mut random, false);
                let metadata = json!({ "name": name, "namespace": namespace });
                objects.push(json!({ "kind": "Role", "metadata": metadata, "rules": rules }));
            }
        }
        for index in 0..BINDINGS_OF_NAMESPACE {
            let role_ref = match random.percent(60) {
                true => {
                    json!({ "apiGroup": GROUP, "kind": "Role", "name": random.pick(&ROLES) })
                }
                false => cluster_role_ref(&mut random),
            };
            objects.push(json!({
                "kind": "RoleBinding",
                "metadata": { "name": format!("b{index}"), "namespace": namespace },
                "roleRef": role_ref, "subjects": subjects(&mut random, true),
            }));
        }
    }
    for object in &mut objects {
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    }
    objects
}

fn cluster_role_ref(random: &mut Random) -> Value {
    let name = match random.percent(20) {
        true => format!("aggregated{}", random.below(AGGREGATED_ROLES)),
        false => random.pick(&ROLES).to_owned(),
    };
    json!({ "apiGroup": GROUP, "kind": "ClusterRole", "name": name })
}

/// An aggregated ClusterRole, with rules that a controller would replace.
fn aggregated(random: &mut Random, index: usize) -> Value {
    let value = random.pick(&LABEL_VALUES);
    let selector = match random.below(4) {
        0 => json!({ "matchLabels": { "part": value } }),
        1 => {
            json!({ "matchExpressions": [{ "key": "part", "operator": "In", "values": [value] }] })
        }
        2 => json!({ "matchExpressions": [
            { "key": "part", "operator": "Exists" },
            { "key": "part", "operator": "NotIn", "values": [value] },
        ] }),
        _ => json!({ "matchLabels": { "part": value, "never": "there" } }),
    };
    let mut selectors = vec![selector];
    if random.percent(40) {
        selectors.push(json!({ "matchLabels": { "part": random.pick(&LABEL_VALUES) } }));
    }
    json!({
        "kind": "ClusterRole", "metadata": { "name": format!("aggregated{index}") },
        "aggregationRule": { "clusterRoleSelectors": selectors }, "rules": rules(random, true),
    })
}

fn rules(random: &mut Random, with_paths: bool) -> Vec<Value> {
    let count = random.below(5);
    (0..count)
        .map(|_| match with_paths && random.percent(25) {
            true => path_rule(random),
            false => resource_rule(random),
        })
        .collect()
}

fn path_rule(random: &mut Random) -> Value {
    let url = |random: &mut Random| match random.below(8) {
        0 => "*".to_owned(),
        1 => "/healthz*".to_owned(),
        2 => "/healthz/*".to_owned(),
        3 => "/logs/**".to_owned(),
        4 => "/x/*/y".to_owned(),
        _ => random.pick(&PATHS).to_owned(),
    };
    let urls = several(random, 2, url);
    json!({ "nonResourceURLs": urls, "verbs": verbs(random) })
}

fn resource_rule(random: &mut Random) -> Value {
    let group = |random: &mut Random| match random.percent(12) {
        true => "*".to_owned(),
        false => random.pick(&API_GROUPS).to_owned(),
    };
    let resource = |random: &mut Random| {
        let (resource, subresource) = (random.pick(&RESOURCES), random.pick(&SUBRESOURCES));
        match random.below(12) {
            0 => "*".to_owned(),
            1 | 2 => format!("*/{subresource}"),
            3..=5 => format!("{resource}/{subresource}"),
            6 => format!("{resource}/*"),
            _ => resource.to_owned(),
        }
    };
    let mut rule = json!({
        "verbs": verbs(random), "apiGroups": several(random, 2, group),
        "resources": several(random, 3, resource),
    });
    if random.percent(35) {
        rule["resourceNames"] = json!(several(random, 2, |random| random.pick(&NAMES).to_owned()));
    }
    rule
}

fn verbs(random: &mut Random) -> Vec<String> {
    several(random, 3, |random| match random.percent(12) {
        true => "*".to_owned(),
        false => random.pick(&VERBS).to_owned(),
    })
}

fn subjects(random: &mut Random, in_namespace: bool) -> Vec<Value> {
    let subject = |random: &mut Random| match random.below(3) {
        0 => json!({ "apiGroup": GROUP, "kind": "User", "name": random.pick(&USERS) }),
        1 => json!({ "apiGroup": GROUP, "kind": "Group", "name": random.pick(&GROUPS) }),
        _ => {
            let mut account = json!({ "kind": "ServiceAccount", "name": random.pick(&ACCOUNTS) });
            // A RoleBinding may leave the namespace out, and then means its own.
            if !in_namespace || random.percent(50) {
                account["namespace"] = json!(random.pick(&NAMESPACES));
            }
            account
        }
    };
    match random.percent(5) {
        true => Vec::new(),
        false => several(random, 3, subject),
    }
}

/// Between one and `most` values, which may repeat.
fn several<T>(
    random: &mut Random,
    limit: usize,
    mut value: impl FnMut(&mut Random) -> T,
) -> Vec<T> {
    let count = 1 + random.below(limit);
    (0..count).map(|_| value(random)).collect()
}
