//! Turns at the hub, by namespace: one tenant's crowd waits behind itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keyferry_core::name::Namespace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reviews that one namespace may have under way.
const PER_NAMESPACE: usize = 8;
/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lanes kept before empty ones are cleared away.
const LANES: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Turns {
    lanes: Mutex<HashMap<Namespace, Arc<Semaphore>>>,
}

/// A turn; the next one's when dropped.
pub type Turn = OwnedSemaphorePermit;

impl Turns {
    /// Waits for a turn of `namespace`; nothing if it did not come in time.
    pub async fn take(&self, namespace: &Namespace) -> Option<Turn> {
        let lane = self.lane(namespace);
        tokio::time::timeout(PATIENCE, lane.acquire_owned())
            .await
            .ok()?
            .ok()
    }

    fn lane(&self, namespace: &Namespace) -> Arc<Semaphore> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() > LANES {
            // Whoever waits or works holds the lane too.
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        Arc::clone(
            lanes
                .entry(namespace.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(PER_NAMESPACE))),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_core::name::Namespace;

    use super::{LANES, PER_NAMESPACE, Turns};

    #[tokio::test(start_paused = true)]
    async fn one_tenants_crowd_keeps_nobody_else_waiting() {
        let turns = Turns::default();
        let (crowd, other) = (
            Namespace::new("crowd").unwrap(),
            Namespace::new("other").unwrap(),
        );
        let mut held = Vec::new();
        for _ in 0..PER_NAMESPACE {
            held.push(turns.take(&crowd).await.unwrap());
        }
        assert!(
            turns.take(&crowd).await.is_none(),
            "one too many gives up after a while"
        );
        assert!(turns.take(&other).await.is_some());
        held.pop();
        assert!(turns.take(&crowd).await.is_some());
    }

    #[tokio::test]
    async fn empty_lanes_are_cleared_away() {
        let turns = Turns::default();
        for number in 0..LANES * 2 {
            drop(
                turns
                    .take(&Namespace::new(format!("n{number}")).unwrap())
                    .await
                    .unwrap(),
            );
        }
        assert!(turns.lanes.lock().unwrap().len() <= LANES + 1);
    }
}
