//! The time that a load measures: one window for all of its threads, opened once every one of them
//! is connected.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use super::process;
use crate::Outcome;

/// Said once the measured time begins, and once it ends.
pub const BEGINS: &str = "begins";
/// See [`BEGINS`].
pub const ENDS: &str = "ends";

/// From when to when answers count.
#[derive(Clone, Copy)]
pub struct Window {
    /// Nothing before counts.
    pub from: Instant,
    /// Nothing answered after counts.
    pub until: Instant,
}

/// Where the threads of a load wait for each other.
pub struct Start {
    connected: Barrier,
    window: OnceLock<Window>,
}

impl Start {
    /// For so many threads, and the one that measures.
    pub fn of(threads: usize) -> Self {
        Self {
            connected: Barrier::new(threads + 1),
            window: OnceLock::new(),
        }
    }

    /// Called by a thread that is connected, or could not be: waits until the window is known.
    pub fn ready(&self) -> Outcome<Window> {
        self.connected.wait();
        self.connected.wait();
        Ok(*self.window.get().ok_or("there is no window")?)
    }

    /// Opens the window `warm_up` after the last thread is ready, and says when it begins and ends.
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
