//! When a grant no longer holds: the recheck at issuance.

use std::collections::BTreeMap;

use keyferry_api::audience::Audience;
use keyferry_api::config::{DeliveryType, Policy, TargetAccess, TargetCluster, TokenIssuer};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};

use super::{Hub, RULE, access, ask, caller, granted, hub, policy, target, usual};
use crate::authorise::{
    HubView, Requester, Review, authorise_request, find_allowed, grant_token, require_live,
    still_holds,
};

/// A hub on which the ServiceAccount is recreated between two lookups.
struct Racing(std::cell::Cell<bool>);

impl HubView for Racing {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        let uid = if self.0.replace(true) {
            "another".to_owned()
        } else {
            format!("uid-{}-{}", account.namespace, account.name)
        };
        Uid::new(uid).ok()
    }

    fn namespace_labels(
        &self,
        namespace: &Namespace,
    ) -> Option<std::sync::Arc<BTreeMap<String, String>>> {
        hub().namespace_labels(namespace)
    }
}

#[test]
fn a_caller_is_itself_by_uid_even_in_a_race() {
    let (racing, policy, old) = (
        Racing(std::cell::Cell::new(false)),
        usual(),
        caller("tenant-a", "reconciler"),
    );
    let pair = ask(&policy, &racing, &old, "tenant-a/prod").unwrap();
    assert_eq!(
        pair.service_account().uid.as_str(),
        "uid-tenant-a-reconciler",
        "a decision looks once, and is about what it saw"
    );
    let grant = grant_token(&policy, old, pair, Review::NotAsked).unwrap();
    assert_eq!(
        still_holds(&policy, &racing, &grant),
        Err(Reason::CallerIdentityChanged),
        "and the next one sees another"
    );
}

#[test]
fn a_grant_holds_while_nothing_changes() {
    let (policy, hub) = (usual(), hub());
    for requester in [
        caller("tenant-a", "reconciler"),
        caller("tenant-a", "notifier"),
        Requester::Operator,
    ] {
        assert_eq!(
            still_holds(&policy, &hub, &granted(&policy, &hub, requester)),
            Ok(())
        );
    }
}

/// What changed, and the results for the ServiceAccount itself and for its delegate.
type Change = (&'static str, Policy, Hub, [Result<(), Reason>; 2]);

#[test]
fn a_grant_ends_with_what_it_stands_on() {
    let (before, live) = (usual(), hub());
    let with = |target_fields: &str, access_fields: &str| {
        policy(&(target(target_fields) + &access("tenant-a", "prod", access_fields)))
    };
    let rule = format!("  audience: prod\n{RULE}");
    let listed = "  callers: [notifier]\n";
    let mut recreated = live.clone();
    recreated
        .accounts
        .insert("tenant-a/reconciler".to_owned(), "another".to_owned());
    let mut caller_recreated = live.clone();
    caller_recreated
        .accounts
        .insert("tenant-a/notifier".to_owned(), "another".to_owned());
    let mut gone = live.clone();
    gone.accounts.remove("tenant-a/reconciler");
    let mut terminating = live.clone();
    terminating.namespaces.remove("tenant-a");
    let other_target = policy(
        &(target(&rule) + &access("tenant-a", "prod", listed))
            .replace("name: prod}\nspec", "name: prod-2}\nspec"),
    );
    let none = Policy {
        targets: BTreeMap::new(),
        ..before.clone()
    };
    use Reason::{CallerIdentityChanged, GrantSuperseded, TargetNotGranted, TargetSuspended};
    let changes: Vec<Change> = vec![
        (
            "the rule was removed",
            with("  audience: prod\n", listed),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the rule names another",
            with(&rule.replace("reconciler", "other"), listed),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the rule allows another delivery",
            with(
                &rule.replace("[reconciler]", "[reconciler], deliveries: [Exec]"),
                listed,
            ),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the access offers another delivery",
            with(
                &rule,
                "  callers: [notifier]\n  deliveries: [{name: a, type: Exec}]\n",
            ),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the access was deleted",
            policy(&target(&rule)),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the target was deleted",
            none,
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the target has another name",
            other_target,
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the namespace is terminating",
            before.clone(),
            terminating,
            [Err(TargetNotGranted); 2],
        ),
        (
            "the ServiceAccount is gone",
            before.clone(),
            gone,
            [Err(CallerIdentityChanged), Err(TargetNotGranted)],
        ),
        (
            "the ServiceAccount was recreated",
            before.clone(),
            recreated,
            [Err(CallerIdentityChanged), Err(GrantSuperseded)],
        ),
        (
            "the delegate was recreated",
            before.clone(),
            caller_recreated,
            [Ok(()), Err(CallerIdentityChanged)],
        ),
        (
            "the delegate is no longer listed",
            with(&rule, ""),
            live.clone(),
            [Err(GrantSuperseded), Err(TargetNotGranted)],
        ),
        (
            "the audience changed",
            with(&rule.replace("audience: prod", "audience: prod-2"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "the lifetime changed",
            with(&format!("  tokenLifetime: {{default: 2h}}\n{rule}"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "the target is suspended",
            with(&format!("  suspend: true\n{rule}"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "a rule was put before",
            with(
                &rule.replace(
                    "allow:\n",
                    "allow:\n    - {namespaces: [other], serviceAccounts: [other]}\n",
                ),
                listed,
            ),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "nothing changed",
            with(&rule, listed),
            live.clone(),
            [Ok(()); 2],
        ),
    ];
    for (what, policy, hub, expected) in changes {
        for (requester, expected) in [
            caller("tenant-a", "reconciler"),
            caller("tenant-a", "notifier"),
        ]
        .into_iter()
        .zip(expected)
        {
            assert_eq!(
                still_holds(&policy, &hub, &granted(&before, &live, requester)),
                expected,
                "{what}"
            );
        }
    }
    // A suspension without a new generation, as in an API where `suspend` can be set separately.
    let mut suspended = before.clone();
    suspended
        .targets
        .get_mut(&ObjectName::new("prod").unwrap())
        .unwrap()
        .suspend = true;
    assert_eq!(
        still_holds(
            &suspended,
            &live,
            &granted(&before, &live, Requester::Operator)
        ),
        Err(TargetSuspended)
    );
}

#[test]
fn another_signer_is_another_grant() {
    let before = policy(&format!(
        "{}{}",
        target(&format!("  audience: prod\n{RULE}")),
        access("tenant-a", "prod", "")
    ));
    let live = Hub {
        accounts: [("tenant-a/reconciler".to_owned(), "uid-1".to_owned())].into(),
        namespaces: [("tenant-a".to_owned(), BTreeMap::new())].into(),
    };
    let name = AccessName::parse("tenant-a/prod").unwrap();
    let found = authorise_request(
        &before,
        &live,
        &Requester::Operator,
        &name,
        DeliveryType::HTTP,
    )
    .unwrap();
    let granted = grant_token(&before, Requester::Operator, found, Review::NotAsked).unwrap();
    assert_eq!(granted.pair().issuer(), TokenIssuer::Hub);
    // The same generation, so that only the issuer differs.
    let mut after = before.clone();
    after
        .targets
        .get_mut(&ObjectName::new("prod").unwrap())
        .unwrap()
        .issuer = TokenIssuer::Keyferry;
    assert_eq!(still_holds(&before, &live, &granted), Ok(()));
    assert_eq!(
        still_holds(&after, &live, &granted),
        Err(Reason::GrantSuperseded)
    );
}

/// Requester, access and type of delivery.
type Choice<'a> = (&'a Requester, &'a str, DeliveryType);

/// A target that two accounts may use, and two equal accesses: `prod`, with two equal deliveries,
/// and `prod-2`.
fn equal_choices() -> Policy {
    let rule = RULE.replace("[reconciler]", "[reconciler, notifier]");
    let listed = "  callers: [notifier, stranger]\n  deliveries: [{name: a, type: Exec}, {name: h, type: HTTP}]\n";
    let mut choices = policy(
        &(target(&format!("  audience: prod\n{rule}")) + &access("tenant-a", "prod", listed)),
    );
    let first = choices.accesses.values_mut().next().unwrap();
    let mut delivery = first.deliveries[0].clone();
    delivery.name = ObjectName::new("b").unwrap();
    first.deliveries.push(delivery);
    let mut second = first.clone();
    second.name.name = ObjectName::new("prod-2").unwrap();
    choices.accesses.insert(second.name.clone(), second);
    choices
}

/// Whether the second request would make the pair that the first one made.
fn makes_the_same(first: (&Policy, Choice<'_>), second: (&Policy, Choice<'_>)) -> bool {
    let hub = hub();
    let names = [first.1.1, second.1.1].map(|name| AccessName::parse(name).unwrap());
    let [made, remade] = [(first, &names[0]), (second, &names[1])].map(
        |((policy, (requester, _, delivery)), name)| {
            let live = require_live(requester, &hub).unwrap();
            find_allowed(policy, &hub, live, name, delivery).unwrap()
        },
    );
    remade.makes_pair(&made.into_pair())
}

/// Each row differs in the one member that it names, at equal generations.
#[test]
fn a_pair_is_the_same_only_if_every_member_is() {
    let before = equal_choices();
    let (http, exec) = (DeliveryType::HTTP, DeliveryType::Exec);
    let delivery = |name: &str| Requester::Delivery(ObjectName::new(name).unwrap());
    let of_account = |name: &str| caller("tenant-a", name);
    let operators: Choice<'_> = (&Requester::Operator, "tenant-a/prod", http);
    let choices: [(&str, Choice<'_>, Choice<'_>); 5] = [
        (
            "requester",
            (&of_account("notifier"), "tenant-a/prod", http),
            (&of_account("stranger"), "tenant-a/prod", http),
        ),
        (
            "written_by",
            (&delivery("a"), "tenant-a/prod", exec),
            (&delivery("b"), "tenant-a/prod", exec),
        ),
        ("access", operators, (operators.0, "tenant-a/prod-2", http)),
        ("delivery", operators, (operators.0, operators.1, exec)),
        ("via", operators, (&Requester::Probe, operators.1, http)),
    ];
    for (member, first, second) in choices {
        assert!(makes_the_same((&before, first), (&before, first)));
        assert!(
            !makes_the_same((&before, first), (&before, second)),
            "{member}"
        );
    }
    type Change = fn(&mut TargetCluster, &mut TargetAccess);
    let changes: [(&str, Change); 7] = [
        ("access_generation", |target, access| {
            access.generation = target.generation;
        }),
        ("target", |target, access| {
            target.name = ObjectName::new("other").unwrap();
            access.target = target.name.clone();
        }),
        ("target_generation", |target, access| {
            target.generation = access.generation;
        }),
        ("service_account", |_, access| {
            access.service_account = ObjectName::new("notifier").unwrap();
        }),
        ("audience", |target, _| {
            target.audience = Audience::new("other").unwrap();
        }),
        ("issuer", |target, _| target.issuer = TokenIssuer::Keyferry),
        ("lifetime", |target, _| target.lifetime.default /= 2),
    ];
    for (member, change) in changes {
        let mut after = before.clone();
        let (_, mut target) = after.targets.pop_first().unwrap();
        let access = after.accesses.values_mut().next().unwrap();
        assert_ne!(access.generation, target.generation);
        change(&mut target, access);
        after.targets.insert(target.name.clone(), target);
        assert!(
            !makes_the_same((&before, operators), (&after, operators)),
            "{member}"
        );
    }
}
