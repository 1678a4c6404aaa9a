//! Runs async tests against real control planes, as one test executable.
//!
//! A [`Suite`] is a list of tests with one fixture, which starts when the first test needs it and
//! ends with the last. [`Run`] runs several suites at once, in lanes: the tests mostly wait, so two
//! cores serve several fixtures.
//!
//! A machine that cannot run the real parts reports the tests as ignored, with the reason. With
//! `KEYFERRY_REQUIRE_REAL=1`, that is a failure. `--list` starts nothing.

mod lanes;
mod outcome;
mod prepare;
mod run;
mod stage;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;

pub use outcome::{NotStarted, TestError, TestResult};
pub use prepare::Needed;
pub use run::Run;

use crate::fleet::Fleet;
use lanes::Lane;
use prepare::control_planes;
use stage::{Stage, trial};

/// The limit for a test that hangs. On a busy machine the longest tests take two minutes.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// The number of concurrent tests of a suite that sets no other.
const TESTS_AT_ONCE: usize = 4;

/// The environment that tests share.
pub trait Fixture: Send + Sync + 'static {
    /// The end of every log, which is printed with a failed test.
    fn log_tails(&self) -> String;
}

impl Fixture for Fleet {
    fn log_tails(&self) -> String {
        Self::log_tails(self)
    }
}

type BoxedFuture<R> = Pin<Box<dyn Future<Output = R> + Send>>;
type Start<T> = Box<dyn Fn() -> BoxedFuture<Result<T, NotStarted>> + Send + Sync>;
type Body<T> = Box<dyn FnOnce(Arc<T>) -> BoxedFuture<TestResult> + Send>;
type Guest = Box<dyn FnOnce(&Arc<Lane>, Duration) -> Vec<Trial>>;

/// Whether a test may run at the same time as others of its suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Shared,
    Alone,
}

struct LiveTest<T> {
    name: String,
    company: Company,
    body: Body<T>,
}

/// Tests that share one fixture.
pub struct Suite<T> {
    start: Start<T>,
    tests: Vec<LiveTest<T>>,
    guests: Vec<Guest>,
    limit: Duration,
    traits: Traits,
}

/// How a suite runs beside others.
#[derive(Debug, Clone)]
struct Traits {
    concurrent_tests: usize,
    exclusive: bool,
    only_on_request: bool,
    needed: Vec<Needed>,
}

/// Makes the tests of a suite for the lane that runs them.
type MakeTrials = Box<dyn FnOnce(&Arc<Lane>) -> Vec<Trial>>;

/// A [`Suite`] without the type of its fixture.
pub struct BoxedSuite {
    traits: Traits,
    trials: MakeTrials,
}

impl<T> std::fmt::Debug for Suite<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        f.debug_struct("Suite").field("tests", &names).finish()
    }
}

impl std::fmt::Debug for BoxedSuite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoxedSuite")
            .field("traits", &self.traits)
            .finish_non_exhaustive()
    }
}

impl<T: Fixture> Suite<T> {
    /// A suite whose fixture the function starts.
    pub fn new<F>(start: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, NotStarted>> + Send + 'static,
    {
        Self {
            start: Box::new(move || Box::pin(start())),
            tests: Vec::new(),
            guests: Vec::new(),
            limit: TEST_LIMIT,
            traits: Traits {
                concurrent_tests: TESTS_AT_ONCE,
                exclusive: false,
                only_on_request: false,
                needed: control_planes(),
            },
        }
    }

    /// Sets the number of concurrent tests, which is 4 otherwise. `--test-threads` overrides it.
    pub fn concurrent_tests(mut self, tests: usize) -> Self {
        self.traits.concurrent_tests = tests;
        self
    }

    /// Sets the time limit of a test, for tests that wait longer than the default limit.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Names parts that the suite needs beside the control planes. They are built before it takes a
    /// lane, because a build takes longer than a test may.
    pub fn needs(mut self, needed: impl IntoIterator<Item = Needed>) -> Self {
        self.traits.needed.extend(needed);
        self
    }

    /// Takes the control planes from what the suite needs, for a suite that starts none.
    pub fn without_control_planes(mut self) -> Self {
        self.traits.needed.clear();
        self
    }

    /// Runs the suite alone, after all others, for tests that measure time.
    pub fn exclusive(mut self) -> Self {
        self.traits.exclusive = true;
        self
    }

    /// Runs the suite only with `--ignored` or `--include-ignored`, for tests that take long or
    /// change the machine while they run.
    pub fn only_on_request(mut self) -> Self {
        self.traits.only_on_request = true;
        self
    }

    /// Adds the tests of another suite, with its own fixture and the limits of this one, for suites
    /// that mostly wait. They run first, in the same lane.
    pub fn beside<U: Fixture>(mut self, other: Suite<U>) -> Self {
        self.guests
            .push(Box::new(move |lane, limit| other.limit(limit).trials(lane)));
        self
    }

    /// Adds a test that may run beside others, and therefore uses its own names.
    pub fn test<F>(self, name: &str, body: impl FnOnce(Arc<T>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        self.with(name, Company::Shared, body)
    }

    /// Adds a test that runs without the others of its suite, because it stops or changes what they
    /// use. It must restore everything.
    pub fn test_alone<F>(self, name: &str, body: impl FnOnce(Arc<T>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        self.with(name, Company::Alone, body)
    }

    /// The suite without the type of its fixture, for [`Run::suite`].
    pub fn boxed(self) -> BoxedSuite {
        BoxedSuite {
            traits: self.traits.clone(),
            trials: Box::new(move |lane| self.trials(lane)),
        }
    }

    fn trials(self, lane: &Arc<Lane>) -> Vec<Trial> {
        let limit = self.limit;
        let mut trials: Vec<Trial> = self
            .guests
            .into_iter()
            .flat_map(|guest| guest(lane, limit))
            .collect();
        let stage = Arc::new(Stage::new(self.start, limit, Arc::clone(lane)));
        trials.extend(
            self.tests
                .into_iter()
                .map(|test| trial(test, Arc::clone(&stage))),
        );
        trials
    }

    fn with<F>(
        mut self,
        name: &str,
        company: Company,
        body: impl FnOnce(Arc<T>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        self.tests.push(LiveTest {
            name: name.to_owned(),
            company,
            body: Box::new(move |fixture| Box::pin(body(fixture))),
        });
        self
    }
}
