#![allow(clippy::unwrap_used)]

use super::*;

fn account(namespace: &str, name: &str) -> ServiceAccount {
    ServiceAccount {
        namespace: Namespace::new(namespace).unwrap(),
        name: ObjectName::new(name).unwrap(),
    }
}

fn target(allow: Value) -> Value {
    json!({
        "metadata": { "name": "prod" },
        "spec": { "address": "https://a", "audience": "b", "allow": allow },
    })
}

#[test]
fn a_rule_is_added_only_if_none_grants_it_by_name() {
    let reconciler = account("tenant-a", "reconciler");
    let mut object = target(json!([]));
    assert!(allow(&mut object, &reconciler, &[]));
    assert!(!allow(&mut object, &reconciler, &[]), "granted now");
    assert!(
        !allow(&mut object, &reconciler, &[DeliveryType::FluxConfigMap]),
        "a default delivery"
    );
    assert!(allow(
        &mut object,
        &reconciler,
        &[DeliveryType::KubeConfigSecret]
    ));
    assert_eq!(
        object["spec"]["allow"],
        json!([
            { "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"] },
            {
                "namespaces": ["tenant-a"],
                "serviceAccounts": ["reconciler"],
                "deliveries": ["KubeConfigSecret"],
            },
        ])
    );
    assert!(allow(&mut object, &account("tenant-b", "reconciler"), &[]));
    // A selector may stop matching, so it does not count.
    let mut selected = target(json!([{
        "namespaceSelector": { "matchLabels": { "access.keyferry.dev/tier": "prod" } },
        "serviceAccounts": ["reconciler"],
    }]));
    assert!(allow(&mut selected, &reconciler, &[]));
}

/// Every combination that the rules grant by name.
fn combinations(object: &Value) -> std::collections::BTreeSet<(String, String)> {
    let mut all = std::collections::BTreeSet::new();
    for rule in object["spec"]["allow"].as_array().unwrap() {
        let rule = AllowRule::of(rule);
        for namespace in &rule.namespaces {
            for name in &rule.service_accounts {
                all.insert((namespace.clone(), name.clone()));
            }
        }
    }
    all
}

#[test]
fn removing_one_account_leaves_all_others() {
    let rules = json!([
        { "namespaces": ["a", "b"], "serviceAccounts": ["x", "y"], "deliveries": ["HTTP"] },
        { "namespaces": ["a"], "serviceAccounts": ["x"] },
        { "namespaceSelector": { "matchLabels": {} }, "serviceAccounts": ["x"] },
    ]);
    let mut object = target(rules);
    let mut wanted = combinations(&object);
    let named = allowed_in(&object, &Namespace::new("b").unwrap());
    assert_eq!(named, [account("b", "x"), account("b", "y")]);
    assert!(disallow(&mut object, &account("a", "x")));
    wanted.remove(&("a".to_owned(), "x".to_owned()));
    assert_eq!(combinations(&object), wanted);
    let kept = object["spec"]["allow"].as_array().unwrap();
    assert!(
        kept.iter()
            .any(|rule| rule.get("namespaceSelector").is_some())
    );
    assert!(
        kept.iter()
            .filter(|rule| rule.get("namespaces").is_some())
            .all(|rule| rule["deliveries"] == json!(["HTTP"]))
    );
    assert!(!disallow(&mut object, &account("a", "x")));
}

#[test]
fn pruning_allows_exactly_what_is_named_and_keeps_other_accounts() {
    let mut changed = target(json!([
        { "namespaces": ["tenant-a", "tenant-b"], "serviceAccounts": ["reconciler"] },
        { "namespaceSelector": { "matchLabels": { "a": "b" } }, "serviceAccounts": ["x"] },
    ]));
    let account_a = account("tenant-a", "reconciler");
    assert!(allow_exactly(
        &mut changed,
        &account_a,
        &[DeliveryType::KubeConfigSecret]
    ));
    let rules = changed["spec"]["allow"].as_array().unwrap().clone();
    assert!(
        rules
            .iter()
            .any(|rule| rule.get("namespaceSelector").is_some())
    );
    let granted = |delivery: &str, account: &ServiceAccount| {
        let mut rules = rules.iter().map(AllowRule::of);
        rules.any(|rule| rule.grants(account, delivery))
    };
    assert!(granted("KubeConfigSecret", &account_a) && !granted("HTTP", &account_a));
    assert!(granted("HTTP", &account("tenant-b", "reconciler")));
    let again = changed.clone();
    assert!(!allow_exactly(
        &mut changed,
        &account_a,
        &[DeliveryType::KubeConfigSecret]
    ));
    assert_eq!(changed, again, "nothing moves");
    let named = all_allowed(&changed);
    assert_eq!(named.len(), 2, "{named:?}");
}
