//! Shared calls: at most one of a key is under way, everybody gets an answer, and none is left.

use std::sync::Arc;

use futures::future::join_all;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::sync::atomic::{AtomicUsize, Ordering};

use super::count_broken;
use crate::single_flight::SingleFlight;

const CALLERS: usize = 3;

/// What happened in one schedule.
#[derive(Default)]
struct History {
    begun: AtomicUsize,
    ended: AtomicUsize,
    overlapping: AtomicUsize,
}

impl History {
    async fn call(self: Arc<Self>) {
        let begun = self.begun.fetch_add(1, Ordering::SeqCst);
        if begun != self.ended.load(Ordering::SeqCst) {
            self.overlapping.fetch_add(1, Ordering::SeqCst);
        }
        yield_now().await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// Callers join the call that is under way.
pub fn joined(schedules: usize) -> usize {
    one_call_at_a_time(schedules, Callers::Join)
}

/// As [`joined`], and the first caller hangs up at any time.
pub fn joined_while_the_first_hangs_up(schedules: usize) -> usize {
    one_call_at_a_time(schedules, Callers::JoinAndHangUp)
}

/// The mistake: each caller makes its own call.
pub fn not_joined(schedules: usize) -> usize {
    one_call_at_a_time(schedules, Callers::Call)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Callers {
    Join,
    JoinAndHangUp,
    Call,
}

fn one_call_at_a_time(schedules: usize, callers: Callers) -> usize {
    count_broken(schedules, move || {
        let (shared, history) = (SingleFlight::default(), Arc::<History>::default());
        let ask = || {
            let (shared, history) = (shared.clone(), Arc::clone(&history));
            spawn(async move {
                let call = || Arc::clone(&history).call();
                if callers == Callers::Call {
                    call().await;
                    return Ok(());
                }
                shared.join("key", call).await
            })
        };
        let asked: Vec<_> = (0..CALLERS).map(|_| ask()).collect();
        if callers == Callers::JoinAndHangUp {
            asked.iter().take(1).for_each(|first| first.abort());
        }
        let all_hold = block_on(async {
            let answers = join_all(asked).await;
            let mut answers = answers.into_iter();
            if callers == Callers::JoinAndHangUp {
                answers.next();
            }
            answers.all(|answer| answer.is_ok_and(|answer| answer.is_ok()))
        });
        all_hold && history.overlapping.load(Ordering::SeqCst) == 0 && ends(&shared)
    })
}

/// Waits for the last call, which may outlive the callers.
fn ends(shared: &SingleFlight<&'static str, ()>) -> bool {
    while !shared.is_empty() {
        shuttle::thread::yield_now();
    }
    true
}
