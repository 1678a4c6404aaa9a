//! How many refusals of known callers get an audit record of their own, for each namespace.
//!
//! One tenant with one valid token could otherwise fill the audit log, in which the issuances of
//! all tenants are recorded, and use up the server by asking for what it may not have. Only refusals
//! count: a caller that is granted its token never waits here, whatever others of its namespace do.

use std::num::NonZeroU32;
use std::time::Duration;

use keyferry_api::name::Namespace;
use keyferry_api::service_account::{ServiceAccountIdentity, Uid};
use keyferry_listener::Rates;

use crate::refusal_delay::RefusalDelay;

/// More than misconfigured workloads need: clients retry every few seconds.
const MAX_REFUSALS_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// The budgets of all namespaces.
#[derive(Debug)]
pub(crate) struct RefusalBudget {
    namespaces: Rates<Namespace>,
    callers: Rates<Uid>,
    /// Apart from the places for unknown callers, so that neither flood takes the other's.
    delay: RefusalDelay,
}

impl Default for RefusalBudget {
    fn default() -> Self {
        Self {
            namespaces: Rates::new(MAX_REFUSALS_PER_SECOND),
            callers: Rates::new(MAX_REFUSALS_PER_SECOND),
            delay: RefusalDelay::default(),
        }
    }
}

impl RefusalBudget {
    /// Counts a refusal of a caller, and returns whether it is within its namespace's budget. `now`
    /// is the monotonic time.
    pub(crate) fn count_refusal(&self, caller: &ServiceAccountIdentity, now: Duration) -> bool {
        // Whether this caller alone is refused too often matters only while refusals are delayed.
        let _ = self.callers.take_token(caller.uid.clone(), now);
        let namespace = caller.account.namespace.clone();
        self.namespaces.take_token(namespace, now).is_ok()
    }

    /// Whether this caller is refused too often while there is no place to delay a refusal: then
    /// its requests are refused before they are decided, because a decision costs more than a
    /// refusal. Other callers of its namespace are decided on.
    pub(crate) fn is_overrun(&self, caller: &ServiceAccountIdentity, now: Duration) -> bool {
        self.delay.is_full() && !self.callers.has_token(&caller.uid, now)
    }

    /// Delays a refusal beyond the budget.
    pub(crate) async fn delay_refusal(&self) {
        self.delay.wait_if_few().await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use futures::future::join_all;
    use keyferry_api::name::ObjectName;
    use keyferry_api::service_account::ServiceAccount;

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    /// The burst of a budget: three seconds of 20 refusals.
    const BURST: usize = 60;
    /// More refusals than may be delayed at once.
    const CROWD: usize = 257;

    fn caller(namespace: &str, name: &str) -> ServiceAccountIdentity {
        ServiceAccountIdentity {
            account: ServiceAccount {
                namespace: Namespace::new(namespace).unwrap(),
                name: ObjectName::new(name).unwrap(),
            },
            uid: Uid::new(format!("{namespace}-{name}")).unwrap(),
        }
    }

    fn count(budget: &RefusalBudget, caller: &ServiceAccountIdentity, refusals: usize) -> usize {
        (0..refusals)
            .filter(|_| budget.count_refusal(caller, NOW))
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_flooding_caller_is_overrun_and_only_while_no_refusal_can_be_delayed() {
        let budget = RefusalBudget::default();
        let (flood, neighbour) = (caller("tenant-a", "flood"), caller("tenant-a", "apps"));
        assert_eq!(count(&budget, &flood, 2 * BURST), BURST);
        assert!(
            !budget.is_overrun(&flood, NOW),
            "a refusal can still be delayed"
        );
        let mut delayed = Box::pin(join_all((0..CROWD).map(|_| budget.delay_refusal())));
        assert!(delayed.as_mut().now_or_never().is_none());
        assert!(budget.is_overrun(&flood, NOW));
        // The namespace's budget is used up, and its other callers are still decided on.
        assert_eq!(count(&budget, &neighbour, 1), 0);
        assert!(!budget.is_overrun(&neighbour, NOW));
        assert!(!budget.is_overrun(&caller("tenant-b", "apps"), NOW));
        // Another account under the same name is another caller.
        let mut recreated = flood.clone();
        recreated.uid = Uid::new("recreated").unwrap();
        assert!(!budget.is_overrun(&recreated, NOW));
        assert!(!budget.is_overrun(&flood, NOW + Duration::from_secs(1)));
        delayed.await;
        assert!(
            !budget.is_overrun(&flood, NOW),
            "the delays are over, so a refusal can be delayed again"
        );
    }

    #[test]
    fn each_namespace_has_a_budget_of_its_own() {
        let budget = RefusalBudget::default();
        assert_eq!(count(&budget, &caller("tenant-a", "apps"), 100), BURST);
        assert_eq!(count(&budget, &caller("tenant-a", "other"), 100), 0);
        assert_eq!(count(&budget, &caller("tenant-b", "apps"), 100), BURST);
    }
}
