//! Memory of the requests under way, limited in all and per source.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::shares::{Limits, Pool, PoolUsage, Sources};
use crate::source::Source;

/// Limit for all requests together, in KiB. Ten thousand callers at once take 60 MiB.
const MAX_TOTAL_KIB: u32 = 96 * 1024;
/// Limit for the requests of one source, in KiB.
const OF_SOURCE: u32 = MAX_TOTAL_KIB / 4;
/// A source that uses at most this much, which is one request of the greatest size, may use the
/// reserved part. In KiB.
const SMALL_SOURCE_KIB: u32 = 68;

/// The memory budget for the requests of one listener.
pub struct Bodies(Mutex<BodyBudget>);

struct BodyBudget {
    sources: Sources,
    pool: Pool,
}

/// The memory of one request, which is returned on drop.
pub struct Share {
    bodies: Arc<Bodies>,
    source: Source,
    taken: PoolUsage,
}

/// The memory is exhausted, in all or for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Bodies {
    /// Creates the full budget. `counts_sources` is off where all clients come from one address.
    pub fn new(counts_sources: bool) -> Arc<Self> {
        let sources = Sources::new(
            counts_sources.then(|| Limits::per_source(OF_SOURCE, MAX_TOTAL_KIB, SMALL_SOURCE_KIB)),
        );
        let pool = Pool::of(MAX_TOTAL_KIB, &sources);
        Arc::new(Self(Mutex::new(BodyBudget { sources, pool })))
    }

    /// Creates an empty share for a source.
    pub fn new_share(self: &Arc<Self>, source: Source) -> Share {
        Share {
            bodies: Arc::clone(self),
            source,
            taken: PoolUsage::default(),
        }
    }

    fn lock_budget(&self) -> MutexGuard<'_, BodyBudget> {
        self.0.lock()
    }
}

impl Share {
    /// Takes `kib` more, or nothing if there is no room for all of it.
    ///
    /// # Errors
    /// [`Full`].
    pub fn grow_by(&mut self, kib: u32) -> Result<(), Full> {
        if kib == 0 {
            return Ok(());
        }
        let BodyBudget { sources, pool } = &mut *self.bodies.lock_budget();
        if !sources.count_usage(self.source, kib) {
            return Err(Full);
        }
        match pool.take_places(sources, self.source, kib) {
            Some(taken) => {
                self.taken = self.taken.plus_later(taken);
                Ok(())
            }
            None => {
                sources.undo_count(self.source, kib);
                Err(Full)
            }
        }
    }

    /// The size of the share, in KiB.
    #[cfg(any(test, feature = "testing"))]
    pub fn kib(&self) -> u32 {
        self.taken.all()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.taken == PoolUsage::default() {
            return;
        }
        let BodyBudget { sources, pool } = &mut *self.bodies.lock_budget();
        pool.give_back(sources, self.source, self.taken);
        sources.undo_count(self.source, self.taken.all());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::{Bodies, Full, MAX_TOTAL_KIB, OF_SOURCE, Share};
    use crate::source::Source;

    fn source(last: u8) -> Source {
        Source::of_address([192, 0, 2, last].into())
    }

    /// As many requests of the greatest size as a source gets.
    fn all_of(bodies: &Arc<Bodies>, source: Source) -> Vec<Share> {
        let greatest = || {
            let mut share = bodies.new_share(source);
            share.grow_by(64).ok().map(|()| share)
        };
        std::iter::from_fn(greatest).collect()
    }

    #[test]
    fn no_source_takes_everything_and_few_sources_do_not_either() {
        let bodies = Bodies::new(true);
        let held: Vec<_> = (0..20).map(|last| all_of(&bodies, source(last))).collect();
        assert_eq!(held[0].len(), OF_SOURCE as usize / 64);
        let all: u32 = held.iter().flatten().map(Share::kib).sum();
        assert!(
            (MAX_TOTAL_KIB / 4 * 3..MAX_TOTAL_KIB).contains(&all),
            "{all} KiB"
        );
        let mut other = bodies.new_share(source(200));
        assert_eq!(other.grow_by(64), Ok(()));
        assert_eq!(
            (other.grow_by(64), other.kib()),
            (Err(Full), 64),
            "what it has, it keeps"
        );
        drop((held, other));
        assert_eq!(bodies.lock_budget().sources.len(), 0);
        assert_eq!(all_of(&bodies, source(1)).len(), OF_SOURCE as usize / 64);
    }

    #[test]
    fn behind_a_proxy_all_clients_have_one_bound() {
        let bodies = Bodies::new(false);
        assert_eq!(
            all_of(&bodies, source(1)).len(),
            MAX_TOTAL_KIB as usize / 64
        );
    }
}
