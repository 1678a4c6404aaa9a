//! Delays refusals, so that a client that retries at once asks only twice a second on each
//! connection.

use std::time::Duration;

use tokio::sync::Semaphore;

const REFUSAL_DELAY: Duration = Duration::from_millis(500);
/// How many refusals may be delayed at once, each with a request's body; further ones are sent at
/// once, so that they cost no memory.
const MAX_DELAYED: usize = 256;

/// The places for delayed refusals.
#[derive(Debug)]
pub(crate) struct RefusalDelay {
    permits: Semaphore,
}

impl Default for RefusalDelay {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_DELAYED),
        }
    }
}

impl RefusalDelay {
    /// Whether no further refusal can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Waits for a moment, if not too many refusals wait already.
    pub(crate) async fn wait_if_few(&self) {
        if let Ok(_place) = self.permits.try_acquire() {
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::future::join_all;

    use super::{MAX_DELAYED, REFUSAL_DELAY, RefusalDelay};

    #[tokio::test(start_paused = true)]
    async fn refusals_are_delayed_while_there_is_room() {
        let delay = RefusalDelay::default();
        let begun = tokio::time::Instant::now();
        join_all((0..MAX_DELAYED).map(|_| delay.wait_if_few())).await;
        assert_eq!(begun.elapsed(), REFUSAL_DELAY);
        let all = delay
            .permits
            .acquire_many(u32::try_from(MAX_DELAYED).unwrap())
            .await;
        delay.wait_if_few().await;
        assert_eq!(
            begun.elapsed(),
            REFUSAL_DELAY,
            "without room a refusal is sent at once"
        );
        drop(all);
    }
}
