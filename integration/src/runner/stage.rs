//! The fixture of a suite, and how one test runs against it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Failed, Trial};
use tokio::sync::{OnceCell, RwLock};

use super::lanes::Lane;
use super::outcome::{NotStarted, missing, test_outcome};
use super::{Company, Fixture, LiveTest, Start};

/// The state that the trials of one suite share. The fixture ends before the lane is free, so the
/// lane is the last field.
pub(super) struct Stage<T> {
    start: Start<T>,
    fixture: OnceCell<Result<Arc<T>, NotStarted>>,
    company: RwLock<()>,
    limit: Duration,
    lane: Arc<Lane>,
}

impl<T: Fixture> Stage<T> {
    pub(super) fn new(start: Start<T>, limit: Duration, lane: Arc<Lane>) -> Self {
        Self {
            start,
            fixture: OnceCell::new(),
            company: RwLock::new(()),
            limit,
            lane,
        }
    }

    async fn fixture(&self) -> &Result<Arc<T>, NotStarted> {
        self.fixture
            .get_or_init(|| async {
                let started = Instant::now();
                let fixture = (self.start)().await.map(Arc::new);
                if fixture.is_ok() {
                    let seconds = started.elapsed().as_secs_f32();
                    eprintln!("{}: fixture up in {seconds:.1} s", self.lane.name());
                }
                fixture
            })
            .await
    }

    async fn perform(&self, test: LiveTest<T>) -> Result<Completion, Failed> {
        let _slot = self.lane.slot().await?;
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
        let seconds = started.elapsed().as_secs_f32();
        eprintln!("{}::{} took {seconds:.0} s", self.lane.name(), test.name);
        if ended.is_err() {
            running.abort();
        }
        test_outcome(ended, self.limit).map_err(|why| {
            let logs = fixture.log_tails();
            Failed::from(format!("{why}\n{logs}"))
        })
    }
}

/// A test for libtest-mimic, named `suite::test`. Its thread waits until the suite has a lane.
pub(super) fn trial<T: Fixture>(test: LiveTest<T>, stage: Arc<Stage<T>>) -> Trial {
    let name = format!("{}::{}", stage.lane.name(), test.name);
    let ignored = stage.lane.only_on_request();
    Trial::ignorable_test(name, move || {
        let runtime = stage.lane.runtime().clone();
        // The last test drops the fixture, which needs the runtime.
        let _inside = runtime.enter();
        let outcome = runtime.block_on(stage.perform(test));
        stage.lane.count(&outcome);
        drop(stage);
        outcome
    })
    .with_ignored_flag(ignored)
}
