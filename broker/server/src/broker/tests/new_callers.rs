//! Unknown callers have a rate limit, which does not delay known ones.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use keyferry_api::config::NewCallerLimits;
use keyferry_api::reason::Reason;
use keyferry_issuer::testing::SmallWorld;
use keyferry_listener::Source;
use keyferry_platform::policy_store::PolicyWriter;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{Records, limited, outcome, request, token_of};
use crate::broker::Request;

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
    let known_token = token_of(&world, "reconciler");
    outcome(&broker, &known_token).await.unwrap();
    let reviews = world.hub.token_reviews();
    let made_up: Vec<SecretString> = (0..100)
        .map(|number| format!("{}{number}", known_token.expose_secret()).into())
        .collect();
    let flood = future::join_all(made_up.iter().map(|token| outcome(&broker, token)));
    let malformed = future::join_all((0..100).map(|_| {
        broker.audit_refusal(
            "exchange",
            Reason::RequestInvalid,
            9.into(),
            Source::default(),
        )
    }));
    let served = async {
        for _ in 0..50 {
            outcome(&broker, &known_token).await.unwrap();
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
        source: Source::of_address([192, 0, 2, 7].into()),
        ..request(&made_up[0])
    };
    assert_ne!(
        broker
            .issue_credential(&elsewhere)
            .await
            .unwrap_err()
            .reason,
        Reason::RateLimited,
        "another address has a rate of its own"
    );
    world.clock.advance(Duration::from_secs(11));
    outcome(&broker, &known_token).await.unwrap();
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
