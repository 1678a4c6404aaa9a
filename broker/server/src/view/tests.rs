//! Tests of what makes a view outdated, and of what is remembered for a caller.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use keyferry_api::config::DeliveryType;
use keyferry_api::moment::Deadline;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::service_account::Uid;
use keyferry_core::authorise::{self, Requester, Review};
use keyferry_hub::clock::Clock;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::policy_store::PolicyWriter;
use keyferry_issuer::testing::{SmallWorld, account_of};

use super::{LastReviewed, ReviewedPair, View};

const HTTP: &[DeliveryType] = &[DeliveryType::HTTP];
const EITHER: &[DeliveryType] = &[DeliveryType::HTTP, DeliveryType::Exec];

fn access(name: &str) -> AccessName {
    AccessName::parse(name).unwrap()
}

fn found(world: &SmallWorld, name: &str, until: Option<Deadline>) -> ReviewedPair {
    let pair = authorise::pair(
        &world.policy,
        &*world.live,
        &Requester::Operator,
        &access(name),
        DeliveryType::HTTP,
    )
    .unwrap();
    ReviewedPair {
        pair,
        review: Review::Allowed,
        until,
    }
}

#[tokio::test]
async fn whatever_changes_makes_a_view_an_old_one() {
    let (world, live) = (SmallWorld::start().await, LiveObjects::default());
    let policy = PolicyWriter::new(world.policy.clone());
    let (account, namespace) = (
        account_of("tenant-a", "reconciler"),
        Namespace::new("tenant-a").unwrap(),
    );
    let accounts = || HashMap::from([(account.clone(), Uid::new("two").unwrap())]);
    let namespaces = || {
        HashMap::from([(
            namespace.clone(),
            BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        )])
    };
    let changes: [(&str, &dyn Fn()); 7] = [
        ("a ServiceAccount", &|| {
            live.set_service_account(account.clone(), Some(Uid::new("one").unwrap()))
        }),
        ("all ServiceAccounts", &|| {
            live.replace_service_accounts(accounts())
        }),
        ("no ServiceAccount", &|| {
            live.set_service_account(account.clone(), None)
        }),
        ("a Namespace", &|| {
            live.set_namespace(namespace.clone(), Some(BTreeMap::new()))
        }),
        ("all Namespaces", &|| live.replace_namespaces(namespaces())),
        ("no Namespace", &|| {
            live.set_namespace(namespace.clone(), None)
        }),
        ("another policy, though it says the same", &|| {
            policy.replace(world.policy.clone())
        }),
    ];
    for (what, change) in changes {
        let view = View::of(&policy.reader(), &live);
        assert!(view.is_current(&policy.reader(), &live), "before {what}");
        change();
        assert!(!view.is_current(&policy.reader(), &live), "after {what}");
    }
    live.replace_service_accounts(accounts());
    live.replace_namespaces(namespaces());
    let view = View::of(&policy.reader(), &live);
    live.replace_service_accounts(accounts());
    live.replace_namespaces(namespaces());
    live.set_service_account(account.clone(), accounts().into_values().next());
    live.set_namespace(namespace.clone(), namespaces().remove(&namespace));
    assert!(
        view.is_current(&policy.reader(), &live),
        "what says the same is no change"
    );
}

#[tokio::test]
async fn what_was_found_is_found_again_for_the_same_request_in_the_same_view() {
    let world = SmallWorld::start().await;
    let (policy, last, now) = (
        PolicyWriter::new(world.policy.clone()),
        LastReviewed::default(),
        world.clock.now(),
    );
    let view = || View::of(&policy.reader(), &world.live);
    let recalled = |name, deliveries| {
        last.recall(&view(), &access(name), deliveries, world.clock.now())
            .map(|found| found.pair)
    };
    assert!(
        recalled("tenant-a/prod", HTTP).is_none(),
        "nothing is found yet"
    );
    let until = Some(Deadline::after(Duration::from_secs(10), now));
    let found = found(&world, "tenant-a/prod", until);
    last.remember(&view(), HTTP, &found);
    assert_eq!(recalled("tenant-a/prod", HTTP), Some(found.pair.clone()));
    assert!(
        recalled("tenant-a/deploy", HTTP).is_none(),
        "another access"
    );
    assert!(
        recalled("tenant-a/prod", EITHER).is_none(),
        "another way to ask"
    );
    world.clock.advance(Duration::from_secs(10));
    assert!(
        recalled("tenant-a/prod", HTTP).is_none(),
        "the hub's word has had its time"
    );
    last.remember(
        &view(),
        HTTP,
        &ReviewedPair {
            until: None,
            ..found.clone()
        },
    );
    assert_eq!(
        recalled("tenant-a/prod", HTTP),
        Some(found.pair.clone()),
        "nothing was asked, so nothing can grow old"
    );
    world
        .live
        .set_namespace(Namespace::new("tenant-b").unwrap(), Some(BTreeMap::new()));
    assert!(
        recalled("tenant-a/prod", HTTP).is_none(),
        "a live object changed"
    );
    last.remember(
        &view(),
        HTTP,
        &ReviewedPair {
            until: None,
            ..found
        },
    );
    for _ in 0..8 {
        // One of them may well get the address of the first one.
        policy.replace(world.policy.clone());
        assert!(
            recalled("tenant-a/prod", HTTP).is_none(),
            "the policy changed"
        );
    }
}

#[tokio::test]
async fn the_one_that_is_remembered_is_the_last() {
    let world = SmallWorld::start().await;
    let (policy, last) = (
        PolicyWriter::new(world.policy.clone()),
        LastReviewed::default(),
    );
    let view = View::of(&policy.reader(), &world.live);
    for name in ["tenant-a/prod", "tenant-a/deploy"] {
        last.remember(&view, HTTP, &found(&world, name, None));
    }
    let recalled = |name| {
        last.recall(&view, &access(name), HTTP, world.clock.now())
            .is_some()
    };
    assert_eq!(
        (recalled("tenant-a/prod"), recalled("tenant-a/deploy")),
        (false, true)
    );
}
