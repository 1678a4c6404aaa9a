//! Which requester gets which pair of an access and a target.

use std::time::Duration;

use keyferry_api::config::{DeliveryType, Policy};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;

use super::{BY_LABEL, Hub, RULE, access, ask, caller, hub, policy, target, usual};
use crate::authorise::{Requester, Review, Via, delivery_pair, grant_token};
use crate::caller::tests::verified;

#[test]
fn the_service_account_itself_is_paired_with_everything_it_needs() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    assert_eq!(
        (pair.access().to_string().as_str(), pair.target().as_str()),
        ("tenant-a/prod", "prod")
    );
    assert_eq!(
        pair.service_account().account.to_string(),
        "tenant-a/reconciler"
    );
    assert_eq!(
        pair.service_account().uid.as_str(),
        "uid-tenant-a-reconciler"
    );
    assert_eq!(
        (
            pair.audience().as_str(),
            pair.lifetime().as_secs(),
            pair.rule(),
            pair.via()
        ),
        ("prod", 3600, 0, Via::Itself)
    );
}

/// The audit record names the entry of `allow[]`.
#[test]
fn a_pair_names_the_rule_that_allowed_it() {
    let second = RULE.replace(
        "allow:\n",
        "allow:\n    - {namespaces: [tenant-b], serviceAccounts: [reconciler]}\n",
    );
    let policy =
        policy(&(target(&format!("  audience: prod\n{second}")) + &access("tenant-a", "prod", "")));
    let pair = ask(&policy, &hub(), &Requester::Operator, "tenant-a/prod").unwrap();
    assert_eq!(pair.rule(), 1);
}

/// A token in an object lives half a day or as long as the access says, within the target's limit.
#[test]
fn a_delivery_has_its_own_lifetime_and_its_own_pair() {
    const HOUR: Duration = Duration::from_secs(3600);
    let rule = RULE.replace(
        "[reconciler]}",
        "[reconciler], deliveries: [KubeConfigSecret, Exec]}",
    );
    let listed = "  deliveries: [{name: a, type: Exec}]\n";
    let mut base = policy(
        &(target(&format!("  audience: prod\n{rule}")) + &access("tenant-a", "prod", listed)),
    );
    let name = AccessName::parse("tenant-a/prod").unwrap();
    let (on_request, at_rest) = (ObjectName::new("a").unwrap(), ObjectName::new("s").unwrap());
    let deliveries = &mut base.accesses.get_mut(&name).unwrap().deliveries;
    let mut secret = deliveries[0].clone();
    secret.name = at_rest.clone();
    secret.delivery_type = DeliveryType::KubeConfigSecret;
    deliveries.push(secret);
    for (written, max, expected) in [
        (None, 24 * HOUR, 12 * HOUR),
        (None, 6 * HOUR, 6 * HOUR),
        (Some(2 * HOUR), 24 * HOUR, 2 * HOUR),
        (Some(20 * HOUR), 24 * HOUR, 20 * HOUR),
        (Some(20 * HOUR), 6 * HOUR, 6 * HOUR),
    ] {
        let mut policy = base.clone();
        policy.accesses.get_mut(&name).unwrap().deliveries[1].lifetime = written;
        policy.targets.values_mut().next().unwrap().lifetime.max = max;
        let pair = delivery_pair(&policy, &hub(), &name, &at_rest).unwrap();
        assert_eq!((pair.lifetime(), pair.via()), (expected, Via::Author));
        let other = delivery_pair(&policy, &hub(), &name, &on_request).unwrap();
        assert_eq!(other.lifetime(), HOUR, "no object holds it");
        for (delivery, granted) in [
            (&at_rest, Ok(())),
            (&on_request, Err(Reason::TargetNotGranted)),
        ] {
            let requester = Requester::Delivery(delivery.clone());
            let grant = grant_token(&policy, requester, pair.clone(), Review::AuthorChecked);
            assert_eq!(grant.map(|_| ()), granted, "{delivery}");
        }
        let unlisted = ObjectName::new("unlisted").unwrap();
        let refused = delivery_pair(&policy, &hub(), &name, &unlisted);
        assert_eq!(refused, Err(Reason::TargetNotGranted));
    }
}

#[test]
fn without_an_allow_rule_nobody_gets_anything() {
    let policy = policy(&(target("  audience: prod\n") + &access("tenant-a", "prod", "")));
    for requester in [
        caller("tenant-a", "reconciler"),
        caller("kube-system", "reconciler"),
        Requester::Operator,
    ] {
        assert_eq!(
            ask(&policy, &hub(), &requester, "tenant-a/prod"),
            Err(Reason::TargetNotGranted)
        );
    }
    assert_eq!(
        ask(
            &Policy::default(),
            &hub(),
            &Requester::Operator,
            "tenant-a/prod"
        ),
        Err(Reason::TargetNotGranted)
    );
}

#[test]
fn what_is_absent_forbidden_or_not_allowed_is_one_answer() {
    let (policy, hub) = (usual(), hub());
    for (requester, access) in [
        (caller("tenant-a", "reconciler"), "tenant-a/absent"),
        (caller("tenant-a", "reconciler"), "tenant-b/prod"),
        (caller("tenant-a", "stranger"), "tenant-a/prod"),
        (caller("tenant-b", "reconciler"), "tenant-a/prod"),
    ] {
        assert_eq!(
            ask(&policy, &hub, &requester, access),
            Err(Reason::TargetNotGranted),
            "{access}"
        );
    }
}

#[test]
fn another_tenants_service_account_of_the_same_name_is_another() {
    let policy = usual();
    for name in ["reconciler", "notifier"] {
        assert_eq!(
            ask(&policy, &hub(), &caller("tenant-b", name), "tenant-a/prod"),
            Err(Reason::TargetNotGranted),
            "{name}"
        );
    }
}

#[test]
fn selectors_never_reach_the_namespaces_of_kubernetes_but_exact_names_do() {
    for namespace in ["kube-system", "kube-public", "kube-node-lease"] {
        let name = format!("{namespace}/prod");
        let selected = policy(
            &(target(&format!("  audience: prod\n{BY_LABEL}")) + &access(namespace, "prod", "")),
        );
        assert_eq!(
            ask(&selected, &hub(), &caller(namespace, "reconciler"), &name),
            Err(Reason::TargetNotGranted),
            "{namespace}"
        );
        let named = format!(
            "  allow:\n    - {{namespaces: [{namespace}], serviceAccounts: [reconciler]}}\n"
        );
        let named = policy(
            &(target(&format!("  audience: prod\n{named}")) + &access(namespace, "prod", "")),
        );
        assert!(
            ask(&named, &hub(), &caller(namespace, "reconciler"), &name).is_ok(),
            "{namespace}"
        );
    }
    let selected = policy(
        &(target(&format!("  audience: prod\n{BY_LABEL}")) + &access("tenant-b", "prod", "")),
    );
    assert!(
        ask(
            &selected,
            &hub(),
            &caller("tenant-b", "reconciler"),
            "tenant-b/prod"
        )
        .is_ok()
    );
    let by_name = BY_LABEL.replace(
        "matchLabels: {access.keyferry.dev/prod: 'yes'}",
        "matchLabels: {kubernetes.io/metadata.name: kube-system}",
    );
    let by_name = policy(
        &(target(&format!("  audience: prod\n{by_name}")) + &access("kube-system", "prod", "")),
    );
    let mut hub = hub();
    hub.namespaces.insert(
        "kube-system".to_owned(),
        [(
            "kubernetes.io/metadata.name".to_owned(),
            "kube-system".to_owned(),
        )]
        .into(),
    );
    assert!(
        ask(
            &by_name,
            &hub,
            &caller("kube-system", "reconciler"),
            "kube-system/prod"
        )
        .is_err(),
        "nor by its name in a selector"
    );
}

#[test]
fn keyferrys_own_namespace_gets_nothing() {
    let named = "  allow:\n    - {namespaces: [keyferry-system], serviceAccounts: [reconciler]}\n";
    for rule in [named, BY_LABEL] {
        let policy = policy(
            &(target(&format!("  audience: prod\n{rule}"))
                + &access("keyferry-system", "prod", "")),
        );
        for requester in [caller("keyferry-system", "reconciler"), Requester::Operator] {
            assert_eq!(
                ask(&policy, &hub(), &requester, "keyferry-system/prod"),
                Err(Reason::TargetNotGranted)
            );
        }
    }
}

#[test]
fn an_operator_is_paired_by_policy_alone() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(&policy, &hub, &Requester::Operator, "tenant-a/prod").unwrap();
    assert_eq!(
        pair.via(),
        Via::Itself,
        "the hub's RBAC decides on the operator's own request"
    );
    assert!(grant_token(&policy, Requester::Operator, pair, Review::NotAsked).is_ok());
    assert_eq!(
        ask(
            &policy,
            &Hub::default(),
            &Requester::Operator,
            "tenant-a/prod"
        ),
        Err(Reason::TargetNotGranted),
        "the ServiceAccount is gone"
    );
}

#[test]
fn a_recreated_caller_is_another() {
    let (policy, mut hub) = (usual(), hub());
    let old = caller("tenant-a", "reconciler");
    hub.accounts
        .insert("tenant-a/reconciler".to_owned(), "another".to_owned());
    assert_eq!(
        ask(&policy, &hub, &old, "tenant-a/prod"),
        Err(Reason::CallerIdentityChanged)
    );
    assert_eq!(
        ask(&policy, &hub, &old, "tenant-a/absent"),
        Err(Reason::CallerIdentityChanged),
        "whatever it asks for"
    );
    let new = Requester::Caller(verified("tenant-a", "reconciler", "another"));
    assert_eq!(
        ask(&policy, &hub, &new, "tenant-a/prod")
            .unwrap()
            .service_account()
            .uid
            .as_str(),
        "another"
    );
    hub.accounts.remove("tenant-a/reconciler");
    assert_eq!(
        ask(&policy, &hub, &new, "tenant-a/prod"),
        Err(Reason::CallerIdentityChanged)
    );
}
