//! One slow mint must not delay the callers of another key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::World;
use tokio::sync::watch;

use super::setup::{ACCOUNT, Behind, token_path};

/// How long the warm hits may take together: less than the five seconds after which the blocked
/// mint is given up, so a hit that waits for the mint is not answered in time.
/// docs/development/benchmarks.md has the figure of a hit.
const HITS_LIMIT: Duration = Duration::from_secs(4);
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
        let mut times = Vec::new();
        let hits = async {
            while times.len() < HITS {
                let started = Instant::now();
                assert_eq!(behind.exchange(&caller, "warm").await?.status, 200);
                times.push(started.elapsed());
            }
            Ok::<_, TestError>(())
        };
        tokio::time::timeout(HITS_LIMIT, hits)
            .await
            .map_err(|_| "a warm hit waits for the mint")??;
        // All of them were answered while the mint was blocked, because it continues only now.
        let_go.send_replace(true);
        Ok::<_, TestError>(times)
    };
    let ((), mut times) = tokio::try_join!(slow, warm)?;
    times.sort_unstable();
    eprintln!(
        "{HITS} warm hits during a mint: p50 {:.1?}, slowest {:.1?}",
        times[HITS / 2],
        times[HITS - 1]
    );
    Ok(())
}
