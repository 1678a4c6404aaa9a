//! Gives work that recurses a stack of its own.

use std::thread;

/// The highest tree whose walks fit the stack of any thread.
pub(crate) const MAX_PLAIN_HEIGHT: u16 = 90;

/// The size of the own stack, in bytes. A walk over the highest tree needs a fraction of it; the
/// system gives memory only to what is used.
const STACK_BYTES: usize = 128 << 20;

/// Runs work on a stack of its own if it recurses deep. `None` if there is no thread for it.
pub(crate) fn run_on_stack<T: Send>(deep: bool, work: impl FnOnce() -> T + Send) -> Option<T> {
    if !deep {
        return Some(work());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work) {
            Ok(running) => running.join().ok(),
            Err(_) => None,
        }
    })
}
