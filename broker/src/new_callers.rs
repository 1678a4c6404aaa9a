//! Callers that are not known yet: how often each source may try, and where their signatures are
//! checked.
//!
//! A known caller's token was accepted by the hub lately. It passes none of this, so it never waits
//! behind those who are not known.

use std::num::NonZeroU32;
use std::thread::available_parallelism;
use std::time::Duration;

use keyferry_core::config::NewCallerLimits;
use keyferry_core::name::Namespace;
use keyferry_core::reason::Reason;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;

use crate::rate::Rates;
use crate::source::Source;

/// Signature checks that may wait for each thread that makes them. Each takes 30 to 230 us, so a
/// full queue is empty within 60 ms.
const WAITING: usize = 256;
/// TokenReviews of new callers at once, of the 16 that the hub is asked for: so that reviews which
/// are due again find room, and so that one namespace, which has 8 at once, leaves some to the
/// others.
const REVIEWS: usize = 12;
/// How long a new caller waits for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a refusal for its rate is held back: a client that asks again at once asks twice a
/// second on each connection.
const HELD_BACK: Duration = Duration::from_millis(500);
/// Refusals that are held back at once, each with a request's body; further ones leave at once, so
/// that they cost no memory.
const MOST_HELD_BACK: usize = 256;

/// The addresses of one /64 together may try so many times as often as one of them: the Pods of a
/// node often share a /64, and a host on the internet has one for itself.
const NETWORK: u32 = 8;

/// Bounds what callers that are not known yet can use.
#[derive(Debug)]
pub(crate) struct NewCallers {
    sources: Option<Rates<Source>>,
    networks: Option<Rates<Source>>,
    namespaces: Option<Rates<Namespace>>,
    /// Half of the cores at most, in threads beside those of the requests.
    checking: Semaphore,
    waiting: Semaphore,
    reviews: Semaphore,
    held_back: Semaphore,
}

impl NewCallers {
    pub(crate) fn new(limits: NewCallerLimits) -> Self {
        let threads = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self {
            sources: limits.per_address.map(Rates::new),
            networks: limits.per_address.map(|rate| {
                Rates::new(rate.saturating_mul(NonZeroU32::MIN.saturating_add(NETWORK - 1)))
            }),
            namespaces: limits.per_namespace.map(Rates::new),
            checking: Semaphore::new(threads),
            waiting: Semaphore::new(threads * WAITING),
            reviews: Semaphore::new(REVIEWS),
            held_back: Semaphore::new(MOST_HELD_BACK),
        }
    }

    /// Counts one request of a source, and of its /64 where it is an IPv6 address. `now` is the
    /// monotonic time.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn of_source(&self, source: Source, now: Duration) -> Result<(), Reason> {
        let (Some(sources), Some(networks)) = (&self.sources, &self.networks) else {
            return Ok(());
        };
        let network = Some(source.network()).filter(|network| *network != source);
        // Looked at first, so that a host with a whole /64 fills no memory with addresses, and
        // taken last, so that an address that asks too often costs its neighbours nothing.
        if network.is_some_and(|network| !networks.has(&network, now)) {
            return Err(Reason::RateLimited);
        }
        let taken = sources
            .take(source, now)
            .and_then(|()| network.map_or(Ok(()), |network| networks.take(network, now)));
        taken.map_err(|_| Reason::RateLimited)
    }

    /// Counts one new caller of a namespace, which its checked token names.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn of_namespace(&self, namespace: &Namespace, now: Duration) -> Result<(), Reason> {
        self.namespaces
            .as_ref()
            .map_or(Ok(()), |rates| rates.take(namespace.clone(), now))
            .map_err(|_| Reason::RateLimited)
    }

    /// Runs a signature check on a thread of its own, of which there are few: so that the threads
    /// of the requests are free for known callers.
    ///
    /// # Errors
    /// [`Reason::RateLimited`] where too many wait already, or what the check says.
    pub(crate) async fn check<C>(&self, check: C) -> Result<(), Reason>
    where
        C: FnOnce() -> Result<(), Reason> + Send + 'static,
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
        // A check that panicked accepted nobody.
        spawn_blocking(check)
            .await
            .unwrap_or(Err(Reason::CallerRejected))
    }

    /// Waits for one of the reviews; nothing if it did not come in time.
    pub(crate) async fn review(&self) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout(PATIENCE, self.reviews.acquire())
            .await
            .ok()?
            .ok()
    }

    /// Holds a refusal back for a moment.
    pub(crate) async fn hold_back(&self) {
        if let Ok(_place) = self.held_back.try_acquire() {
            tokio::time::sleep(HELD_BACK).await;
        }
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
    use keyferry_core::config::NewCallerLimits;
    use keyferry_core::name::Namespace;
    use keyferry_core::reason::Reason;

    use super::{HELD_BACK, MOST_HELD_BACK, NewCallers};
    use crate::source::Source;

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
            Source::of([192, 0, 2, 1].into()),
            Source::of([192, 0, 2, 2].into()),
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
            Source::of(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
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
        let elsewhere = Source::of(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1).into());
        assert_eq!(callers.of_source(elsewhere, NOW), Ok(()));
    }

    /// The runtime has one thread, so whatever is not beside it would keep this test from going on.
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
                        .check(move || {
                            let _ = held.lock().unwrap().recv();
                            Ok(())
                        })
                        .await
                })
            })
            .collect();
        while callers.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(callers.check(|| Ok(())).await, Err(Reason::RateLimited));
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
            callers.check(|| Err(Reason::CallerRejected)).await,
            Err(Reason::CallerRejected)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_held_back_while_there_is_room() {
        let callers = limited(1);
        let begun = tokio::time::Instant::now();
        join_all((0..MOST_HELD_BACK).map(|_| callers.hold_back())).await;
        assert_eq!(begun.elapsed(), HELD_BACK);
        let all = callers
            .held_back
            .acquire_many(u32::try_from(MOST_HELD_BACK).unwrap())
            .await;
        callers.hold_back().await;
        assert_eq!(
            begun.elapsed(),
            HELD_BACK,
            "without room a refusal leaves at once"
        );
        drop(all);
    }
}
