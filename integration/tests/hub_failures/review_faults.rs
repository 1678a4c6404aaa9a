//! TokenReviews that fail, hang or return nonsense, for known and for unknown callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::{Method, StatusCode};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use serde_json::json;

use super::faults::faults;
use super::setup::{BOUND, Behind, GRANTED_WITHIN};

const REVIEW: Duration = Duration::from_secs(10);

pub(super) async fn bounded_and_not_kept(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "review-faults", 300, &["one"]).await?;
    let reviewed_caller = behind.fresh_caller().await?;
    assert_eq!(behind.exchange(&reviewed_caller, "one").await?.status, 200);
    let reviewed = Instant::now();
    let reasons = [
        "HubUnreachable",
        "HubUnreachable",
        "HubUnreachable",
        "ReviewFailed",
        "HubUnreachable",
    ];
    for ((name, fault), reason) in faults().into_iter().zip(reasons) {
        let stranger = behind.fresh_caller().await?;
        let before = behind.token_reviews();
        let rule = behind
            .proxy
            .add(Rule::on(Method::POST, "/tokenreviews", fault));
        let started = Instant::now();
        let answers = try_join_all((0..5).map(|_| behind.exchange(&stranger, "one"))).await?;
        let took = started.elapsed();
        assert!(took < BOUND, "{name}: answered after {took:?}");
        assert_eq!(
            behind.token_reviews() - before,
            1,
            "{name}: one TokenReview for five, never repeated"
        );
        for answer in &answers {
            assert_eq!(answer.status, 503, "{name}: {}", answer.body);
            assert_eq!(
                behind.broker.audit_of(&answer.request_id)?["reason"],
                reason,
                "{name}"
            );
        }
        behind.proxy.remove(rule);
        behind
            .until_granted(&stranger, "one", GRANTED_WITHIN)
            .await?;
        eprintln!(
            "TokenReview answered with {name}: {reason} after {:.2} s",
            took.as_secs_f32()
        );
    }
    tokio::time::sleep((REVIEW + Duration::from_millis(200)).saturating_sub(reviewed.elapsed()))
        .await;
    a_known_caller_bears_silence_but_no_refusal(&behind, &reviewed_caller).await
}

/// A fault that proves the hub unreachable leaves an earlier answer valid. A refusal by the hub
/// does not.
async fn a_known_caller_bears_silence_but_no_refusal(behind: &Behind, known: &str) -> TestResult {
    let refusals = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].map(|status| Fault::Status {
        status,
        headers: Vec::new(),
        body: json!({ "kind": "Status", "message": "no" })
            .to_string()
            .into_bytes(),
    });
    let [too_many, _, _, no_json, _] = faults().map(|(_, fault)| fault);
    let cases = [
        (too_many, None),
        (refusals[0].clone(), Some("ReviewForbidden")),
        (refusals[1].clone(), Some("ReviewForbidden")),
        (no_json, Some("ReviewFailed")),
    ];
    for (fault, refused) in cases {
        let rule = behind
            .proxy
            .add(Rule::on(Method::POST, "/tokenreviews", fault.clone()));
        // The circuit breaker of the previous case may still be open: its one call a second must
        // meet this fault.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let answer = behind.exchange(known, "one").await?;
        let record = behind.broker.audit_of(&answer.request_id)?;
        match refused {
            None => {
                assert_eq!(answer.status, 200, "{fault:?}: {}", answer.body);
                assert_eq!(record["stale"], json!(true), "{fault:?}");
            }
            Some(reason) => {
                assert_eq!(answer.status, 503, "{fault:?}");
                assert_eq!(record["reason"], reason, "{fault:?}");
            }
        }
        behind.proxy.remove(rule);
    }
    behind.until_granted(known, "one", GRANTED_WITHIN).await?;
    Ok(())
}
