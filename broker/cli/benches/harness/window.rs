//! The measured time of a load: one window for all of its threads, which opens once all of them are
//! connected.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use super::{Outcome, process};

/// The line that is printed when the measured time begins.
pub const BEGINS: &str = "begins";
/// The line that is printed when the measured time ends.
pub const ENDS: &str = "ends";

/// The time in which responses count.
#[derive(Clone, Copy)]
pub struct Window {
    /// Nothing before this time counts.
    pub from: Instant,
    /// No response after this time counts.
    pub until: Instant,
}

/// The point where the threads of a load wait for each other.
pub struct Start {
    connected: Barrier,
    window: OnceLock<Window>,
}

impl Start {
    /// A start for this many threads and the one that measures.
    pub fn of(threads: usize) -> Self {
        Self {
            connected: Barrier::new(threads + 1),
            window: OnceLock::new(),
        }
    }

    /// Waits until the window is known. Each thread calls it once it is connected, or has failed to
    /// connect.
    pub fn ready(&self) -> Outcome<Window> {
        self.connected.wait();
        self.connected.wait();
        Ok(*self.window.get().ok_or("there is no window")?)
    }

    /// Opens the window `warm_up` after the last thread is ready, and prints when it begins and
    /// ends.
    pub fn measure(&self, warm_up: Duration, duration: Duration) -> Outcome<()> {
        self.connected.wait();
        let from = process::now() + warm_up;
        let window = *self.window.get_or_init(|| Window {
            from,
            until: from + duration,
        });
        self.connected.wait();
        std::thread::sleep(window.from.saturating_duration_since(process::now()));
        process::say(&format!("{BEGINS}\n"))?;
        std::thread::sleep(window.until.saturating_duration_since(process::now()));
        process::say(&format!("{ENDS}\n"))
    }
}
