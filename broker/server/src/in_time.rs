//! A timeout that costs no timer for work that is ready at once.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use tokio::time::timeout;

/// Runs `work` for at most `limit`. Only work that has to wait sets a timer, which most requests do
/// not: all timers share one lock, and each request would carry memory for one.
pub(crate) async fn in_time<T>(
    limit: Duration,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    match poll!(work.as_mut()) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => Box::pin(timeout(limit, work)).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::in_time;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn work_has_its_time_and_no_more() {
        assert_eq!(in_time(LIMIT, pin!(async { 1 })).await, Some(1));
        let after = async |wait| sleep(wait).await;
        assert_eq!(in_time(LIMIT, pin!(after(LIMIT / 2))).await, Some(()));
        let begun = tokio::time::Instant::now();
        assert_eq!(in_time(LIMIT, pin!(after(LIMIT * 2))).await, None);
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    }
}
