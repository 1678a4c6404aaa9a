//! Single-flight: concurrent callers for the same key share one call. The first caller starts it in
//! its own task, and all wait for its result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::Shared;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The calls in progress, by key.
///
/// The call runs in its own task. A caller that hangs up neither stops it nor makes the next caller
/// start again, and no lock is held while it runs. Its callers are woken in the order in which they
/// came, so that a run in virtual time replays.
pub struct SingleFlight<K, V> {
    under_way: Arc<Mutex<Calls<K, V>>>,
}

type Calls<K, V> = HashMap<K, Shared<oneshot::Receiver<V>>>;

/// The task of the shared call panicked or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared call ended without an answer")]
pub struct SharedCallLost;

/// A clone shares the calls of its original.
impl<K, V> Clone for SingleFlight<K, V> {
    fn clone(&self) -> Self {
        Self {
            under_way: Arc::clone(&self.under_way),
        }
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self {
            under_way: Arc::default(),
        }
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Waits for the call for `key`, and starts `call` if none is in progress.
    ///
    /// # Errors
    /// [`SharedCallLost`] if the call's task panicked; the next caller starts a new call.
    pub async fn join<F>(&self, key: K, call: impl FnOnce() -> F) -> Result<V, SharedCallLost>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let answer = {
            let mut under_way = lock(&self.under_way);
            match under_way.get(&key) {
                Some(answer) => answer.clone(),
                None => {
                    let (sender, answer) = oneshot::channel();
                    let answer = answer.shared();
                    under_way.insert(key.clone(), answer.clone());
                    let guard = CallGuard {
                        under_way: Arc::clone(&self.under_way),
                        key,
                    };
                    let call = call();
                    tokio::spawn(async move {
                        let value = call.await;
                        // Removed before the result is sent, so that a later caller cannot join a
                        // call that has ended.
                        drop(guard);
                        // Nobody may wait any more.
                        let _ = sender.send(value);
                    });
                    answer
                }
            }
        };
        answer.await.map_err(|_| SharedCallLost)
    }

    /// Returns the number of calls in progress.
    pub fn len(&self) -> usize {
        lock(&self.under_way).len()
    }

    /// Whether no call is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Removes the call from the map on drop, even if its task panics.
struct CallGuard<K: Eq + Hash, V> {
    under_way: Arc<Mutex<Calls<K, V>>>,
    key: K,
}

impl<K: Eq + Hash, V> Drop for CallGuard<K, V> {
    fn drop(&mut self) {
        lock(&self.under_way).remove(&self.key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::{SharedCallLost, SingleFlight};

    async fn slow(calls: Arc<AtomicUsize>) -> usize {
        calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        7
    }

    #[tokio::test(start_paused = true)]
    async fn many_want_it_and_one_call_is_made() {
        let (shared, calls) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let waits = (0..10_000).map(|_| shared.join("key", || slow(Arc::clone(&calls))));
        let answers = join_all(waits).await;
        assert!(answers.into_iter().all(|answer| answer == Ok(7)));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert!(shared.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_caller_hangs_up_and_the_call_goes_on() {
        let (shared, calls) = (
            Arc::new(SingleFlight::default()),
            Arc::new(AtomicUsize::new(0)),
        );
        let first = tokio::spawn({
            let (shared, calls) = (Arc::clone(&shared), Arc::clone(&calls));
            async move { shared.join("key", || slow(calls)).await }
        });
        while shared.is_empty() {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert_eq!(shared.join("key", || slow(Arc::clone(&calls))).await, Ok(7));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_panic_loses_one_call_and_frees_the_key() {
        let shared: SingleFlight<&str, usize> = SingleFlight::default();
        let lost = shared.join("key", || async { panic!("on purpose") }).await;
        assert_eq!(lost, Err(SharedCallLost));
        assert_eq!(shared.join("key", || async { 1 }).await, Ok(1));
    }
}
