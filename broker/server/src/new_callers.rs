//! Limits for unknown callers: how often each source may try, and where their signatures are
//! checked.
//!
//! The hub accepted a known caller's token recently. None of these limits applies to it, so it
//! never waits behind unknown callers.

use std::num::NonZeroU32;
use std::thread::available_parallelism;
use std::time::Duration;

use keyferry_api::config::NewCallerLimits;
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_listener::{Rates, Source};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;

use crate::refusal_delay::RefusalDelay;

/// How many signature checks may wait per checking thread. Each takes 30 to 230 us, so a full queue
/// is empty within 60 ms.
const MAX_WAITING_PER_THREAD: usize = 256;
/// How many of the hub's 16 concurrent TokenReviews new callers may use. This leaves room for
/// reviews that are due again. One namespace can use 8, so some remain for the others.
const MAX_CONCURRENT_REVIEWS: usize = 12;
/// How long a new caller waits for its TokenReview.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// All addresses of one /64 together may try this many times as often as a single one: the Pods of
/// a node often share a /64, but a host on the internet has a whole one.
const NETWORK_SHARE: u32 = 8;

/// Bounds the resources that unknown callers can use.
#[derive(Debug)]
pub(crate) struct NewCallers {
    sources: Option<Rates<Source>>,
    networks: Option<Rates<Source>>,
    namespaces: Option<Rates<Namespace>>,
    /// At most half of the cores, in threads other than those of the requests.
    checking: Semaphore,
    waiting: Semaphore,
    reviews: Semaphore,
    delay: RefusalDelay,
}

impl NewCallers {
    pub(crate) fn new(limits: NewCallerLimits) -> Self {
        let threads = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self {
            sources: limits.per_address.map(Rates::new),
            networks: limits.per_address.map(|rate| {
                Rates::new(rate.saturating_mul(NonZeroU32::MIN.saturating_add(NETWORK_SHARE - 1)))
            }),
            namespaces: limits.per_namespace.map(Rates::new),
            checking: Semaphore::new(threads),
            waiting: Semaphore::new(threads * MAX_WAITING_PER_THREAD),
            reviews: Semaphore::new(MAX_CONCURRENT_REVIEWS),
            delay: RefusalDelay::default(),
        }
    }

    /// Counts one request of a source, and of its /64 for an IPv6 address. `now` is the monotonic
    /// time.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn of_source(&self, source: Source, now: Duration) -> Result<(), Reason> {
        let (Some(sources), Some(networks)) = (&self.sources, &self.networks) else {
            return Ok(());
        };
        let network = Some(source.network()).filter(|network| *network != source);
        // Checked first, so that a host with a whole /64 cannot fill memory with addresses. Counted
        // last, so that an address that asks too often costs its neighbours nothing.
        if network.is_some_and(|network| !networks.has_token(&network, now)) {
            return Err(Reason::RateLimited);
        }
        let taken = sources
            .take_token(source, now)
            .and_then(|()| network.map_or(Ok(()), |network| networks.take_token(network, now)));
        taken.map_err(|_| Reason::RateLimited)
    }

    /// Counts one new caller of a namespace, which its checked token names.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn of_namespace(&self, namespace: &Namespace, now: Duration) -> Result<(), Reason> {
        self.namespaces
            .as_ref()
            .map_or(Ok(()), |rates| rates.take_token(namespace.clone(), now))
            .map_err(|_| Reason::RateLimited)
    }

    /// Runs a signature check on one of a few separate threads, so that the request threads stay
    /// free for known callers.
    ///
    /// # Errors
    /// [`Reason::RateLimited`] if too many checks wait already, or the error of the check.
    pub(crate) async fn run_check<C, T, E>(&self, check: C) -> Result<T, E>
    where
        C: FnOnce() -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Reason> + Send + 'static,
    {
        let _waiting = self
            .waiting
            .try_acquire()
            .map_err(|_| Reason::RateLimited)?;
        let _turn = self
            .checking
            .acquire()
            .await
            .map_err(|_| Reason::RateLimited)?;
        // A check that panicked accepts no caller.
        spawn_blocking(check)
            .await
            .unwrap_or_else(|_| Err(Reason::CallerRejected.into()))
    }

    /// Waits for a permit for a TokenReview; `None` if it times out.
    pub(crate) async fn review_permit(&self) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout(REVIEW_TIMEOUT, self.reviews.acquire())
            .await
            .ok()?
            .ok()
    }

    /// Delays a refusal for a moment, if not too many are delayed already.
    pub(crate) async fn delay_refusal(&self) {
        self.delay.wait_if_few().await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::future::join_all;
    use keyferry_api::config::NewCallerLimits;
    use keyferry_api::name::Namespace;
    use keyferry_api::reason::Reason;
    use keyferry_listener::Source;

    use super::NewCallers;

    const NOW: Duration = Duration::from_secs(1);

    fn limited(per_second: u32) -> NewCallers {
        let limit = NonZeroU32::new(per_second);
        NewCallers::new(NewCallerLimits {
            per_address: limit,
            per_namespace: limit,
        })
    }

    #[test]
    fn each_source_and_each_namespace_has_its_own_rate() {
        let callers = limited(1);
        let (one, other) = (
            Source::of_address([192, 0, 2, 1].into()),
            Source::of_address([192, 0, 2, 2].into()),
        );
        assert_eq!(
            (0..100)
                .filter(|_| callers.of_source(one, NOW).is_ok())
                .count(),
            3
        );
        assert_eq!(
            (callers.of_source(one, NOW), callers.of_source(other, NOW)),
            (Err(Reason::RateLimited), Ok(()))
        );
        let (one, other) = (
            Namespace::new("one").unwrap(),
            Namespace::new("other").unwrap(),
        );
        assert_eq!(
            (0..100)
                .filter(|_| callers.of_namespace(&one, NOW).is_ok())
                .count(),
            3
        );
        assert_eq!(
            (
                callers.of_namespace(&one, NOW),
                callers.of_namespace(&other, NOW)
            ),
            (Err(Reason::RateLimited), Ok(()))
        );
        let off = limited(0);
        assert!((0..10_000).all(|_| off.of_source(Source::default(), NOW).is_ok()));
    }

    #[test]
    fn an_ipv6_address_has_a_rate_and_its_network_a_larger_one() {
        let callers = limited(10);
        let of = |host: u16| {
            Source::of_address(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
        };
        assert_eq!(
            (0..1000)
                .filter(|_| callers.of_source(of(1), NOW).is_ok())
                .count(),
            30
        );
        assert_eq!(
            (0..1000)
                .filter(|_| callers.of_source(of(2), NOW).is_ok())
                .count(),
            30,
            "its neighbour is not locked out"
        );
        assert_eq!(
            (3..1000)
                .filter(|host| callers.of_source(of(*host), NOW).is_ok())
                .count(),
            240 - 60,
            "all addresses of a /64"
        );
        let elsewhere =
            Source::of_address(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1).into());
        assert_eq!(callers.of_source(elsewhere, NOW), Ok(()));
    }

    /// The runtime has one thread, so a check that ran on it would block this test.
    #[tokio::test]
    async fn checks_run_beside_the_requests_and_few_wait() {
        let callers = Arc::new(limited(0));
        let room = callers.waiting.available_permits();
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let crowd: Vec<_> = (0..room + 10)
            .map(|_| {
                let (callers, held) = (Arc::clone(&callers), Arc::clone(&held));
                tokio::spawn(async move {
                    callers
                        .run_check(move || {
                            let _ = held.lock().unwrap().recv();
                            Ok::<(), Reason>(())
                        })
                        .await
                })
            })
            .collect();
        while callers.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused: Result<(), Reason> = callers.run_check(|| Ok(())).await;
        assert_eq!(refused, Err(Reason::RateLimited));
        drop(hold);
        let outcomes = join_all(crowd).await;
        assert_eq!(
            outcomes
                .iter()
                .filter(|outcome| matches!(outcome, Ok(Ok(()))))
                .count(),
            room
        );
        assert_eq!(
            callers
                .run_check(|| Err::<(), Reason>(Reason::CallerRejected))
                .await,
            Err(Reason::CallerRejected)
        );
    }
}
