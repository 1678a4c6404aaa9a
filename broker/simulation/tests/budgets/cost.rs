//! What a measurement cost, counted by the allocator of the whole process.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static ALONE: Mutex<()> = Mutex::new(());

pub(crate) const KIB: usize = 1024;

/// What all objects or requests of a measurement cost together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// The most memory at any moment, in bytes.
    pub(crate) peak: usize,
    /// The memory that is still taken at the end, in bytes.
    pub(crate) kept: usize,
    /// Requests to the hub.
    pub(crate) hub_calls: usize,
    /// Bytes of the audit log.
    pub(crate) audit_bytes: usize,
}

impl Cost {
    /// Both together, at the same time.
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            peak: self.peak + other.peak,
            kept: self.kept + other.kept,
            hub_calls: self.hub_calls + other.hub_calls,
            audit_bytes: self.audit_bytes + other.audit_bytes,
        }
    }

    /// The members, with their names and the amounts that are too small to compare.
    fn members(&self) -> [(&'static str, usize, usize); 4] {
        [
            ("peak", self.peak, 256 * KIB),
            ("kept", self.kept, 16 * KIB),
            ("hub calls", self.hub_calls, 0),
            ("audit bytes", self.audit_bytes, 0),
        ]
    }

    /// How a measured cost exceeds this bound, or shows that the bound says too little.
    pub(crate) fn faults(&self, measured: &Self) -> impl Iterator<Item = String> {
        let pairs = self.members().into_iter().zip(measured.members());
        pairs.filter_map(|((name, bound, slack), (_, measured, _))| {
            let is_lax = bound > (measured * 4).max(slack);
            (measured > bound || is_lax).then(|| format!("{name} {measured}, the bound is {bound}"))
        })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "peak {} KiB, kept {} KiB, hub calls {}, audit {} B",
            self.peak / KIB,
            self.kept / KIB,
            self.hub_calls,
            self.audit_bytes
        )
    }
}

/// Waits until no other test of this process allocates.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// The memory of one measurement, from now on.
pub(crate) struct Memory {
    before: usize,
}

impl Memory {
    pub(crate) fn measure() -> Self {
        ALLOCATOR.reset_peak_usage();
        Self {
            before: ALLOCATOR.current_usage(),
        }
    }

    /// Ends the measurement. What is to count as kept must still be there, and nothing else.
    pub(crate) fn cost(&self) -> Cost {
        Cost {
            peak: ALLOCATOR.peak_usage().saturating_sub(self.before),
            kept: ALLOCATOR.current_usage().saturating_sub(self.before),
            ..Cost::default()
        }
    }
}
