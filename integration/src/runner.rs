//! Runs async tests against one shared fixture, which starts when the first test needs it.
//!
//! A machine that cannot run the real parts reports the tests as ignored, with the reason. With
//! `KEYFERRY_REQUIRE_REAL=1`, that is a failure. `--list` starts nothing.

mod outcome;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{self, Handle};
use tokio::sync::{OnceCell, RwLock};

pub use outcome::{NotStarted, TestError, TestResult};

use crate::fleet::Fleet;
use outcome::{missing, test_outcome};

/// The limit for a test that hangs. On a busy machine the longest tests take two minutes.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// The number of threads that run tests.
const WORKERS: usize = 16;

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

/// Whether a test may run at the same time as others.
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

/// Trials that are ready to run, and the fixtures that they share.
type Ready = (Vec<Trial>, Vec<Box<dyn Any>>);
type Guest = Box<dyn FnOnce(&Handle, Duration) -> Ready>;

/// Tests that share one fixture.
pub struct Suite<T> {
    start: Start<T>,
    tests: Vec<LiveTest<T>>,
    guests: Vec<Guest>,
    at_once: Option<usize>,
    limit: Duration,
}

impl<T> std::fmt::Debug for Suite<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        f.debug_struct("Suite").field("tests", &names).finish()
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
            at_once: None,
            limit: TEST_LIMIT,
        }
    }

    /// Sets the number of concurrent tests, whatever the number of cores, for tests that mostly
    /// wait. `--test-threads` overrides it.
    pub fn at_once(mut self, tests: usize) -> Self {
        self.at_once = Some(tests);
        self
    }

    /// Sets the time limit of a test, for tests that wait longer than the default limit.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds the tests of another suite, with its own fixture and the limits of this one, for suites
    /// that mostly wait. They run first and share the threads.
    pub fn beside<U: Fixture>(mut self, other: Suite<U>) -> Self {
        self.guests.push(Box::new(move |runtime, limit| {
            other.limit(limit).ready(runtime)
        }));
        self
    }

    /// Adds a test that may run beside others, and therefore uses its own names.
    pub fn test<F>(self, name: &str, body: impl FnOnce(Arc<T>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        self.with(name, Company::Shared, body)
    }

    /// Adds a test that runs alone, because it stops or changes what others use. It must restore
    /// everything.
    pub fn test_alone<F>(self, name: &str, body: impl FnOnce(Arc<T>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        self.with(name, Company::Alone, body)
    }

    /// Runs the tests that the command line selects. The fixture has ended when this returns.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(self.at_once);
        // More threads than processors: a worker may block until a process ends, and the proxies
        // must keep running.
        let runtime = match runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("start a tokio runtime: {error}");
                return ExitCode::FAILURE;
            }
        };
        let (trials, stages) = self.ready(runtime.handle());
        let code = libtest_mimic::run(&arguments, trials).exit_code();
        let _inside = runtime.enter();
        drop(stages);
        code
    }

    fn ready(self, runtime: &Handle) -> Ready {
        let limit = self.limit;
        let stage = Arc::new(Stage {
            start: self.start,
            limit,
            fixture: OnceCell::new(),
            company: RwLock::new(()),
            runtime: runtime.clone(),
        });
        let (mut trials, mut stages) = (Vec::new(), Vec::<Box<dyn Any>>::new());
        for guest in self.guests {
            let (further, its_stages) = guest(runtime, limit);
            trials.extend(further);
            stages.extend(its_stages);
        }
        trials.extend(
            self.tests
                .into_iter()
                .map(|test| trial(test, Arc::clone(&stage))),
        );
        stages.push(Box::new(stage));
        (trials, stages)
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

/// The state that the trials of one suite share.
struct Stage<T> {
    start: Start<T>,
    fixture: OnceCell<Result<Arc<T>, NotStarted>>,
    company: RwLock<()>,
    runtime: Handle,
    limit: Duration,
}

impl<T: Fixture> Stage<T> {
    async fn fixture(&self) -> &Result<Arc<T>, NotStarted> {
        self.fixture
            .get_or_init(|| async {
                let started = Instant::now();
                let fixture = (self.start)().await.map(Arc::new);
                if fixture.is_ok() {
                    eprintln!("fixture up in {:.1} s", started.elapsed().as_secs_f32());
                }
                fixture
            })
            .await
    }

    async fn perform(&self, test: LiveTest<T>) -> Result<Completion, Failed> {
        let fixture = match self.fixture().await {
            Ok(fixture) => Arc::clone(fixture),
            Err(NotStarted::Missing(reason)) => return missing(reason),
            Err(NotStarted::Failed(error)) => {
                return Err(format!("the fixture did not start: {error}").into());
            }
        };
        let (_shared, _alone);
        match test.company {
            Company::Shared => _shared = self.company.read().await,
            Company::Alone => _alone = self.company.write().await,
        }
        let started = Instant::now();
        let mut running = tokio::spawn((test.body)(Arc::clone(&fixture)));
        let ended = tokio::time::timeout(self.limit, &mut running).await;
        eprintln!(
            "{} took {:.0} s",
            test.name,
            started.elapsed().as_secs_f32()
        );
        if ended.is_err() {
            running.abort();
        }
        test_outcome(ended, self.limit).map_err(|why| {
            let logs = fixture.log_tails();
            Failed::from(format!("{why}\n{logs}"))
        })
    }
}

fn trial<T: Fixture>(test: LiveTest<T>, stage: Arc<Stage<T>>) -> Trial {
    Trial::ignorable_test(test.name.clone(), move || {
        stage.runtime.clone().block_on(stage.perform(test))
    })
}
