//! Tests of how long each answer is used, and of how often the source is asked.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keyferry_api::moment::Deadline;

use super::{FetchError, Lifetimes, Lookup, Served, StaleCache};
use crate::clock::Clock;
use crate::testing::FakeClock;

const FRESH: Duration = Duration::from_secs(10);
const STALE: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(5);
const SHORT_TIME: Duration = Duration::from_millis(1);
const CAPACITY: u64 = 100;

type TestCache = StaleCache<&'static str, u32, &'static str, Failure>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Unreachable,
    Forbidden,
}

/// A cache, its clock, and a source that counts its calls.
struct Stage {
    clock: Arc<FakeClock>,
    cache: TestCache,
    calls: Arc<AtomicUsize>,
}

impl Stage {
    fn with_stale(stale: Duration) -> Self {
        let clock = FakeClock::start();
        let lifetimes = Lifetimes {
            fresh: FRESH,
            stale,
            refused: REFUSED,
        };
        let cache = StaleCache::new(
            lifetimes,
            CAPACITY,
            Arc::<FakeClock>::clone(&clock) as Arc<dyn Clock>,
        );
        Self {
            clock,
            cache,
            calls: Arc::default(),
        }
    }

    fn start() -> Self {
        Self::with_stale(STALE)
    }

    fn accept(&self, value: u32, expiry: Option<Duration>) {
        let now = self.clock.now();
        let expiry = expiry.map(|span| Deadline::after(span, now));
        self.cache.accept("key", value, now, expiry);
    }

    async fn fetch(
        &self,
        answer: Result<u32, FetchError<&'static str, Failure>>,
    ) -> Result<Served<u32>, FetchError<&'static str, Failure>> {
        let (cache, clock, calls) = (
            self.cache.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.calls),
        );
        let call = || async move {
            calls.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            match answer {
                Ok(value) => cache.accept("key", value, clock.now(), None),
                Err(FetchError::Refused(refusal)) => cache.refuse("key", refusal, clock.now()),
                _ => {}
            }
            answer
        };
        self.cache
            .fetch_or_stale(&"key", |failure| *failure == Failure::Unreachable, call)
            .await
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn served(value: u32, is_stale: bool) -> Result<Served<u32>, FetchError<&'static str, Failure>> {
    Ok(Served { value, is_stale })
}

#[test]
fn a_value_is_fresh_then_stale_then_unknown() {
    let stage = Stage::start();
    let lookup = || stage.cache.lookup(&"key");
    assert_eq!(lookup(), Lookup::Unknown);
    stage.accept(1, None);
    stage.clock.advance(FRESH - SHORT_TIME);
    assert_eq!(lookup(), Lookup::Fresh(1));
    stage.clock.advance(SHORT_TIME);
    assert_eq!(lookup(), Lookup::Stale(1));
    stage.clock.advance(STALE - FRESH - SHORT_TIME);
    assert_eq!(lookup(), Lookup::Stale(1));
    stage.clock.advance(SHORT_TIME);
    assert_eq!(lookup(), Lookup::Unknown);
    assert_eq!(stage.cache.lookup(&"other"), Lookup::Unknown);
}

#[test]
fn either_clock_alone_ends_a_value() {
    let stage = Stage::start();
    stage.accept(1, None);
    stage.clock.advance_monotonic(FRESH);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Stale(1));
    stage.clock.advance_monotonic(STALE - FRESH);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
}

#[test]
fn neither_lifetime_outlives_the_expiry() {
    let stage = Stage::start();
    stage.accept(1, Some(FRESH + SHORT_TIME));
    stage.clock.advance(FRESH);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Stale(1));
    stage.clock.advance(SHORT_TIME);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
    stage.accept(2, Some(SHORT_TIME));
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Fresh(2));
    stage.clock.advance(SHORT_TIME);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
    stage.accept(3, Some(Duration::ZERO));
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
}

#[test]
fn without_a_stale_lifetime_a_value_is_only_fresh() {
    let stage = Stage::with_stale(Duration::ZERO);
    stage.accept(1, None);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Fresh(1));
    stage.clock.advance(FRESH);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
}

#[test]
fn the_lifetimes_count_from_the_moment_that_is_passed() {
    let stage = Stage::start();
    let asked = stage.clock.now();
    stage.clock.advance(FRESH);
    stage.cache.accept("key", 1, asked, None);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Stale(1));
    stage.clock.advance(REFUSED);
    stage.cache.refuse("key", "no", asked);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
}

#[tokio::test]
async fn a_refusal_ends_the_value_and_no_outage_revives_it() {
    let stage = Stage::start();
    stage.accept(1, None);
    stage.clock.advance(FRESH);
    let refused = Err(FetchError::Refused("no"));
    assert_eq!(stage.fetch(refused).await, Err(FetchError::Refused("no")));
    stage.clock.advance(REFUSED - SHORT_TIME);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Refused("no"));
    assert_eq!(stage.fetch(Ok(2)).await, Err(FetchError::Refused("no")));
    assert_eq!(stage.calls(), 1);
    stage.clock.advance(SHORT_TIME);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
    let unreachable = FetchError::Failed(Failure::Unreachable);
    assert_eq!(
        stage.fetch(Err(unreachable.clone())).await,
        Err(unreachable)
    );
}

#[test]
fn the_last_refusal_is_known_until_a_value_follows() {
    let stage = Stage::start();
    let last = || stage.cache.last_refusal(&"key");
    assert_eq!(last(), None);
    stage.cache.refuse("key", "no", stage.clock.now());
    stage.clock.advance(REFUSED * 100);
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Unknown);
    assert_eq!(last(), Some("no"));
    stage.accept(1, None);
    assert_eq!(last(), None);
}

#[tokio::test]
async fn a_stale_value_is_served_only_after_a_failure_that_allows_it() {
    let stage = Stage::start();
    assert_eq!(stage.fetch(Ok(1)).await, served(1, false));
    stage.clock.advance(FRESH);
    let (unreachable, forbidden) = (
        FetchError::Failed(Failure::Unreachable),
        FetchError::Failed(Failure::Forbidden),
    );
    assert_eq!(stage.fetch(Err(unreachable.clone())).await, served(1, true));
    assert_eq!(
        stage.fetch(Err(forbidden.clone())).await,
        Err(forbidden),
        "the source answered"
    );
    stage.clock.advance(STALE - FRESH - SHORT_TIME);
    assert_eq!(
        stage.fetch(Err(unreachable.clone())).await,
        served(1, true),
        "a failure renews nothing and ends nothing"
    );
    stage.clock.advance(SHORT_TIME);
    assert_eq!(
        stage.fetch(Err(unreachable.clone())).await,
        Err(unreachable)
    );
    assert_eq!(stage.fetch(Ok(2)).await, served(2, false));
    assert_eq!(stage.calls(), 6, "no failure is cached");
}

#[tokio::test]
async fn concurrent_fetches_share_one_call_and_later_ones_its_answer() {
    let stage = Stage::start();
    let crowd = join_all((0..1000).map(|_| stage.fetch(Ok(1)))).await;
    assert!(crowd.into_iter().all(|answer| answer == served(1, false)));
    assert_eq!(stage.fetch(Ok(2)).await, served(1, false));
    assert_eq!(stage.calls(), 1);
    assert!(!stage.cache.is_fetching());
}

/// The second fetch joins no call, because the first has ended, and has looked before that.
#[tokio::test]
async fn a_fetch_checks_again_before_it_calls() {
    let stage = Stage::start();
    let second = stage.cache.fetch(&"key", || {
        stage.accept(1, None);
        async { Ok(2) }
    });
    assert_eq!(second.await, Ok(1));
}

#[tokio::test]
async fn a_refresh_calls_although_the_value_is_fresh() {
    let stage = Stage::start();
    stage.accept(1, None);
    assert_eq!(stage.cache.refresh(&"key", || async { Ok(2) }).await, Ok(2));
    assert_eq!(
        stage.cache.lookup(&"key"),
        Lookup::Fresh(1),
        "an answer that the call does not cache is not cached"
    );
}

#[tokio::test]
async fn a_lost_call_leaves_the_stale_value_unused() {
    let stage = Stage::start();
    stage.accept(1, None);
    stage.clock.advance(FRESH);
    let lost = stage
        .cache
        .fetch_or_stale(&"key", |_| true, || async { panic!("on purpose") });
    assert_eq!(lost.await, Err(FetchError::Lost));
    assert_eq!(stage.cache.lookup(&"key"), Lookup::Stale(1));
}

#[test]
fn the_entries_are_bounded() {
    let clock: Arc<dyn Clock> = FakeClock::start();
    let lifetimes = Lifetimes {
        fresh: FRESH,
        stale: STALE,
        refused: REFUSED,
    };
    let cache: StaleCache<u64, (), ()> = StaleCache::new(lifetimes, CAPACITY, Arc::clone(&clock));
    for key in 0..CAPACITY * 10 {
        cache.accept(key, (), clock.now(), None);
        cache.refuse(CAPACITY * 10 + key, (), clock.now());
    }
    cache.entries.run_pending_tasks();
    assert!(cache.entries.entry_count() <= CAPACITY);
}
