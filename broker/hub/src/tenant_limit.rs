//! Limits concurrent calls to the hub per namespace, so that a tenant with many calls delays only
//! itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::Namespace;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of concurrent reviews of one namespace.
const PER_NAMESPACE: usize = 8;
/// How long a call waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many namespaces are kept before idle ones are removed.
const MAX_NAMESPACES: usize = 1_000;

/// A concurrency limit per namespace.
#[derive(Debug, Default)]
pub struct TenantLimit {
    lanes: Mutex<HashMap<Namespace, Arc<Semaphore>>>,
}

/// A permit for one call; dropping it lets the next call proceed.
pub type TenantPermit = OwnedSemaphorePermit;

impl TenantLimit {
    /// Waits for a permit of `namespace`; `None` if it times out.
    pub async fn take_permit(&self, namespace: &Namespace) -> Option<TenantPermit> {
        let lane = self.namespace_lane(namespace);
        tokio::time::timeout(PERMIT_TIMEOUT, lane.acquire_owned())
            .await
            .ok()?
            .ok()
    }

    fn namespace_lane(&self, namespace: &Namespace) -> Arc<Semaphore> {
        let mut lanes = self.lanes.lock();
        if lanes.len() > MAX_NAMESPACES {
            // A call that waits or runs also holds a reference to its semaphore.
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
    use keyferry_api::name::Namespace;

    use super::{MAX_NAMESPACES, PER_NAMESPACE, TenantLimit};

    #[tokio::test(start_paused = true)]
    async fn one_tenants_crowd_keeps_nobody_else_waiting() {
        let limit = TenantLimit::default();
        let (crowd, other) = (
            Namespace::new("crowd").unwrap(),
            Namespace::new("other").unwrap(),
        );
        let mut held = Vec::new();
        for _ in 0..PER_NAMESPACE {
            held.push(limit.take_permit(&crowd).await.unwrap());
        }
        assert!(
            limit.take_permit(&crowd).await.is_none(),
            "one too many gives up after a while"
        );
        assert!(limit.take_permit(&other).await.is_some());
        held.pop();
        assert!(limit.take_permit(&crowd).await.is_some());
    }

    #[tokio::test]
    async fn empty_lanes_are_cleared_away() {
        let limit = TenantLimit::default();
        for number in 0..MAX_NAMESPACES * 2 {
            drop(
                limit
                    .take_permit(&Namespace::new(format!("n{number}")).unwrap())
                    .await
                    .unwrap(),
            );
        }
        assert!(limit.lanes.lock().len() <= MAX_NAMESPACES + 1);
    }
}
