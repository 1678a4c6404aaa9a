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

fn objects(tenant: &Tenant, keyferry: &Namespace) -> Vec<Value> {
    let mut objects = tenant.prerequisites(keyferry);
    objects.push(tenant.target_access());
    objects
}

#[test]
fn a_tenant_gets_its_namespace_account_binding_and_access_in_this_order() {
    let keyferry = Namespace::new("platform").unwrap();
    let objects = objects(&tenant(vec![DeliveryType::FluxConfigMap], None), &keyferry);
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
    let on_request = tenant(Vec::new(), None).target_access();
    assert!(on_request["spec"].get("deliveries").is_none());
}

#[test]
fn an_author_may_mint_for_this_account_alone() {
    let keyferry = Namespace::new("platform").unwrap();
    let author = Author::parse("group:team-a");
    let objects = objects(&tenant(Vec::new(), author), &keyferry);
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
fn deliveries_in_place_are_kept_and_tokens_on_request_too() {
    let access = json!({ "spec": { "deliveries": [{ "name": "x", "type": "FluxConfigMap" }] } });
    let flux = DeliveryType::FluxConfigMap;
    assert_eq!(deliveries_of(&AccessView::of(&access)), [flux]);
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
