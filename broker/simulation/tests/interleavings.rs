//! Single-flight and the cache, in every order of what callers and the source do.
//!
//! The real types run on one thread; a script says which caller starts, which hangs up, and when a
//! call ends or panics. This covers every order of their steps, not every order of the
//! processor's: each step holds one lock for its whole length, and none is held across an await.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_immediate;
use keyferry_platform::single_flight::{SharedCallLost, SingleFlight};
use keyferry_platform::stale_cache::{FetchError, Lifetimes, Lookup, StaleCache};
use keyferry_platform::testing::FakeClock;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Calls `run` with every script of `length` steps.
fn every_script<T: Copy>(steps: &[T], length: usize, run: &mut impl FnMut(&[T])) {
    fn extend<T: Copy>(
        script: &mut Vec<T>,
        steps: &[T],
        length: usize,
        run: &mut impl FnMut(&[T]),
    ) {
        if script.len() == length {
            return run(script);
        }
        for step in steps {
            script.push(*step);
            extend(script, steps, length, run);
            script.pop();
        }
    }
    extend(&mut Vec::new(), steps, length, run);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// Lets every spawned task run until it waits.
async fn settle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

mod single_flight {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        /// The next caller asks.
        Start,
        /// The oldest caller that waits hangs up.
        HangUp,
        /// The oldest call ends.
        End,
        /// The oldest call panics.
        Panic,
    }

    /// The calls that were started, and how each ends.
    #[derive(Default)]
    struct Source {
        started: usize,
        in_progress: VecDeque<(usize, oneshot::Sender<bool>)>,
    }

    type Answer = Result<usize, SharedCallLost>;

    struct Caller {
        /// How many calls had ended when it asked.
        ended_before: usize,
        wait: Pin<Box<dyn Future<Output = Answer>>>,
    }

    async fn call(source: Arc<Mutex<Source>>) -> usize {
        let (sender, end) = oneshot::channel();
        let number = {
            let mut source = source.lock();
            source.started += 1;
            let number = source.started;
            source.in_progress.push_back((number, sender));
            number
        };
        if !end.await.unwrap() {
            // A panic without its message: there are thousands.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        number
    }

    /// Every caller gets the answer of a call that had not ended when it asked, and there is never
    /// more than one call.
    async fn run_script(script: &[Step]) {
        let shared: SingleFlight<(), usize> = SingleFlight::default();
        let source = Arc::new(Mutex::new(Source::default()));
        let (mut callers, mut ended): (Vec<Caller>, usize) = (Vec::new(), 0);
        for step in script.iter().chain(&[Step::End, Step::End]) {
            match step {
                Step::Start => {
                    let (shared, source) = (shared.clone(), Arc::clone(&source));
                    callers.push(Caller {
                        ended_before: ended,
                        wait: Box::pin(async move { shared.join((), || call(source)).await }),
                    });
                }
                Step::HangUp if !callers.is_empty() => drop(callers.remove(0)),
                Step::End | Step::Panic => {
                    let oldest = source.lock().in_progress.pop_front();
                    if let Some((number, end)) = oldest {
                        ended = number;
                        end.send(*step == Step::End).unwrap();
                    }
                }
                Step::HangUp => {}
            }
            let mut waiting = Vec::new();
            for round in 0..2 {
                for mut caller in std::mem::take(&mut callers) {
                    match poll_immediate(caller.wait.as_mut()).await {
                        Some(Ok(number)) => assert!(number > caller.ended_before, "{script:?}"),
                        Some(Err(SharedCallLost)) => {
                            assert!(script.contains(&Step::Panic), "{script:?}");
                        }
                        None => waiting.push(caller),
                    }
                }
                settle().await;
                if round == 0 {
                    callers = std::mem::take(&mut waiting);
                }
            }
            callers = waiting;
            assert!(
                source.lock().in_progress.len() <= 1,
                "two calls: {script:?}"
            );
        }
        assert!(callers.is_empty(), "somebody waits for ever: {script:?}");
        assert!(shared.is_empty(), "{script:?}");
    }

    #[test]
    fn every_order_gives_each_caller_a_call_of_its_time() {
        let runtime = runtime();
        let mut scripts = 0;
        let steps = [Step::Start, Step::HangUp, Step::End, Step::Panic];
        every_script(&steps, 6, &mut |script| {
            scripts += 1;
            runtime.block_on(run_script(script));
        });
        assert_eq!(scripts, 4_usize.pow(6));
    }
}

mod cache {
    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        fresh: Duration::from_secs(10),
        stale: Duration::from_secs(30),
        refused: Duration::from_secs(5),
    };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        /// The next caller asks.
        Ask,
        /// The source accepts, refuses or fails, if it was asked.
        Accept,
        Refuse,
        Fail,
        /// Time passes: what was fresh is stale after two of these, and gone after five.
        Wait,
    }

    type Cache = StaleCache<(), u32, &'static str, &'static str>;
    type Answer = Result<u32, FetchError<&'static str, &'static str>>;

    /// What the source said last, and how long ago.
    #[derive(Clone, Copy)]
    enum Said {
        Value(u32),
        Refusal,
    }

    fn expected(said: Option<(Said, u32)>) -> Lookup<u32, &'static str> {
        match said {
            Some((Said::Value(value), 0..10)) => Lookup::Fresh(value),
            Some((Said::Value(value), 10..30)) => Lookup::Stale(value),
            Some((Said::Refusal, 0..5)) => Lookup::Refused("no"),
            _ => Lookup::Unknown,
        }
    }

    async fn fetch(
        cache: Cache,
        clock: Arc<FakeClock>,
        answer: oneshot::Receiver<Answer>,
    ) -> Answer {
        use keyferry_platform::clock::Clock;
        let answer = answer.await.unwrap();
        match &answer {
            Ok(value) => cache.accept((), *value, clock.now(), None),
            Err(FetchError::Refused(refusal)) => cache.refuse((), refusal, clock.now()),
            Err(_) => {}
        }
        answer
    }

    async fn run_script(script: &[Step]) {
        let clock = FakeClock::start();
        let cache = Cache::new(LIFETIMES, 10, Arc::<FakeClock>::clone(&clock) as _);
        let asked: Arc<Mutex<VecDeque<oneshot::Sender<Answer>>>> = Arc::default();
        let mut waits: Vec<Pin<Box<dyn Future<Output = Answer>>>> = Vec::new();
        let (mut said, mut count) = (None, 0);
        for step in script {
            count += 1;
            let answer = match step {
                Step::Ask => {
                    let (cache, clock, asked) =
                        (cache.clone(), Arc::clone(&clock), Arc::clone(&asked));
                    waits.push(Box::pin(async move {
                        let call = || {
                            let (sender, answer) = oneshot::channel();
                            asked.lock().push_back(sender);
                            fetch(cache.clone(), clock, answer)
                        };
                        cache.fetch(&(), call).await
                    }));
                    None
                }
                Step::Accept => Some(Ok(count)),
                Step::Refuse => Some(Err(FetchError::Refused("no"))),
                Step::Fail => Some(Err(FetchError::Failed("away"))),
                Step::Wait => {
                    clock.advance(Duration::from_secs(6));
                    said = said.map(|(what, age)| (what, age + 6));
                    None
                }
            };
            if let Some(answer) = answer
                && let Some(sender) = asked.lock().pop_front()
            {
                said = match &answer {
                    Ok(value) => Some((Said::Value(*value), 0)),
                    Err(FetchError::Refused(_)) => Some((Said::Refusal, 0)),
                    Err(_) => said,
                };
                sender.send(answer).unwrap();
            }
            settle().await;
            for mut wait in std::mem::take(&mut waits) {
                if poll_immediate(wait.as_mut()).await.is_none() {
                    waits.push(wait);
                }
            }
            settle().await;
            asked.lock().retain(|sender| !sender.is_closed());
            assert_eq!(cache.lookup(&()), expected(said), "{script:?}");
            assert!(asked.lock().len() <= 1, "asked twice at once: {script:?}");
        }
    }

    #[test]
    fn every_order_serves_what_the_source_said_last() {
        let runtime = runtime();
        let steps = [
            Step::Ask,
            Step::Accept,
            Step::Refuse,
            Step::Fail,
            Step::Wait,
        ];
        every_script(&steps, 5, &mut |script| {
            runtime.block_on(run_script(script))
        });
    }
}
