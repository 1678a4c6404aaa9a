//! A request that ends without a decision is recorded like any other.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use keyferry_core::audience::Audience;
use keyferry_core::audit::AuditRecord;
use keyferry_core::bound_token::MintAnswer;
use keyferry_core::caller::{PresentedToken, ReviewedUser, TokenReviewAnswer};
use keyferry_core::config::DeliveryType;
use keyferry_core::name::AccessName;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::{ServiceAccount, ServiceAccountIdentity};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{Broker, BrokerParts, DECISION_DEADLINE, Request};
use crate::authenticate::Authenticator;
use crate::clock::Clock;
use crate::delegate::Delegations;
use crate::policy_store::PolicyWriter;
use crate::ports::{AuditSink, Hub, HubError, Recording};
use crate::random::SystemRandomness;
use crate::targets::TargetWriter;
use crate::testing::{FakeClock, SmallWorld};

const MAX_STALE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Records(Mutex<Vec<Value>>);

impl AuditSink for Records {
    fn record(&self, record: &AuditRecord) -> Recording {
        self.0.lock().unwrap().push(serde_json::from_slice(&record.line()).unwrap());
        Recording::written()
    }
}

/// A hub that never answers, and lets nobody know.
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

    fn token_review<'a>(&'a self, _: &'a SecretString, _: Option<&'a Audience>) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(future::pending())
    }

    fn access_review<'a>(&'a self, _: &'a ReviewedUser, _: &'a ServiceAccount) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(future::pending())
    }
}

fn before_a_silent_hub(world: &SmallWorld, audit: Arc<dyn AuditSink>) -> Broker {
    let clock = || Arc::<FakeClock>::clone(&world.clock) as Arc<dyn Clock>;
    let (publisher, metrics, callers) = (world.publisher.clone(), world.metrics.clone(), world.callers(MAX_STALE));
    Broker::new(BrokerParts {
        policy: PolicyWriter::new(world.policy.clone()).reader(),
        live: Arc::clone(&world.live),
        published: publisher.reader(),
        targets: TargetWriter::default().reader(),
        authenticator: Authenticator::new(Arc::new(Silent), publisher, clock(), metrics.clone(), [7; 32], callers.clone()),
        delegations: Delegations::new(Arc::new(Silent), clock(), metrics.clone(), MAX_STALE),
        mint: world.mint.clone(),
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
    }
}

fn told(records: &Records) -> Vec<[String; 3]> {
    let records = records.0.lock().unwrap();
    records.iter().map(|record| ["requestId", "decision", "reason"].map(|member| record[member].as_str().unwrap().to_owned())).collect()
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_one_record() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let broker = before_a_silent_hub(&world, Arc::<Records>::clone(&records));
    let token = world.hub.token("tenant-a", "reconciler", "keyferry.dev", Duration::from_secs(3600)).unwrap();
    let hung_up = tokio::time::timeout(Duration::from_millis(50), broker.hand_out(&request(&token))).await;
    assert!(hung_up.is_err());
    assert_eq!(told(&records), [["0000000000000007", "failed", "CallerGone"]]);
}

#[tokio::test]
async fn a_decision_has_its_time_and_no_more() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let broker = before_a_silent_hub(&world, Arc::<Records>::clone(&records));
    let token = world.hub.token("tenant-a", "reconciler", "keyferry.dev", Duration::from_secs(3600)).unwrap();
    // The hub's sockets are at rest from here on, so time passes by itself.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let refusal = broker.hand_out(&request(&token)).await.unwrap_err();
    assert_eq!((refusal.reason, begun.elapsed().as_secs()), (Reason::DecisionTimedOut, DECISION_DEADLINE.as_secs()));
    assert_eq!(told(&records), [["0000000000000007", "failed", "DecisionTimedOut"]]);
}
