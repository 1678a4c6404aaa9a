//! Runs the suites of a test executable in lanes.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Trial};
use tokio::runtime::{self, Runtime};

use super::BoxedSuite;
use super::lanes::{Lane, Lanes};
use super::prepare::{Needed, PartBuilder};
use crate::keyferry_process::KeyferryBinary;
use crate::parts::{Minor, Parts};
use crate::promises::{Promises, RegisteredSuite, folders_of_parts};

/// The number of suites that run at once. `KEYFERRY_LANES` overrides it.
const LANES: usize = 4;

/// More threads than processors: a worker may block until a process ends, and the proxies must keep
/// running.
const WORKERS: usize = 48;

/// The suites of a test executable.
#[derive(Debug, Default)]
pub struct Run {
    suites: Vec<(&'static str, BoxedSuite)>,
    promises: Option<&'static str>,
    /// The suites that are left out.
    skipped: Vec<String>,
}

impl Run {
    /// A run without suites.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a suite, whose tests are named `name::test`. Suites start in the order in which they
    /// are added, so the longest come first.
    pub fn suite(mut self, name: &'static str, suite: BoxedSuite) -> Self {
        self.suites.push((name, suite));
        self
    }

    /// Adds the test `PROMISES_TEST`, which compares this page with the suites.
    pub fn promises(mut self, page: &'static str) -> Self {
        self.promises = Some(page);
        self
    }

    /// Runs the tests that the command line selects, and returns when all fixtures have ended.
    /// `KEYFERRY_SKIP_SUITES` names suites to leave out, separated by spaces.
    pub fn main(self) -> ExitCode {
        raise_file_limit();
        let skipped = std::env::var("KEYFERRY_SKIP_SUITES").unwrap_or_default();
        let run = Minor::named_newest().and_then(|_| self.without(&skipped));
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build();
        let ended = runtime
            .map_err(|error| format!("start a tokio runtime: {error}"))
            .and_then(|runtime| run.run(Arguments::from_args(), lanes(), &runtime));
        match ended {
            Ok(conclusion) => conclusion.exit_code(),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Leaves out the named suites. An unknown name is an error, because the suite that it means
    /// would run.
    fn without(mut self, names: &str) -> Result<Self, String> {
        for name in names.split_whitespace() {
            let before = self.suites.len();
            self.suites.retain(|(suite, _)| *suite != name);
            if self.suites.len() == before {
                return Err(format!("KEYFERRY_SKIP_SUITES names no suite: {name}"));
            }
            self.skipped.push(name.to_owned());
            eprintln!("suite {name} is left out by KEYFERRY_SKIP_SUITES");
        }
        Ok(self)
    }

    fn run(
        mut self,
        mut arguments: Arguments,
        lanes: usize,
        runtime: &Runtime,
    ) -> Result<Conclusion, String> {
        let parts = PartBuilder::new(Parts::from_environment());
        let lanes = Lanes::new(lanes, runtime.handle().clone(), parts);
        // With one thread, tests run in this order, and exclusive suites wait for the others.
        self.suites.sort_by_key(|(_, suite)| suite.traits.exclusive);
        let (mut trials, mut selected) = (Vec::<Trial>::new(), Vec::<Arc<Lane>>::new());
        let mut registered = Vec::new();
        for (name, suite) in self.suites {
            let mut traits = suite.traits;
            traits.concurrent_tests = arguments.test_threads.unwrap_or(traits.concurrent_tests);
            let lane = Lane::new(name, traits, &lanes);
            let of_suite = (suite.trials)(&lane);
            registered.push(register(name, lane.traits().needed.as_slice(), &of_suite));
            if of_suite.iter().any(|trial| runs(&arguments, trial)) {
                selected.push(lane);
            }
            trials.extend(of_suite);
        }
        let promises = self
            .promises
            .map(|page| Promises::read(page, &self.skipped));
        trials.extend(promises.map(|promises| promises_trial(promises, registered)));
        if !arguments.list {
            lanes.select(selected.iter());
            let needed: BTreeSet<Needed> = selected
                .iter()
                .flat_map(|lane| lane.traits().needed.iter().copied())
                .collect();
            runtime.block_on(prepare(&lanes, &needed))?;
            if parts_only() {
                runtime.block_on(lanes.parts.prepare_all(&needed))?;
                // Nothing runs: the conclusion of no tests.
                return Ok(libtest_mimic::run(&arguments, Vec::new()));
            }
        }
        // From here on, each suite belongs to its tests and ends with them.
        drop(selected);
        // Every test has a thread, which waits for its suite.
        if arguments.test_threads != Some(1) {
            arguments.test_threads = Some(trials.len().max(2));
        }
        Ok(libtest_mimic::run(&arguments, trials))
    }
}

/// Builds Keyferry, once and before any test, because a build slows down tests that measure time.
async fn prepare(lanes: &Lanes, needed: &BTreeSet<Needed>) -> Result<(), String> {
    if needed.is_empty() {
        return Ok(());
    }
    KeyferryBinary::build()
        .await
        .map_err(|error| error.to_string())?;
    lanes.parts.survey(needed).await;
    Ok(())
}

/// The test of the page of promises, which starts nothing.
const PROMISES_TEST: &str = "promises::every_test_keeps_a_promise";

fn register(name: &str, needed: &[Needed], trials: &[Trial]) -> RegisteredSuite {
    let of_suite = |trial: &Trial| {
        trial
            .name()
            .strip_prefix(name)?
            .strip_prefix("::")
            .map(str::to_owned)
    };
    RegisteredSuite {
        name: name.to_owned(),
        tests: trials.iter().filter_map(of_suite).collect(),
        folders: needed.iter().map(|part| part.folder()).collect(),
    }
}

fn promises_trial(promises: Promises, suites: Vec<RegisteredSuite>) -> Trial {
    Trial::test(PROMISES_TEST, move || {
        let mut faults = promises.faults_of_tests(&suites);
        // With an older newest minor version, suites need other parts.
        if Minor::newest() == Minor::V1_37 {
            faults.extend(promises.faults_of_parts(&folders_of_parts()?, &suites));
        }
        if faults.is_empty() {
            return Ok(());
        }
        let faults = faults.join("\n");
        Err(format!("integration/promises.md and the suites differ:\n{faults}").into())
    })
}

fn runs(arguments: &Arguments, trial: &Trial) -> bool {
    !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial)
}

/// True if the run only builds the parts that the selected suites need.
fn parts_only() -> bool {
    std::env::var("KEYFERRY_PARTS_ONLY").is_ok_and(|text| text == "1")
}

fn lanes() -> usize {
    std::env::var("KEYFERRY_LANES")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|lanes| *lanes > 0)
        .unwrap_or(LANES)
}

/// Raises the soft limit of open files to the hard limit, as Go and Java programs do. Each claimed
/// port is an open socket, and many systems allow 1,024.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If the system refuses, the tests run with what there is.
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;
    use std::time::Duration;

    use super::super::{Fixture, Suite};
    use super::*;

    type Events = Arc<Mutex<Vec<String>>>;

    /// A fixture that notes its start and its end.
    struct Noted(&'static str, Events);

    impl Fixture for Noted {
        fn log_tails(&self) -> String {
            format!("the log of {}", self.0)
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(format!("{} ends", self.0));
        }
    }

    fn suite(name: &'static str, events: &Events) -> Suite<Noted> {
        let events = Arc::clone(events);
        let mut suite = Suite::new(move || {
            let events = Arc::clone(&events);
            async move {
                events.lock().unwrap().push(format!("{name} starts"));
                Ok(Noted(name, events))
            }
        });
        suite.traits.needed.clear();
        let short = |_| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        };
        suite.test("one", short).test_alone("other", short)
    }

    fn run(arguments: &[&str], lanes: usize, run: Run) -> Conclusion {
        let arguments = ["test", "--quiet"].iter().chain(arguments);
        run.run(
            Arguments::from_iter(arguments),
            lanes,
            &Runtime::new().unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn one_lane_is_one_suite_at_a_time_and_the_exclusive_one_comes_last() {
        for threads in [&[][..], &["--test-threads=1"]] {
            let events = Events::default();
            let suites = Run::new()
                .suite("exclusive", suite("exclusive", &events).exclusive().boxed())
                .suite("first", suite("first", &events).boxed())
                .suite(
                    "request",
                    suite("request", &events).only_on_request().boxed(),
                );
            let ended = run(threads, 1, suites);
            assert_eq!((ended.num_passed, ended.num_ignored), (4, 2));
            assert_eq!(
                *events.lock().unwrap(),
                [
                    "first starts",
                    "first ends",
                    "exclusive starts",
                    "exclusive ends"
                ]
            );
        }
    }

    #[test]
    fn a_filter_starts_only_the_suites_of_its_tests() {
        let events = Events::default();
        let suites = Run::new()
            .suite("first", suite("first", &events).boxed())
            .suite("second", suite("second", &events).exclusive().boxed());
        let ended = run(&["second::other"], 3, suites);
        assert_eq!((ended.num_passed, ended.num_filtered_out), (1, 3));
        assert_eq!(*events.lock().unwrap(), ["second starts", "second ends"]);
    }

    #[test]
    fn a_skipped_suite_does_not_start_and_an_unknown_one_is_an_error() {
        let events = Events::default();
        let suites = || {
            Run::new()
                .suite("first", suite("first", &events).boxed())
                .suite("second", suite("second", &events).boxed())
        };
        let ended = run(&[], 2, suites().without("second").unwrap());
        assert_eq!((ended.num_passed, ended.num_filtered_out), (2, 0));
        assert_eq!(*events.lock().unwrap(), ["first starts", "first ends"]);
        let error = suites().without("second third").unwrap_err();
        assert_eq!(error, "KEYFERRY_SKIP_SUITES names no suite: third");
    }

    #[test]
    fn suites_in_two_lanes_run_at_once() {
        let events = Events::default();
        let met = Arc::new(tokio::sync::Barrier::new(2));
        let meeting = |name| {
            let met = Arc::clone(&met);
            suite(name, &events)
                .test("meets", move |_| async move {
                    met.wait().await;
                    Ok(())
                })
                .limit(Duration::from_secs(20))
                .boxed()
        };
        let suites = Run::new()
            .suite("left", meeting("left"))
            .suite("right", meeting("right"));
        assert_eq!(run(&[], 2, suites).num_failed, 0);
    }
}
