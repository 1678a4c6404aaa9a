//! Waits until something holds. Every wait has a limit, and its error says what did not happen.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rest::RestClient;
use crate::runner::{TestError, TestResult};

const POLL_EVERY: Duration = Duration::from_millis(50);

/// Repeats a check until it is true.
///
/// # Errors
/// The check failed, or it was not true within the limit.
pub async fn until<F>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) -> TestResult
where
    F: Future<Output = Result<bool, TestError>>,
{
    let started = Instant::now();
    while !holds().await? {
        if started.elapsed() > limit {
            return Err(format!("not within {} s: {what}", limit.as_secs()).into());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Ok(())
}

/// Waits until an object satisfies the check, and returns it. The object may not exist at first.
///
/// # Errors
/// It did not within the limit. The error contains the object without its spec.
pub async fn until_object(
    client: &RestClient,
    path: &str,
    wanted: &str,
    limit: Duration,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value, TestError> {
    let started = Instant::now();
    loop {
        let read = client.get(path).await;
        if let Ok(object) = &read
            && holds(object)
        {
            return Ok(object.clone());
        }
        if started.elapsed() > limit {
            let found = read.map(|object| {
                format!("{} {}", object["metadata"]["annotations"], object["status"])
            });
            return Err(format!(
                "{path} is not {wanted} after {} s: {found:?}",
                limit.as_secs()
            )
            .into());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
