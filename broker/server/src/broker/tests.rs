//! A request without a decision is audited like any other. The brokers and requests of these tests.

#![allow(clippy::unwrap_used)]

mod changes;
mod new_callers;
mod refusal_budget;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use keyferry_api::audience::Audience;
use keyferry_api::config::{DeliveryType, NewCallerLimits, TargetRole};
use keyferry_api::name::{AccessName, ObjectName, RoleName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::audit::AuditRecord;
use keyferry_core::caller::{PresentedToken, ReviewedUser, TokenReviewAnswer};
use keyferry_hub::ports::{Hub, HubError};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::settings::CallerSettings;
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_listener::Source;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{Broker, BrokerParts, Credential, DECISION_DEADLINE, Request};
use crate::authenticate::Authenticator;
use crate::caller_trust::TrustReader;
use crate::delegate::Delegations;

const MAX_STALE: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(crate) struct Records(pub(crate) Mutex<Vec<Value>>);

impl AuditSink for Records {
    fn record(&self, record: &AuditRecord) -> Recording {
        self.0
            .lock()
            .unwrap()
            .push(serde_json::from_slice(&record.to_json_line().unwrap()).unwrap());
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

    fn path_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'static str,
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
    Broker::new(parts(world, hub, policy, audit, new_callers))
}

/// A broker whose target is ready, and that also identifies callers by client certificates.
pub(crate) fn certified(
    world: &SmallWorld,
    trust: TrustReader,
    audit: Arc<dyn AuditSink>,
    new_callers: NewCallerLimits,
) -> Broker {
    let policy = PolicyWriter::new(world.policy.clone());
    let parts = parts(world, Arc::clone(&world.port), &policy, audit, new_callers);
    Broker::new(BrokerParts {
        authenticator: parts.authenticator.with_certificates(trust),
        ..parts
    })
}

fn parts(
    world: &SmallWorld,
    hub: Arc<dyn Hub>,
    policy: &PolicyWriter,
    audit: Arc<dyn AuditSink>,
    new_callers: NewCallerLimits,
) -> BrokerParts {
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
    BrokerParts {
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
        external: None,
        delegations: Delegations::new(hub, clock(), metrics.clone(), MAX_STALE),
        mint: world.new_mint(),
        audit,
        clock: clock(),
        random: Arc::new(SystemRandomness::default()),
        metrics,
        callers,
    }
}

fn request(token: &SecretString) -> Request<'_> {
    Request {
        route: "exchange",
        credential: Credential::Token(PresentedToken::new(token.expose_secret())),
        access: AccessName::parse("tenant-a/prod").unwrap(),
        min_ttl: None,
        scope: None,
        needs_cluster: false,
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
        .issue_credential(&request(token))
        .await
        .map(|_| ())
        .map_err(|refusal| refusal.reason)
}

#[tokio::test]
async fn a_scope_is_the_role_of_the_target_or_is_refused_to_who_may_use_it() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let own = token_of(&world, "reconciler");
    let stranger = token_of(&world, "deployer");
    for (role, scope, expected) in [
        (None, None, Ok(())),
        (None, Some("view"), Err(Reason::RequestInvalid)),
        (Some("view"), None, Ok(())),
        (Some("view"), Some("view"), Ok(())),
        (Some("view"), Some("edit"), Err(Reason::RequestInvalid)),
        (Some("view"), Some("view edit"), Err(Reason::RequestInvalid)),
    ] {
        let mut policy = world.policy.clone();
        policy
            .accesses
            .values_mut()
            .for_each(|access| access.callers.clear());
        let target = policy.targets.values_mut().next().unwrap();
        target.role = role.map(|role| TargetRole {
            same_as: ObjectName::new("base").unwrap(),
            role: RoleName::new(role).unwrap(),
        });
        let broker = before(
            &world,
            Arc::clone(&world.port),
            &PolicyWriter::new(policy),
            Arc::<Records>::clone(&records),
        );
        for (token, expected) in [(&own, expected), (&stranger, Err(Reason::TargetNotGranted))] {
            let request = Request {
                scope: scope.map(Into::into),
                ..request(token)
            };
            let issued = broker.issue_credential(&request).await;
            let found = issued.map(drop).map_err(|refusal| refusal.reason);
            assert_eq!(found, expected, "{role:?} {scope:?}");
        }
    }
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
    let hung_up = tokio::time::timeout(
        Duration::from_millis(50),
        broker.issue_credential(&request(&token)),
    )
    .await;
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
    let refusal = broker.issue_credential(&request(&token)).await.unwrap_err();
    assert_eq!(
        (refusal.reason, begun.elapsed().as_secs()),
        (Reason::DecisionTimedOut, DECISION_DEADLINE.as_secs())
    );
    assert_eq!(
        detailed(&records),
        [["0000000000000007", "failed", "DecisionTimedOut"]]
    );
}
