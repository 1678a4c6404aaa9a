//! One slow mint must not delay the callers of another key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::World;
use tokio::sync::watch;

use super::setup::{ACCOUNT, Behind, token_path};

/// How long the mint is blocked. The rest of the five seconds that a call may take is for a busy
/// machine.
const SLOW: Duration = Duration::from_secs(3);
/// A cache hit that waits for the mint takes longer; docs/development/benchmarks.md has the figure.
const WARM: Duration = Duration::from_millis(1500);
const HITS: usize = 20;

pub(super) async fn delays_no_warm_hit(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "slow-mint", 300, &["warm", "slow"]).await?;
    let caller = behind.fresh_caller().await?;
    assert_eq!(behind.exchange(&caller, "warm").await?.status, 200);
    let before = behind.token_requests();
    let (let_go, held) = watch::channel(false);
    behind.proxy.add(Rule::on(
        Method::POST,
        &token_path(ACCOUNT),
        Fault::Hold(held),
    ));

    let slow = async {
        let answer = behind.exchange(&caller, "slow").await?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        Ok::<_, TestError>(())
    };
    let warm = async {
        while behind.token_requests() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < SLOW {
            let started = Instant::now();
            let hit = tokio::time::timeout(WARM, behind.exchange(&caller, "warm")).await;
            assert_eq!(
                hit.map_err(|_| "a warm hit waits for the mint")??.status,
                200
            );
            times.push(started.elapsed());
        }
        // All of them were answered while the mint was blocked, because it continues only now.
        let_go.send_replace(true);
        Ok::<_, TestError>((began.elapsed(), times))
    };
    let ((), (took, mut times)) = tokio::try_join!(slow, warm)?;
    times.sort_unstable();
    let hits = times.len();
    assert!(hits >= HITS, "{hits} warm hits during a mint of {took:.2?}");
    let (median, p99) = (times[hits / 2], times[hits * 99 / 100 - 1]);
    eprintln!(
        "{hits} warm hits during a mint of {took:.2?}: p50 {median:.1?}, p99 {p99:.1?}, slowest \
         {:.1?}",
        times[hits - 1]
    );
    Ok(())
}
