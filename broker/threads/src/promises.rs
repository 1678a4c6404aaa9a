//! What holds whichever thread goes on. Each function returns in how many of the schedules it did
//! not hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::Config;
use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

pub mod cache;
pub mod calls;
pub mod memory;
pub mod tokens;

/// How many changes of thread the second half of the schedules has at chosen places.
const PREEMPTIONS: usize = 3;
/// The stack of a thread; what shuttle gives it is too little for an HMAC in a debug build.
const STACK_BYTES: usize = 1 << 20;

/// Runs `holds` in this many schedules, half of them random in each step and half with few changes of
/// thread, and counts those in which it is false.
fn count_broken(schedules: usize, holds: impl Fn() -> bool + Send + Sync + 'static) -> usize {
    let broken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&broken);
    let run = Arc::new(move || {
        if !holds() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (random, few) = (Arc::clone(&run), run);
    let half = schedules.div_ceil(2);
    // The seed is fixed, so that a run that fails does so again.
    let random_schedules = RandomScheduler::new_from_seed(1, half);
    Runner::new(random_schedules, config()).run(move || random());
    let schedules_of_few = PctScheduler::new_from_seed(1, PREEMPTIONS, half);
    Runner::new(schedules_of_few, config()).run(move || few());
    broken.load(Ordering::Relaxed)
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config
}
