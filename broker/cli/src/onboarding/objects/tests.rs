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

fn tenant(deliveries: Vec<DeliveryType>, author: Option<Author>) -> Tenant {
    Tenant {
        account: account("tenant-a", "reconciler"),
        target: ObjectName::new("prod").unwrap(),
        access: ObjectName::new("prod").unwrap(),
        deliveries,
        author,
    }
}

#[test]
fn a_tenant_gets_its_namespace_account_binding_and_access_in_this_order() {
    let keyferry = Namespace::new("platform").unwrap();
    let objects = tenant(vec![DeliveryType::FluxConfigMap], None).objects(&keyferry);
    let kinds: Vec<&str> = objects
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["Namespace", "ServiceAccount", "RoleBinding", "TargetAccess"]
    );
    assert_eq!(objects[2]["subjects"][0]["namespace"], "platform");
    assert_eq!(objects[2]["roleRef"]["name"], "keyferry-minter");
    assert_eq!(
        objects[3]["spec"],
        json!({
            "targetClusterRef": { "name": "prod" },
            "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "fluxconfigmap", "type": "FluxConfigMap" }],
        })
    );
    let on_request = tenant(Vec::new(), None).objects(&keyferry);
    assert!(on_request[3]["spec"].get("deliveries").is_none());
}

#[test]
fn an_author_may_mint_for_this_account_alone() {
    let keyferry = Namespace::new("platform").unwrap();
    let author = Author::parse("group:team-a");
    let objects = tenant(Vec::new(), author).objects(&keyferry);
    let role = objects.iter().find(|one| one["kind"] == "Role").unwrap();
    assert_eq!(role["rules"][0]["resourceNames"], json!(["reconciler"]));
    assert_eq!(role["rules"][0]["verbs"], json!(["create"]));
    let bound = objects
        .iter()
        .find(|one| one["kind"] == "RoleBinding" && one["roleRef"]["kind"] == "Role")
        .unwrap();
    assert_eq!(bound["subjects"][0]["kind"], "Group");
    assert_eq!(bound["subjects"][0]["name"], "team-a");
}

#[test]
fn authors_are_users_groups_and_service_accounts() {
    assert_eq!(
        Author::parse("alice@example.com"),
        Some(Author::User("alice@example.com".to_owned()))
    );
    assert_eq!(
        Author::parse("system:serviceaccount:flux-system:apps"),
        Some(Author::Account(account("flux-system", "apps")))
    );
    for wrong in [
        "",
        "group:",
        "system:serviceaccount:a",
        "system:serviceaccount:A:b",
    ] {
        assert_eq!(Author::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn the_ca_certificates_move_into_a_secret() {
    let keyferry = Namespace::new("platform").unwrap();
    let mut object = target(json!([]));
    assert_eq!(authority_into_secret(&mut object, &keyferry), None);
    object["spec"]["caBundle"] = json!("PEM");
    let secret = authority_into_secret(&mut object, &keyferry).unwrap();
    assert_eq!(
        secret["metadata"],
        json!({ "name": "prod-ca", "namespace": "platform" })
    );
    assert_eq!(secret["data"], json!({ "ca.crt": STANDARD.encode("PEM") }));
    assert_eq!(
        object["spec"]["certSecretRef"],
        json!({ "name": "prod-ca" })
    );
    assert!(object["spec"].get("caBundle").is_none());
}

#[test]
fn another_address_or_audience_is_another_target() {
    let wanted = target(json!([]));
    let mut existing = wanted.clone();
    existing["spec"]["issuer"] = json!("Hub");
    existing["spec"]["suspend"] = json!(false);
    assert!(differing(&existing, &wanted).is_empty());
    for (field, value) in [
        ("address", "https://b"),
        ("audience", "c"),
        ("proxyURL", "http://p:1"),
        ("tlsServerName", "x"),
        ("issuer", "Keyferry"),
    ] {
        let mut other = existing.clone();
        other["spec"][field] = json!(value);
        assert_eq!(differing(&other, &wanted), [field]);
    }
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
        for namespace in texts(rule, "namespaces") {
            for name in texts(rule, "serviceAccounts") {
                all.insert((namespace.to_owned(), name.to_owned()));
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
        rules.iter().any(|rule| grants(rule, account, &[delivery]))
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

#[test]
fn deliveries_in_place_are_kept_and_tokens_on_request_too() {
    let access = json!({ "spec": { "deliveries": [{ "name": "x", "type": "FluxConfigMap" }] } });
    let flux = DeliveryType::FluxConfigMap;
    assert_eq!(deliveries_of(&access), [flux]);
    assert_eq!(united(&[flux], &[]), [flux]);
    assert_eq!(united(&[], &[]), []);
    assert_eq!(
        united(&[], &[flux]),
        [DeliveryType::HTTP, DeliveryType::Exec, flux]
    );
}

#[test]
fn keyferry_may_write_only_the_keys_of_this_target() {
    let keyferry = Namespace::new("platform").unwrap();
    let [role, bound] = issuer_rights(&ObjectName::new("prod").unwrap(), &keyferry).unwrap();
    assert_eq!(
        role["rules"][1]["resourceNames"],
        json!(["keyferry-issuer-prod"])
    );
    assert_eq!(bound["subjects"][0]["namespace"], "platform");
    assert_eq!(bound["metadata"]["namespace"], "platform");
}
