//! When a pair becomes a grant.

use keyferry_api::config::Policy;
use keyferry_api::reason::Reason;

use super::{RULE, access, ask, caller, hub, policy, target, usual};
use crate::authorise::{Pair, Requester, Review, Via, grant_token};
use crate::caller::external::tests::job_of;

#[test]
fn a_listed_caller_needs_the_hubs_own_consent() {
    let (policy, hub) = (usual(), hub());
    let notifier = caller("tenant-a", "notifier");
    let pair = ask(&policy, &hub, &notifier, "tenant-a/prod").unwrap();
    assert_eq!(pair.via(), Via::Delegate);
    for review in [Review::NotAsked, Review::Refused] {
        assert_eq!(
            grant_token(&policy, notifier.clone(), pair.clone(), review).err(),
            Some(Reason::DelegationForbidden),
            "{review:?}"
        );
    }
    let granted = grant_token(&policy, notifier, pair.clone(), Review::Allowed).unwrap();
    assert_eq!(granted.pair(), &pair);
    assert_eq!(
        granted.pair().service_account().account.to_string(),
        "tenant-a/reconciler",
        "it is minted for the ServiceAccount, not the caller"
    );
}

/// A CI job stands for one ServiceAccount and uses its accesses only, whatever the hub's RBAC lets
/// that account do.
#[test]
fn a_job_has_its_own_accesses_and_no_delegation() {
    let (policy, hub) = (usual(), hub());
    let job = |name: &str| {
        let caller = job_of(name, &format!("uid-tenant-a-{name}"));
        Requester::Caller(caller)
    };
    let own = ask(&policy, &hub, &job("reconciler"), "tenant-a/prod").unwrap();
    assert_eq!(own.via(), Via::Itself);
    assert!(grant_token(&policy, job("reconciler"), own, Review::NotAsked).is_ok());
    let delegated = ask(&policy, &hub, &job("notifier"), "tenant-a/prod").unwrap();
    assert_eq!(delegated.via(), Via::Delegate);
    // The pair of the account's own Pod, which has the same identity, does not bypass it.
    let of_pod = ask(
        &policy,
        &hub,
        &caller("tenant-a", "notifier"),
        "tenant-a/prod",
    )
    .unwrap();
    for pair in [delegated, of_pod] {
        for review in [Review::Allowed, Review::NotAsked, Review::AuthorChecked] {
            assert_eq!(
                grant_token(&policy, job("notifier"), pair.clone(), review).err(),
                Some(Reason::DelegationForbidden)
            );
        }
    }
    let stranger = ask(&policy, &hub, &job("stranger"), "tenant-a/prod");
    assert_eq!(stranger.err(), Some(Reason::TargetNotGranted));
    let replaced = Requester::Caller(job_of("reconciler", "an-earlier-uid"));
    assert_eq!(
        ask(&policy, &hub, &replaced, "tenant-a/prod").err(),
        Some(Reason::CallerIdentityChanged)
    );
}

#[test]
fn a_pair_is_good_for_its_requester_only() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    for other in [
        caller("tenant-b", "stranger"),
        caller("tenant-a", "notifier"),
        Requester::Operator,
    ] {
        for review in [Review::Allowed, Review::NotAsked] {
            assert_eq!(
                grant_token(&policy, other.clone(), pair.clone(), review).err(),
                Some(Reason::TargetNotGranted)
            );
        }
    }
    let operators = ask(&policy, &hub, &Requester::Operator, "tenant-a/prod").unwrap();
    assert!(
        grant_token(
            &policy,
            caller("tenant-a", "reconciler"),
            operators,
            Review::NotAsked
        )
        .is_err()
    );
}

/// An operator's pair needs no checked author, a probe's does: neither stands for the other.
#[test]
fn a_probe_needs_an_author_that_the_hub_checks() {
    let (policy, hub) = (usual(), hub());
    let of = |requester: &Requester| ask(&policy, &hub, requester, "tenant-a/prod").unwrap();
    let probe = of(&Requester::Probe);
    assert_eq!(probe.via(), Via::Author);
    let granted = |requester: Requester, pair: &Pair, review| {
        grant_token(&policy, requester, pair.clone(), review).map(|_| ())
    };
    assert_eq!(
        granted(Requester::Probe, &probe, Review::AuthorChecked),
        Ok(())
    );
    for review in [Review::NotAsked, Review::Allowed, Review::Refused] {
        assert_eq!(
            granted(Requester::Probe, &probe, review),
            Err(Reason::AuthorUnchecked)
        );
    }
    let operators = of(&Requester::Operator);
    for review in [Review::NotAsked, Review::AuthorChecked] {
        for (requester, pair) in [
            (Requester::Probe, &operators),
            (Requester::Operator, &probe),
            (caller("tenant-a", "reconciler"), &probe),
        ] {
            assert_eq!(
                granted(requester, pair, review),
                Err(Reason::TargetNotGranted)
            );
        }
    }
}

#[test]
fn only_who_may_use_a_target_learns_that_it_is_suspended() {
    let on_target = policy(
        &(target(&format!("  audience: prod\n  suspend: true\n{RULE}"))
            + &access("tenant-a", "prod", "  callers: [notifier]\n")),
    );
    let on_access = policy(
        &(target(&format!("  audience: prod\n{RULE}"))
            + &access(
                "tenant-a",
                "prod",
                "  callers: [notifier]\n  suspend: true\n",
            )),
    );
    for policy in [on_target, on_access] {
        assert_eq!(
            ask(
                &policy,
                &hub(),
                &caller("tenant-a", "stranger"),
                "tenant-a/prod"
            ),
            Err(Reason::TargetNotGranted)
        );
        let notifier = caller("tenant-a", "notifier");
        let delegated = ask(&policy, &hub(), &notifier, "tenant-a/prod").unwrap();
        assert_eq!(
            grant_token(
                &policy,
                notifier.clone(),
                delegated.clone(),
                Review::Refused
            )
            .err(),
            Some(Reason::DelegationForbidden)
        );
        assert_eq!(
            grant_token(&policy, notifier, delegated, Review::Allowed).err(),
            Some(Reason::TargetSuspended)
        );
        for requester in [caller("tenant-a", "reconciler"), Requester::Operator] {
            let own = ask(&policy, &hub(), &requester, "tenant-a/prod").unwrap();
            assert_eq!(
                grant_token(&policy, requester, own, Review::NotAsked).err(),
                Some(Reason::TargetSuspended)
            );
        }
    }
}

#[test]
fn what_left_the_policy_after_pairing_is_not_granted() {
    let (policy, hub) = (usual(), hub());
    let own = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    assert!(
        grant_token(
            &Policy::default(),
            caller("tenant-a", "reconciler"),
            own,
            Review::NotAsked
        )
        .is_err()
    );
}
