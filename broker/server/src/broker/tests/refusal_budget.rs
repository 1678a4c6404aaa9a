//! Refusals of known callers have a budget for each namespace, which touches no issuance.

use std::sync::Arc;
use std::time::Duration;

use futures::future;
use keyferry_api::config::NewCallerLimits;
use keyferry_api::reason::Reason;
use keyferry_hub::targets::TargetWriter;
use keyferry_issuer::testing::SmallWorld;
use keyferry_platform::policy_store::PolicyWriter;
use serde_json::Value;

use super::{Records, before, outcome, parts, token_of};
use crate::broker::{Broker, BrokerParts, decision_of};

/// The burst of the budget: three seconds of 20 refusals.
const OWN_RECORDS: usize = 60;
const FLOOD: usize = 1000;

/// A known caller asks again and again for what it may not have. The log gets a bounded number of
/// lines and a summary, and another caller of the same namespace is granted its token meanwhile.
#[tokio::test]
async fn a_flood_of_a_known_caller_fills_no_log_and_delays_no_issuance() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let policy = PolicyWriter::new(world.policy.clone());
    let audit = Arc::<Records>::clone(&records);
    let broker = before(&world, Arc::clone(&world.port), &policy, audit);
    let (refused, granted) = (token_of(&world, "deployer"), token_of(&world, "reconciler"));
    outcome(&broker, &granted).await.unwrap();
    outcome(&broker, &refused).await.unwrap_err();
    let begun = tokio::time::Instant::now();
    let flood = future::join_all((0..FLOOD).map(|_| outcome(&broker, &refused)));
    let served = async {
        for _ in 0..50 {
            outcome(&broker, &granted).await.unwrap();
        }
        begun.elapsed()
    };
    let (flooded, served) = future::join(flood, served).await;
    assert!(
        begun.elapsed() >= Duration::from_millis(500) && served < Duration::from_millis(500),
        "refusals are delayed, and issuances are not: {served:?}"
    );
    let limited = flooded
        .iter()
        .filter(|outcome| **outcome == Err(Reason::RateLimited))
        .count();
    assert_eq!(limited, FLOOD - (OWN_RECORDS - 1));
    assert!(flooded.iter().all(Result::is_err));

    let summary = async {
        loop {
            let found = records.0.lock().unwrap().iter().find_map(|record| {
                let is_summary = record["route"] == "summary";
                is_summary.then(|| record.clone())
            });
            if let Some(summary) = found {
                return summary;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let summary = tokio::time::timeout(Duration::from_secs(30), summary)
        .await
        .unwrap();
    assert_eq!(
        (&summary["reason"], &summary["namespaces"]),
        (
            &Value::from("RateLimited"),
            &Value::from(format!("tenant-a ({limited})"))
        )
    );
    let records = records.0.lock().unwrap();
    let denied = records
        .iter()
        .filter(|record| record["decision"] == "denied" && record["route"] != "summary");
    assert_eq!(denied.count(), OWN_RECORDS);
    let granted = records
        .iter()
        .filter(|record| record["decision"] == "granted");
    assert_eq!(granted.count(), 51, "each issuance has its own record");
}

/// A request that fails for no fault of its caller keeps its reason beyond the budget, so that no
/// client of a failing hub reads that it asks too often.
#[tokio::test]
async fn a_failure_keeps_its_reason_beyond_the_budget() {
    let (world, records) = (SmallWorld::start().await, Arc::new(Records::default()));
    let policy = PolicyWriter::new(world.policy.clone());
    let limits = NewCallerLimits {
        per_address: None,
        per_namespace: None,
    };
    let audit = Arc::<Records>::clone(&records);
    let broker = Broker::new(BrokerParts {
        // Nothing is known of the target yet, so it is not ready.
        targets: TargetWriter::default().reader(),
        ..parts(&world, Arc::clone(&world.port), &policy, audit, limits)
    });
    let token = token_of(&world, "reconciler");
    let first = outcome(&broker, &token).await.unwrap_err();
    assert_eq!(decision_of(first), "failed");
    let outcomes = future::join_all((0..200).map(|_| outcome(&broker, &token))).await;
    assert!(
        outcomes.iter().all(|outcome| *outcome == Err(first)),
        "{first:?}: {outcomes:?}"
    );
    assert_eq!(records.0.lock().unwrap().len(), OWN_RECORDS);
}
