//! TokenRequests that fail, hang or return nonsense.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::Method;
use keyferry_integration::chaos_proxy::Rule;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;

use super::faults::faults;
use super::setup::{ACCOUNT, BOUND, Behind, GRANTED_WITHIN, token_path};

const TARGETS: [&str; 5] = ["fault-0", "fault-1", "fault-2", "fault-3", "fault-4"];
/// How long a failure is cached for its caller.
const WINDOW: Duration = Duration::from_secs(2);

pub(super) async fn bounded_and_not_kept(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "mint-faults", 300, &TARGETS).await?;
    let caller = behind.fresh_caller().await?;
    let reasons = [
        "HubUnreachable",
        "HubUnreachable",
        "HubUnreachable",
        "MintFailed",
        "HubUnreachable",
    ];
    for (((name, fault), target), reason) in faults().into_iter().zip(TARGETS).zip(reasons) {
        let before = behind.token_requests();
        let rule = behind
            .proxy
            .add(Rule::on(Method::POST, &token_path(ACCOUNT), fault));
        let started = Instant::now();
        let answers = try_join_all((0..5).map(|_| behind.exchange(&caller, target))).await?;
        let took = started.elapsed();
        assert!(took < BOUND, "{name}: answered after {took:?}");
        for answer in &answers {
            assert_eq!(answer.status, 503, "{name}: {}", answer.body);
            assert!(
                !answer.body.contains("eyJ"),
                "{name}: a token is in {}",
                answer.body
            );
            let record = behind.broker.audit_of(&answer.request_id)?;
            assert_eq!(
                (&record["decision"], &record["reason"]),
                (&"failed".into(), &reason.into()),
                "{name}"
            );
        }
        let failed = started + took;
        let again = behind.exchange(&caller, target).await?;
        if failed.elapsed() < WINDOW / 2 {
            assert_eq!(again.status, 503, "{name}");
            assert_eq!(
                behind.token_requests() - before,
                1,
                "{name}: one TokenRequest for six callers, never repeated"
            );
        }
        behind.proxy.remove(rule);
        let before = behind.token_requests();
        let answer = behind
            .until_granted(&caller, target, GRANTED_WITHIN)
            .await?;
        assert_eq!(
            behind.broker.audit_of(&answer.request_id)?["cache"],
            "miss",
            "{name}: nothing was kept"
        );
        assert_eq!(
            behind.token_requests() - before,
            1,
            "{name}: the next call mints"
        );
        let warm = behind.exchange(&caller, target).await?;
        assert_eq!(
            behind.broker.audit_of(&warm.request_id)?["cache"],
            "hit",
            "{name}"
        );
        eprintln!(
            "TokenRequest answered with {name}: {reason} after {:.2} s",
            took.as_secs_f32()
        );
    }
    Ok(())
}
