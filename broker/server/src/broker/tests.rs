//! Tests that a request without a decision is audited like any other, and that changes take effect
//! at once.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use keyferry_api::audience::Audience;
use keyferry_api::config::{DeliveryType, NewCallerLimits, TargetCluster};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_core::audit::AuditRecord;
use keyferry_core::authorise::HubView;
use keyferry_core::caller::{PresentedToken, ReviewedUser, TokenReviewAnswer};
use keyferry_hub::clock::Clock;
use keyferry_hub::policy_store::PolicyWriter;
use keyferry_hub::ports::{AuditSink, Hub, HubError, Recording};
use keyferry_hub::random::SystemRandomness;
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::settings::CallerSettings;
use keyferry_issuer::testing::{FakeClock, SmallWorld, account_of};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_testing::{Grant, Subject};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{Broker, BrokerParts, DECISION_DEADLINE, Request};
use crate::authenticate::Authenticator;
use crate::delegate::Delegations;
use crate::source::Source;

const MAX_STALE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Records(Mutex<Vec<Value>>);

impl AuditSink for Records {
    fn record(&self, record: &AuditRecord) -> Recording {
        self.0
            .lock()
            .unwrap()
            .push(serde_json::from_slice(&record.line().unwrap()).unwrap());
        Recording::written()
    }
}

/// A hub that never answers.
struct Silent;

impl Hub for Silent {
    fn token_request<'a>(
        &'a self,
        _: &'a ServiceAccountIdentity,
        _: &'a Audience,
        _: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        Box::pin(future::pending())
    }

    fn token_review<'a>(
        &'a self,
        _: &'a SecretString,
        _: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(future::pending())
    }

    fn access_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(future::pending())
    }
}

fn before_a_silent_hub(world: &SmallWorld, audit: Arc<dyn AuditSink>) -> Broker {
    before(
        world,
        Arc::new(Silent),
        &PolicyWriter::new(world.policy.clone()),
        audit,
    )
}

/// A broker whose target is ready.
fn before(
    world: &SmallWorld,
    hub: Arc<dyn Hub>,
    policy: &PolicyWriter,
    audit: Arc<dyn AuditSink>,
) -> Broker {
    limited(
        world,
        hub,
        policy,
        audit,
        NewCallerLimits {
            per_address: None,
            per_namespace: None,
        },
    )
}

fn limited(
    world: &SmallWorld,
    hub: Arc<dyn Hub>,
    policy: &PolicyWriter,
    audit: Arc<dyn AuditSink>,
    new_callers: NewCallerLimits,
) -> Broker {
    let state = |generation| TargetState {
        generation,
        readiness: Readiness::Ready(None),
        client_certificate: false,
    };
    let targets = TargetWriter::default();
    targets.replace(
        world
            .policy
            .targets
            .values()
            .map(|target| (target.name.clone(), state(target.generation)))
            .collect(),
    );
    let clock = || Arc::<FakeClock>::clone(&world.clock) as Arc<dyn Clock>;
    let callers = CallerSettings {
        new_callers,
        ..world.callers(MAX_STALE)
    };
    let (publisher, metrics) = (world.publisher.clone(), world.metrics.clone());
    Broker::new(BrokerParts {
        policy: policy.reader(),
        live: Arc::clone(&world.live),
        published: publisher.reader(),
        targets: targets.reader(),
        authenticator: Authenticator::new(
            Arc::clone(&hub),
            publisher,
            clock(),
            metrics.clone(),
            [7; 32],
            callers.clone(),
        ),
        delegations: Delegations::new(hub, clock(), metrics.clone(), MAX_STALE),
        mint: world.new_mint(),
        audit,
        clock: clock(),
        random: Arc::new(SystemRandomness::default()),
        metrics,
        callers,
    })
}

fn request(token: &SecretString) -> Request<'_> {
    Request {
        route: "exchange",
        caller_token: PresentedToken::new(token.expose_secret()),
        access: AccessName::parse("tenant-a/prod").unwrap(),
        min_ttl: None,
        deliveries: &[DeliveryType::HTTP],
        request_id: 7.into(),
        source: Source::default(),
    }
}

fn detailed(records: &Records) -> Vec<[String; 3]> {
    let records = records.0.lock().unwrap();
    records
        .iter()
        .map(|record| {
            ["requestId", "decision", "reason"]
                .map(|member| record[member].as_str().unwrap().to_owned())
        })
        .collect()
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_one_record() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let broker = before_a_silent_hub(&world, Arc::<Records>::clone(&records));
    let token = world
        .hub
        .token(
            "tenant-a",
            "reconciler",
            "keyferry.dev",
            Duration::from_secs(3600),
        )
        .unwrap();
    let hung_up =
        tokio::time::timeout(Duration::from_millis(50), broker.issue(&request(&token))).await;
    assert!(hung_up.is_err());
    assert_eq!(
        detailed(&records),
        [["0000000000000007", "failed", "CallerGone"]]
    );
}

#[tokio::test]
async fn a_decision_has_its_time_and_no_more() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let broker = before_a_silent_hub(&world, Arc::<Records>::clone(&records));
    let token = world
        .hub
        .token(
            "tenant-a",
            "reconciler",
            "keyferry.dev",
            Duration::from_secs(3600),
        )
        .unwrap();
    // The hub's sockets are idle from here on, so the paused clock advances by itself.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let refusal = broker.issue(&request(&token)).await.unwrap_err();
    assert_eq!(
        (refusal.reason, begun.elapsed().as_secs()),
        (Reason::DecisionTimedOut, DECISION_DEADLINE.as_secs())
    );
    assert_eq!(
        detailed(&records),
        [["0000000000000007", "failed", "DecisionTimedOut"]]
    );
}

/// The caller's own token for a ServiceAccount of tenant-a.
fn token_of(world: &SmallWorld, account: &str) -> SecretString {
    world
        .hub
        .token(
            "tenant-a",
            account,
            "keyferry.dev",
            Duration::from_secs(3600),
        )
        .unwrap()
}

async fn outcome(broker: &Broker, token: &SecretString) -> Result<(), Reason> {
    broker
        .issue(&request(token))
        .await
        .map(|_| ())
        .map_err(|refusal| refusal.reason)
}

fn delegation() -> Grant {
    let user = Subject::User("system:serviceaccount:tenant-a:deployer".to_owned());
    Grant::new(user, "create", "serviceaccounts/token")
        .in_namespace("tenant-a")
        .named("reconciler")
}

#[tokio::test]
async fn what_changes_between_two_requests_counts_at_once() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let policy = PolicyWriter::new(world.policy.clone());
    let broker = before(
        &world,
        Arc::clone(&world.port),
        &policy,
        Arc::new(Records::default()),
    );
    let (own, delegated) = (token_of(&world, "reconciler"), token_of(&world, "deployer"));
    let (account, caller) = (
        account_of("tenant-a", "reconciler"),
        account_of("tenant-a", "deployer"),
    );
    let uid = |account: &ServiceAccount| world.live.service_account(account);
    let (account_uid, caller_uid, other) =
        (uid(&account), uid(&caller), Uid::new("other").unwrap());
    let (live, namespace) = (&world.live, || account.namespace.clone());
    let changed = |change: fn(&mut TargetCluster)| {
        let mut changed = world.policy.clone();
        changed.targets.values_mut().for_each(change);
        policy.replace(changed);
    };
    use Reason::{
        CallerIdentityChanged as Recreated, TargetNotGranted as Denied,
        TargetSuspended as Suspended,
    };
    type Changes<'a> = [(
        &'a str,
        &'a dyn Fn(),
        Result<(), Reason>,
        Result<(), Reason>,
    ); 6];
    let changes: Changes<'_> = [
        (
            "no rule",
            &|| changed(|target| target.allow = Arc::default()),
            Err(Denied),
            Err(Denied),
        ),
        (
            "suspended",
            &|| changed(|target| target.suspend = true),
            Err(Suspended),
            Err(Suspended),
        ),
        (
            "no namespace",
            &|| live.set_namespace(namespace(), None),
            Err(Denied),
            Err(Denied),
        ),
        (
            "no ServiceAccount",
            &|| live.set_service_account(account.clone(), None),
            Err(Recreated),
            Err(Denied),
        ),
        (
            "the caller made anew",
            &|| live.set_service_account(caller.clone(), Some(other.clone())),
            Ok(()),
            Err(Recreated),
        ),
        (
            "nothing that matters",
            &|| live.set_service_account(account_of("tenant-b", "x"), Some(other.clone())),
            Ok(()),
            Ok(()),
        ),
    ];
    for (what, change, for_own, for_delegated) in changes {
        for _ in 0..3 {
            assert_eq!(
                (
                    outcome(&broker, &own).await,
                    outcome(&broker, &delegated).await
                ),
                (Ok(()), Ok(())),
                "before {what}"
            );
        }
        change();
        assert_eq!(
            (
                outcome(&broker, &own).await,
                outcome(&broker, &delegated).await
            ),
            (for_own, for_delegated),
            "{what}"
        );
        policy.replace(world.policy.clone());
        live.set_namespace(namespace(), Some(BTreeMap::new()));
        live.set_service_account(account.clone(), account_uid.clone());
        live.set_service_account(caller.clone(), caller_uid.clone());
    }
}

#[tokio::test]
async fn the_hubs_word_on_a_delegation_has_its_ten_seconds_and_no_more() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let broker = before(
        &world,
        Arc::clone(&world.port),
        &PolicyWriter::new(world.policy.clone()),
        Arc::new(Records::default()),
    );
    let token = token_of(&world, "deployer");
    let second = |second: u64| world.clock.advance(Duration::from_secs(second));
    // The two reviews run in different seconds, so that the token's review is still valid when the
    // other has expired.
    broker
        .issue(&Request {
            access: AccessName::parse("tenant-a/deploy").unwrap(),
            ..request(&token)
        })
        .await
        .unwrap();
    second(5);
    assert_eq!(
        outcome(&broker, &token).await,
        Ok(()),
        "asked at 5 s, so it stands until 15 s"
    );
    second(5);
    for _ in 0..3 {
        assert_eq!(
            outcome(&broker, &token).await,
            Ok(()),
            "the token is reviewed anew at 10 s"
        );
    }
    world.hub.revoke(&delegation());
    second(4);
    assert_eq!(outcome(&broker, &token).await, Ok(()), "14 s");
    second(1);
    assert_eq!(
        outcome(&broker, &token).await,
        Err(Reason::DelegationForbidden),
        "15 s"
    );
    assert_eq!(world.hub.access_reviews(), 2);
}

/// A hub that makes a change during each mint for a tenant and each access review.
struct Meddling {
    hub: Arc<dyn Hub>,
    change: Box<dyn Fn() + Send + Sync>,
}

impl Hub for Meddling {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        Box::pin(async move {
            let answer = self.hub.token_request(identity, audience, lifetime).await;
            if identity.account.namespace.as_str() == "tenant-a" {
                (self.change)();
            }
            answer
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        self.hub.token_review(token, audience)
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async move {
            let answer = self.hub.access_review(user, account).await;
            (self.change)();
            answer
        })
    }
}

#[tokio::test]
async fn what_changes_during_a_review_counts_then_and_later() {
    let world = SmallWorld::start().await;
    world.hub.grant(delegation());
    let (live, account) = (
        Arc::clone(&world.live),
        account_of("tenant-a", "reconciler"),
    );
    let policy = PolicyWriter::new(world.policy.clone());
    let token = token_of(&world, "deployer");
    let hub = Meddling {
        hub: Arc::clone(&world.port),
        change: Box::new(move || live.set_service_account(account.clone(), None)),
    };
    // The mint itself uses a hub that changes nothing.
    let broker = before(&world, Arc::new(hub), &policy, Arc::new(Records::default()));
    for _ in 0..2 {
        let deploy = Request {
            access: AccessName::parse("tenant-a/deploy").unwrap(),
            ..request(&token)
        };
        broker.issue(&deploy).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(
            outcome(&broker, &token).await,
            Err(Reason::TargetNotGranted)
        );
    }
}

#[tokio::test]
async fn what_changes_during_a_mint_counts_at_issue() {
    for by_policy in [true, false] {
        let mut world = SmallWorld::start().await;
        let policy = Arc::new(PolicyWriter::new(world.policy.clone()));
        let (live, writer, account) = (
            Arc::clone(&world.live),
            Arc::clone(&policy),
            account_of("tenant-a", "reconciler"),
        );
        let mut closed = world.policy.clone();
        closed
            .targets
            .values_mut()
            .for_each(|target| target.allow = Arc::default());
        let change = Box::new(move || match by_policy {
            true => writer.replace(closed.clone()),
            false => live.set_service_account(account.clone(), None),
        });
        world.port = Arc::new(Meddling {
            hub: Arc::clone(&world.port),
            change,
        });
        let broker = before(
            &world,
            Arc::clone(&world.port),
            &policy,
            Arc::new(Records::default()),
        );
        let reason = if by_policy {
            Reason::TargetNotGranted
        } else {
            Reason::CallerIdentityChanged
        };
        assert_eq!(
            outcome(&broker, &token_of(&world, "reconciler")).await,
            Err(reason)
        );
    }
}

/// A flood from one address of forged tokens and of requests without a token. Few of them are
/// checked, all refusals share one record, and a known caller is served as usual, even from the
/// same address.
#[tokio::test]
async fn a_flood_of_unknown_callers_is_one_record_a_second_and_no_known_caller_waits() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let limits = NewCallerLimits {
        per_address: NonZeroU32::new(2),
        per_namespace: None,
    };
    let (hub, policy) = (
        Arc::clone(&world.port),
        PolicyWriter::new(world.policy.clone()),
    );
    let broker = limited(
        &world,
        hub,
        &policy,
        Arc::<Records>::clone(&records),
        limits,
    );
    let known = token_of(&world, "reconciler");
    outcome(&broker, &known).await.unwrap();
    let reviews = world.hub.token_reviews();
    let made_up: Vec<SecretString> = (0..100)
        .map(|number| format!("{}{number}", known.expose_secret()).into())
        .collect();
    let flood = future::join_all(made_up.iter().map(|token| outcome(&broker, token)));
    let malformed = future::join_all((0..100).map(|_| {
        broker.refuse(
            "exchange",
            Reason::RequestInvalid,
            9.into(),
            Source::default(),
        )
    }));
    let served = async {
        for _ in 0..50 {
            outcome(&broker, &known).await.unwrap();
        }
        tokio::time::Instant::now()
    };
    let (flooded, refused, served) = future::join3(flood, malformed, served).await;
    assert!(
        served.elapsed() >= Duration::from_millis(300),
        "they are held back, and the known caller is not"
    );
    // The bucket had six tokens; the known caller took one when it was new.
    assert_eq!(
        flooded
            .iter()
            .filter(|outcome| **outcome != Err(Reason::RateLimited))
            .count(),
        5
    );
    assert!(refused.iter().all(|refused| {
        refused
            .as_ref()
            .is_err_and(|refusal| refusal.reason == Reason::RateLimited)
    }));
    assert_eq!(world.hub.token_reviews(), reviews);
    outcome(&broker, &token_of(&world, "deployer"))
        .await
        .unwrap_err();
    let elsewhere = Request {
        source: Source::of([192, 0, 2, 7].into()),
        ..request(&made_up[0])
    };
    assert_ne!(
        broker.issue(&elsewhere).await.unwrap_err().reason,
        Reason::RateLimited,
        "another address has a rate of its own"
    );
    world.clock.advance(Duration::from_secs(11));
    outcome(&broker, &known).await.unwrap();
    assert_eq!(
        world.hub.token_reviews(),
        reviews + 1,
        "whose review is due is no new caller"
    );

    let summary = async {
        loop {
            if let Some(record) = records
                .0
                .lock()
                .unwrap()
                .iter()
                .find(|record| record["reason"] == "RateLimited")
                .cloned()
            {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let summary = tokio::time::timeout(Duration::from_secs(30), summary)
        .await
        .unwrap();
    assert!(summary["count"].as_u64().unwrap() >= 195, "{summary}");
    let wanted = format!("0.0.0.0 ({})", summary["count"]);
    assert_eq!(
        (&summary["decision"], &summary["sources"]),
        (&Value::from("denied"), &Value::from(wanted))
    );
    let limited = |record: &&Value| record["reason"] == "RateLimited";
    assert_eq!(records.0.lock().unwrap().iter().filter(limited).count(), 1);
}

#[tokio::test]
async fn a_namespace_brings_new_callers_at_its_rate() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let limits = NewCallerLimits {
        per_address: None,
        per_namespace: NonZeroU32::new(1),
    };
    let (hub, policy) = (
        Arc::clone(&world.port),
        PolicyWriter::new(world.policy.clone()),
    );
    let broker = limited(&world, hub, &policy, records, limits);
    let tokens: Vec<SecretString> = (0..10).map(|_| token_of(&world, "reconciler")).collect();
    let outcomes = future::join_all(tokens.iter().map(|token| outcome(&broker, token))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    assert_eq!(
        world.hub.token_reviews(),
        3 + 1,
        "the others cost the hub nothing; one is the canary's"
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Ok(()) | Err(Reason::RateLimited))),
        "{outcomes:?}"
    );
}
