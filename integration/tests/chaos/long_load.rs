//! Mixed load for a long time. Memory, descriptors, threads, tasks and metric series of Keyferry do
//! not grow from the second third of it to the last.

mod load;
mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};

use self::load::Load;
use self::usage::{Usage, growth, table};
use super::stage::Stage;

const DEFAULT_MINUTES: u64 = 30;
/// So many samples, so that a third of them has a median that means something.
const SAMPLES: u32 = 120;

/// After which Keyferry gets another token of its own.
const OWN_TOKEN_AGE: Duration = Duration::from_secs(1800);

/// `KEYFERRY_LONG_LOAD_MINUTES` says how long. The table is printed with its date.
pub(super) async fn mixed_load_leaves_nothing_behind(stage: Arc<Stage>) -> TestResult {
    let time = Duration::from_secs(60 * minutes()?);
    let mut load = Load::start(&stage).await?;
    let (begin, mut renewed_at) = (Instant::now(), Duration::ZERO);
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        let due = time * number / SAMPLES;
        tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
        samples.push(Usage::of(&stage).await?);
        if begin.elapsed() > renewed_at + OWN_TOKEN_AGE {
            // As a kubelet does; the first one lives for an hour.
            stage.world.broker.kubeconfig().rewrite_token(3600).await?;
            renewed_at = begin.elapsed();
        }
        if let Some(error) = load.failure() {
            return Err(error.into());
        }
    }
    let counts = load.stop().await?;
    eprintln!("{}", table(&samples, time));
    for (kind, count) in counts {
        eprintln!("{count} {kind}");
        assert!(count > 0, "no {kind}");
    }
    let grown = growth(&samples);
    assert!(grown.is_empty(), "{grown:#?}");
    Ok(())
}

fn minutes() -> Result<u64, TestError> {
    match std::env::var("KEYFERRY_LONG_LOAD_MINUTES") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(DEFAULT_MINUTES),
    }
}
