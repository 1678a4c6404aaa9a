//! Divides a scarce resource among sources: a limit for each source, and a reserved part that only
//! small sources get.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::source::Source;

/// The limit of a /64, as a multiple of the limit of one of its addresses.
const NETWORK_FACTOR: u32 = 8;
/// A quarter of a pool is reserved for small sources.
const RESERVED_POOL_DIVISOR: u32 = 4;
/// One /64 gets at most a quarter of what is reserved.
const NETWORK_SHARE_DIVISOR: u32 = 4;

/// Limits of one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The limit of one source.
    pub(crate) per_source: u32,
    /// The limit of all addresses of one /64, where single addresses are sources.
    pub(crate) per_network: u32,
    /// A source with at most this much may use the reserved part.
    pub(crate) few: u32,
}

impl Limits {
    /// Limits for `per_source` out of `all`: a /64 gets eight times as much as a source, but at
    /// most half of all.
    pub(crate) fn per_source(per_source: u32, all: u32, few: u32) -> Self {
        let per_network = per_source
            .saturating_mul(NETWORK_FACTOR)
            .min(all / 2)
            .max(per_source);
        Self {
            per_source,
            per_network,
            few,
        }
    }
}

/// What each source uses. Entries are removed when they reach zero, so the map does not grow with
/// every source ever seen.
#[derive(Debug)]
pub(crate) struct Sources {
    /// With `None`, sources are not counted, because all clients come from one address.
    limits: Option<Limits>,
    usage_by_source: HashMap<Source, SourceUsage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SourceUsage {
    all: u32,
    kept: u32,
}

impl Sources {
    pub(crate) fn new(limits: Option<Limits>) -> Self {
        Self {
            limits,
            usage_by_source: HashMap::new(),
        }
    }

    /// Counts `amount` more for a source. Returns false, and counts nothing, if that would exceed a
    /// limit.
    pub(crate) fn count_usage(&mut self, source: Source, amount: u32) -> bool {
        let Some(limits) = self.limits else {
            return true;
        };
        let network = source.network();
        let after = |one: &Source| self.usage_of(one).all.saturating_add(amount);
        if after(&source) > limits.per_source
            || (network != source && after(&network) > limits.per_network)
        {
            return false;
        }
        self.usage_by_source.entry(source).or_default().all += amount;
        if network != source {
            self.usage_by_source.entry(network).or_default().all += amount;
        }
        true
    }

    /// Undoes [`Sources::count_usage`].
    pub(crate) fn undo_count(&mut self, source: Source, amount: u32) {
        let network = source.network();
        self.reduce_usage(source, amount);
        if network != source {
            self.reduce_usage(network, amount);
        }
    }

    fn reduce_usage(&mut self, source: Source, amount: u32) {
        if let Entry::Occupied(mut entry) = self.usage_by_source.entry(source) {
            entry.get_mut().all = entry.get().all.saturating_sub(amount);
            if entry.get().all == 0 {
                entry.remove();
            }
        }
    }

    fn usage_of(&self, source: &Source) -> SourceUsage {
        self.usage_by_source
            .get(source)
            .copied()
            .unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.usage_by_source.len()
    }
}

/// The shared resource. A quarter is reserved for small sources, so that sources which exhaust the
/// rest cannot take that too.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: PoolPart,
    kept: PoolPart,
}

#[derive(Debug)]
struct PoolPart {
    size: u32,
    taken: u32,
}

impl PoolPart {
    fn of(size: u32) -> Self {
        Self { size, taken: 0 }
    }

    fn has_room(&self, amount: u32) -> bool {
        amount <= self.size.saturating_sub(self.taken)
    }
}

/// Amounts taken from the two parts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolUsage {
    shared: u32,
    kept: u32,
}

impl PoolUsage {
    /// The sum of both parts.
    pub(crate) fn all(self) -> u32 {
        self.shared + self.kept
    }

    /// Adds what was taken later.
    pub(crate) fn plus_later(self, later: Self) -> Self {
        Self {
            shared: self.shared + later.shared,
            kept: self.kept + later.kept,
        }
    }
}

impl Pool {
    /// A pool for these sources. Nothing is reserved where sources are not counted.
    pub(crate) fn of(size: u32, sources: &Sources) -> Self {
        let kept = sources.limits.map_or(0, |_| size / RESERVED_POOL_DIVISOR);
        Self {
            shared: PoolPart::of(size - kept),
            kept: PoolPart::of(kept),
        }
    }

    /// Takes `amount` for a source that was already counted for it.
    pub(crate) fn take_places(
        &mut self,
        sources: &mut Sources,
        source: Source,
        amount: u32,
    ) -> Option<PoolUsage> {
        if self.shared.has_room(amount) {
            self.shared.taken += amount;
            return Some(PoolUsage {
                shared: amount,
                kept: 0,
            });
        }
        let limits = sources.limits?;
        let network = source.network();
        let of_network = sources.usage_of(&network).kept.saturating_add(amount);
        if !self.kept.has_room(amount)
            || sources.usage_of(&source).all > limits.few
            || of_network > self.kept.size.div_ceil(NETWORK_SHARE_DIVISOR)
        {
            return None;
        }
        self.kept.taken += amount;
        sources.usage_by_source.entry(network).or_default().kept += amount;
        Some(PoolUsage {
            shared: 0,
            kept: amount,
        })
    }

    /// Returns what was taken. Call it before [`Sources::undo_count`].
    pub(crate) fn give_back(&mut self, sources: &mut Sources, source: Source, taken: PoolUsage) {
        self.shared.taken = self.shared.taken.saturating_sub(taken.shared);
        self.kept.taken = self.kept.taken.saturating_sub(taken.kept);
        if taken.kept > 0
            && let Some(held) = sources.usage_by_source.get_mut(&source.network())
        {
            held.kept = held.kept.saturating_sub(taken.kept);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Limits, Pool, Sources};
    use crate::source::Source;

    fn source(text: &str) -> Source {
        Source::of_address(text.parse().unwrap())
    }

    /// Takes one unit at a time for one source; returns how many it got.
    fn taken_by(pool: &mut Pool, sources: &mut Sources, source: Source) -> u32 {
        let one = |_: &u32| {
            if !sources.count_usage(source, 1) {
                return false;
            }
            let taken = pool.take_places(sources, source, 1).is_some();
            if !taken {
                sources.undo_count(source, 1);
            }
            taken
        };
        (0..10_000).take_while(one).count() as u32
    }

    #[test]
    fn who_takes_everything_leaves_a_quarter_to_sources_with_little() {
        let mut sources = Sources::new(Some(Limits::per_source(256, 4096, 8)));
        let mut pool = Pool::of(4096, &sources);
        let all: u32 = (0..16)
            .map(|last| {
                taken_by(
                    &mut pool,
                    &mut sources,
                    Source::of_address([192, 0, 2, last].into()),
                )
            })
            .sum();
        assert_eq!(all, 12 * 256 + 4 * 8);
        assert_eq!(
            taken_by(&mut pool, &mut sources, source("198.51.100.1")),
            8,
            "another one is still served"
        );
    }

    #[test]
    fn a_network_has_more_than_one_address_and_not_everything() {
        let mut sources = Sources::new(Some(Limits::per_source(256, 4096, 8)));
        let mut pool = Pool::of(4096, &sources);
        let of = |host: u32| source(&format!("2001:db8::{host:x}"));
        assert_eq!(taken_by(&mut pool, &mut sources, of(1)), 256);
        assert_eq!(
            taken_by(&mut pool, &mut sources, of(2)),
            256,
            "its neighbour has as much"
        );
        let all: u32 = (3..100)
            .map(|host| taken_by(&mut pool, &mut sources, of(host)))
            .sum();
        assert_eq!(all + 512, 2048);
        assert_eq!(
            taken_by(&mut pool, &mut sources, source("2001:db8:0:1::1")),
            256
        );
    }

    #[test]
    fn a_network_has_a_part_of_what_is_kept() {
        let mut sources = Sources::new(Some(Limits {
            per_source: 100,
            per_network: 1000,
            few: 8,
        }));
        let mut pool = Pool::of(400, &sources);
        let shared: u32 = (1..=3)
            .map(|last| {
                taken_by(
                    &mut pool,
                    &mut sources,
                    Source::of_address([192, 0, 2, last].into()),
                )
            })
            .sum();
        assert_eq!(shared, 300);
        let all: u32 = (1..50)
            .map(|host| {
                taken_by(
                    &mut pool,
                    &mut sources,
                    source(&format!("2001:db8::{host:x}")),
                )
            })
            .sum();
        assert_eq!(all, 25);
        assert_eq!(
            taken_by(&mut pool, &mut sources, source("2001:db8:0:1::1")),
            8
        );
    }

    #[test]
    fn what_is_given_back_can_be_taken_and_nothing_is_left_behind() {
        let mut sources = Sources::new(Some(Limits::per_source(4, 8, 2)));
        let mut pool = Pool::of(8, &sources);
        let hosts: Vec<Source> = (1..9)
            .map(|last| source(&format!("2001:db8:0:{last}::1")))
            .collect();
        for _ in 0..3 {
            let take = |host: &Source| {
                sources
                    .count_usage(*host, 1)
                    .then(|| (*host, pool.take_places(&mut sources, *host, 1).unwrap()))
            };
            let taken: Vec<_> = hosts.iter().filter_map(take).collect();
            assert_eq!(taken.len(), 8);
            assert!(
                pool.take_places(&mut sources, source("192.0.2.1"), 1)
                    .is_none()
            );
            for (host, taken) in taken {
                pool.give_back(&mut sources, host, taken);
                sources.undo_count(host, 1);
            }
            assert_eq!(sources.len(), 0);
        }
    }

    #[test]
    fn nothing_is_kept_where_nobody_is_counted() {
        let mut sources = Sources::new(None);
        let mut pool = Pool::of(40, &sources);
        assert_eq!(taken_by(&mut pool, &mut sources, source("192.0.2.1")), 40);
        assert_eq!(sources.len(), 0);
    }
}
