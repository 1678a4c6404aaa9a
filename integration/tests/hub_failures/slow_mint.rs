//! One slow mint, and the callers of another key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::World;

use super::setup::{ACCOUNT, Behind, token_path};

const SLOW: Duration = Duration::from_secs(3);
/// A bound of sanity for a debug build on a shared machine; docs/benchmarks.md has the figure.
const WARM: Duration = Duration::from_millis(50);
const HITS: usize = 200;

pub(super) async fn delays_no_warm_hit(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, world.hub(), "slow-mint", 300, &["warm", "slow"]).await?;
    let caller = behind.fresh_caller().await?;
    assert_eq!(behind.exchange(&caller, "warm").await?.status, 200);
    let before = behind.token_requests();
    behind.proxy.add(Rule::on(Method::POST, &token_path(ACCOUNT), Fault::Delay(SLOW)));

    let slow = async {
        let started = Instant::now();
        let answer = behind.exchange(&caller, "slow").await?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        Ok::<_, TestError>((started.elapsed(), Instant::now()))
    };
    let warm = async {
        while behind.token_requests() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut times = Vec::new();
        for _ in 0..HITS {
            let started = Instant::now();
            assert_eq!(behind.exchange(&caller, "warm").await?.status, 200);
            times.push(started.elapsed());
        }
        Ok::<_, TestError>((times, Instant::now()))
    };
    let ((took, slow_ended), (mut times, warm_ended)) = tokio::try_join!(slow, warm)?;
    times.sort_unstable();
    let (median, p99) = (times[HITS / 2], times[HITS * 99 / 100 - 1]);
    eprintln!("{HITS} warm hits during a mint of {took:.2?}: p50 {median:.1?}, p99 {p99:.1?}, slowest {:.1?}", times[HITS - 1]);
    assert!(took >= SLOW, "the mint was not slow: {took:?}");
    assert!(warm_ended < slow_ended, "the warm hits were not all made during the slow mint");
    assert!(p99 < WARM, "p99 of warm hits during a slow mint: {p99:?}");
    Ok(())
}
