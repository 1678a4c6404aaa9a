//! The caches: a value that is there is not fetched again, and a cache counts exactly what it has.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keyferry_api::moment::Moment;
use keyferry_api::name::Namespace;
use keyferry_platform::clock::Clock;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use super::count_broken;
use crate::counted_cache::{CacheLimits, CountedCache, OfNamespace};
use crate::stale_cache::{FetchError, Lifetimes, Lookup, StaleCache};

/// Time stands still. Each look at it lets another thread go on.
struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Moment {
        thread::yield_now();
        Moment {
            wall: jiff::Timestamp::UNIX_EPOCH,
            mono: Duration::ZERO,
        }
    }
}

type Values = StaleCache<&'static str, usize>;

/// Callers fetch a value that is not there yet.
pub fn fetched(schedules: usize) -> usize {
    one_fetch_is_enough(schedules, Callers::Fetch)
}

/// The mistake: they look for it, and then refresh it.
pub fn looked_up_and_refreshed(schedules: usize) -> usize {
    one_fetch_is_enough(schedules, Callers::LookUpAndRefresh)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Callers {
    Fetch,
    LookUpAndRefresh,
}

fn one_fetch_is_enough(schedules: usize, callers: Callers) -> usize {
    count_broken(schedules, move || {
        let lifetimes = Lifetimes {
            fresh: Duration::from_secs(60),
            stale: Duration::from_secs(60),
            refused: Duration::from_secs(60),
        };
        let values: Values = StaleCache::new(lifetimes, 10, Arc::new(StillClock));
        let fetches = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let (values, fetches) = (values.clone(), Arc::clone(&fetches));
            spawn(async move {
                let fetch = || fetch_value(values.clone(), Arc::clone(&fetches));
                match callers {
                    Callers::Fetch => values.fetch(&"key", fetch).await,
                    Callers::LookUpAndRefresh => match values.lookup(&"key") {
                        Lookup::Fresh(value) => Ok(value),
                        _ => values.refresh(&"key", fetch).await,
                    },
                }
            })
        };
        let asked: Vec<_> = (0..3).map(|_| ask()).collect();
        let answers = block_on(join_all(asked));
        answers.iter().all(|answer| matches!(answer, Ok(Ok(1))))
            && fetches.load(Ordering::SeqCst) == 1
    })
}

async fn fetch_value(
    values: Values,
    fetches: Arc<AtomicUsize>,
) -> Result<usize, FetchError<std::convert::Infallible, std::convert::Infallible>> {
    let value = fetches.fetch_add(1, Ordering::SeqCst) + 1;
    yield_now().await;
    values.accept("key", value, StillClock.now(), None);
    Ok(value)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(Namespace, u8);

impl OfNamespace for Key {
    fn namespace(&self) -> &Namespace {
        &self.0
    }
}

/// Two threads add an entry of one key: the namespace counts one.
pub fn added_twice(schedules: usize) -> usize {
    count_is_exact(schedules, |_, _| {})
}

/// As [`added_twice`], and meanwhile a third thread removes it.
pub fn added_and_removed(schedules: usize) -> usize {
    count_is_exact(schedules, CountedCache::remove)
}

fn count_is_exact(schedules: usize, meanwhile: fn(&CountedCache<Key, ()>, &Key)) -> usize {
    count_broken(schedules, move || {
        let (cache, key) = (new_cache(), Key(tenant_namespace(), 1));
        let add = || {
            let (cache, key) = (cache.clone(), key.clone());
            thread::spawn(move || cache.insert(key, |_| ()))
        };
        let (first, second) = (add(), add());
        meanwhile(&cache, &key);
        let joined = first.join().is_ok() && second.join().is_ok();
        joined && cache.count_of(&key.0) == cache.iter().count()
    })
}

/// The mistake, for a limit that must be exact: both find that there is room for one, and both add.
/// Mints do so; the limit of a namespace may be exceeded by those that are under way.
pub fn both_find_room(schedules: usize) -> usize {
    count_broken(schedules, || {
        let cache = new_cache();
        let add = |number| {
            let (cache, key) = (cache.clone(), Key(tenant_namespace(), number));
            thread::spawn(move || {
                if cache.has_room(&key) {
                    cache.insert(key, |_| ());
                }
            })
        };
        let (first, second) = (add(1), add(2));
        let joined = first.join().is_ok() && second.join().is_ok();
        joined && cache.iter().count() == 1
    })
}

fn new_cache() -> CountedCache<Key, ()> {
    CountedCache::new(CacheLimits {
        all: 10,
        per_namespace: 1,
        lifetime: Duration::from_secs(60),
    })
}

#[allow(clippy::unwrap_used, reason = "a name of the tests")]
fn tenant_namespace() -> Namespace {
    Namespace::new("tenant-a").unwrap()
}
