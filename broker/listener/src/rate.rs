//! Token buckets, one per key: a burst first, then a constant rate per second.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;

use parking_lot::Mutex;

use std::time::Duration;

/// The burst of a key, in seconds of its rate.
const BURST_SECONDS: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// How many keys have their own bucket. Further ones share one: an attacker with many addresses
/// must not use up memory.
const MAX_KEYS: usize = 16_384;

/// The shortest pause between two cleanups of full buckets: one takes as long as some signature
/// checks.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// Token buckets by key. Each is a single time: when it will be full again (the generic cell rate
/// algorithm, ITU-T I.371).
#[derive(Debug)]
pub struct Rates<K> {
    interval: Duration,
    burst: Duration,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    full_at: HashMap<K, Duration>,
    others_full_at: Duration,
    /// When full buckets were last removed.
    cleared_at: Duration,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self {
            full_at: HashMap::new(),
            others_full_at: Duration::ZERO,
            cleared_at: Duration::ZERO,
        }
    }
}

impl<K: Eq + Hash> Rates<K> {
    /// Creates buckets with this rate, and a burst of three seconds of it.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self::with_burst(per_second, per_second.saturating_mul(BURST_SECONDS))
    }

    /// Creates buckets with this rate and this burst.
    pub(crate) fn with_burst(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            burst: interval * burst.get(),
            buckets: Mutex::new(Buckets::default()),
        }
    }

    /// Whether the bucket of `key` contains a token. Takes none and stores nothing.
    pub fn has_token(&self, key: &K, now: Duration) -> bool {
        let buckets = self.buckets.lock();
        let others = if buckets.full_at.len() < MAX_KEYS {
            now
        } else {
            buckets.others_full_at
        };
        let full_at = buckets.full_at.get(key).copied().unwrap_or(others);
        full_at.max(now) + self.interval <= now + self.burst
    }

    /// Takes one from the bucket of `key`. `now` is the monotonic time.
    ///
    /// # Errors
    /// The bucket is empty; returns how long until it has a token again.
    pub fn take_token(&self, key: K, now: Duration) -> Result<(), Duration> {
        match self.take_within(key, now, Duration::ZERO) {
            wait if wait.is_zero() => Ok(()),
            wait => Err(wait),
        }
    }

    /// Takes one from the bucket of `key` that it has now or within `max_wait`. Returns how long
    /// until it has one; if that is longer, none was taken.
    pub(crate) fn take_within(&self, key: K, now: Duration, max_wait: Duration) -> Duration {
        let mut buckets = self.buckets.lock();
        let Buckets {
            full_at,
            others_full_at,
            cleared_at,
        } = &mut *buckets;
        if full_at.len() >= MAX_KEYS && now > *cleared_at + CLEANUP_INTERVAL {
            full_at.retain(|_, full_at| *full_at > now);
            *cleared_at = now;
        }
        let room = full_at.len() < MAX_KEYS;
        let bucket = match full_at.get_mut(&key) {
            Some(bucket) => bucket,
            None if room => full_at.entry(key).or_insert(now),
            None => others_full_at,
        };
        let after = (*bucket).max(now) + self.interval;
        let wait = after.saturating_sub(now + self.burst);
        if wait <= max_wait {
            *bucket = after;
        }
        wait
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::{BURST_SECONDS, MAX_KEYS, Rates};

    const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();
    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn a_burst_and_then_a_rate() {
        let rates = Rates::new(TEN);
        let taken = (0..100)
            .filter(|_| rates.take_token("a", NOW).is_ok())
            .count();
        assert_eq!(taken as u32, 10 * BURST_SECONDS.get());
        assert_eq!(
            (rates.has_token(&"a", NOW), rates.has_token(&"b", NOW)),
            (false, true)
        );
        assert_eq!(
            rates.take_token("a", NOW),
            Err(Duration::from_millis(100)),
            "and no refusal makes it longer"
        );
        assert_eq!(
            rates.take_token("b", NOW),
            Ok(()),
            "another has a bucket of its own"
        );
        let later = NOW + Duration::from_millis(100);
        assert_eq!(
            (
                rates.take_token("a", later).is_ok(),
                rates.take_token("a", later).is_ok()
            ),
            (true, false)
        );
        let much_later = NOW + Duration::from_secs(3600);
        assert_eq!(
            (0..100)
                .filter(|_| rates.take_token("a", much_later).is_ok())
                .count() as u32,
            10 * BURST_SECONDS.get(),
            "it does not overflow"
        );
    }

    #[test]
    fn a_token_may_be_waited_for_and_none_is_taken_beyond_the_longest_wait() {
        let rates = Rates::with_burst(TEN, NonZeroU32::MIN);
        let max_wait = Duration::from_millis(250);
        let waits: Vec<u128> = (0..5)
            .map(|_| rates.take_within("a", NOW, max_wait).as_millis())
            .collect();
        assert_eq!(waits, [0, 100, 200, 300, 300], "the last two took none");
        let later = NOW + Duration::from_millis(200);
        assert_eq!(rates.take_within("a", later, max_wait).as_millis(), 100);
        assert_eq!(rates.take_within("b", NOW, max_wait), Duration::ZERO);
    }

    #[test]
    fn more_keys_than_are_remembered_share_one_bucket() {
        let rates = Rates::new(TEN);
        for key in 0..MAX_KEYS {
            rates.take_token(key, NOW).unwrap();
        }
        let taken = (MAX_KEYS..MAX_KEYS * 2)
            .filter(|key| rates.take_token(*key, NOW).is_ok())
            .count();
        assert_eq!(taken as u32, 10 * BURST_SECONDS.get());
        assert_eq!(rates.buckets.lock().full_at.len(), MAX_KEYS);
        assert!(
            rates.take_token(0, NOW).is_ok(),
            "who is remembered keeps its own"
        );
        let later = NOW + Duration::from_secs(10);
        rates.take_token(MAX_KEYS * 3, later).unwrap();
        assert_eq!(
            rates.buckets.lock().full_at.len(),
            1,
            "full buckets are forgotten where there is no room"
        );
    }
}
