//! Lanes: how many suites run at once, and the lines that say how far the run is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use libtest_mimic::{Completion, Failed};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use super::Traits;
use super::prepare::PartBuilder;

/// The lanes of a run.
pub(super) struct Lanes {
    pub(super) runtime: Handle,
    pub(super) parts: PartBuilder,
    permits: Arc<Semaphore>,
    started: Instant,
    /// The number of suites that run, once the command line is applied.
    suites: AtomicUsize,
    ended: AtomicUsize,
    /// The number of suites that are not exclusive and have not ended. Exclusive suites wait for 0.
    ordinary: watch::Sender<usize>,
}

impl Lanes {
    pub(super) fn new(lanes: usize, runtime: Handle, parts: PartBuilder) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            parts,
            permits: Arc::new(Semaphore::new(lanes)),
            started: Instant::now(),
            suites: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            ordinary: watch::Sender::new(0),
        })
    }

    /// The suites that the command line selects.
    pub(super) fn select<'a>(&self, suites: impl Iterator<Item = &'a Arc<Lane>>) {
        for lane in suites {
            lane.selected.store(true, Ordering::Relaxed);
            self.suites.fetch_add(1, Ordering::Relaxed);
            if !lane.traits.exclusive {
                self.ordinary.send_modify(|count| *count += 1);
            }
        }
    }

    async fn permit(&self, exclusive: bool) -> Option<OwnedSemaphorePermit> {
        if exclusive {
            let mut ordinary = self.ordinary.subscribe();
            ordinary.wait_for(|count| *count == 0).await.ok()?;
        }
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

/// The place of one suite in the run. It is free for the next suite when the last test drops it.
pub(super) struct Lane {
    name: &'static str,
    traits: Traits,
    lanes: Arc<Lanes>,
    selected: AtomicBool,
    slots: Semaphore,
    /// Held from the first test to the last.
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
    begun: Mutex<Option<Instant>>,
    counts: [AtomicUsize; 3],
}

const PASSED: usize = 0;
const FAILED: usize = 1;
const IGNORED: usize = 2;

impl Lane {
    pub(super) fn new(name: &'static str, traits: Traits, lanes: &Arc<Lanes>) -> Arc<Self> {
        Arc::new(Self {
            name,
            slots: Semaphore::new(traits.concurrent_tests),
            traits,
            lanes: Arc::clone(lanes),
            selected: AtomicBool::new(false),
            permit: OnceCell::new(),
            begun: Mutex::new(None),
            counts: Default::default(),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn only_on_request(&self) -> bool {
        self.traits.only_on_request
    }

    pub(super) fn traits(&self) -> &Traits {
        &self.traits
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.lanes.runtime
    }

    /// Waits until fewer tests of the suite run than may, and until the suite has its parts and a
    /// lane. Tests get their slots in the order in which they ask.
    pub(super) async fn slot(&self) -> Result<SemaphorePermit<'_>, Failed> {
        let slot = self.slots.acquire().await.map_err(Failed::from)?;
        self.permit
            .get_or_init(|| async {
                self.lanes.parts.prepare(&self.traits.needed).await;
                let permit = self.lanes.permit(self.traits.exclusive).await;
                *self.begun.lock() = Some(Instant::now());
                eprintln!(
                    "suite {} starts ({} of {} ended, {} s)",
                    self.name,
                    self.lanes.ended.load(Ordering::Relaxed),
                    self.lanes.suites.load(Ordering::Relaxed),
                    self.lanes.started.elapsed().as_secs()
                );
                permit
            })
            .await;
        Ok(slot)
    }

    pub(super) fn count(&self, outcome: &Result<Completion, Failed>) {
        let which = match outcome {
            Ok(Completion::Completed) => PASSED,
            Ok(Completion::Ignored { .. }) => IGNORED,
            Err(_) => FAILED,
        };
        self.counts[which].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.selected.load(Ordering::Relaxed) {
            return;
        }
        if !self.traits.exclusive {
            self.lanes.ordinary.send_modify(|count| *count -= 1);
        }
        let begun = self.begun.get_mut();
        let Some(begun) = begun else {
            return;
        };
        let ended = self.lanes.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let [passed, failed, ignored] = &mut self.counts;
        eprintln!(
            "suite {} ended after {} s: {} passed, {} failed, {} ignored ({ended} of {} ended, {} s)",
            self.name,
            begun.elapsed().as_secs(),
            passed.get_mut(),
            failed.get_mut(),
            ignored.get_mut(),
            self.lanes.suites.load(Ordering::Relaxed),
            self.lanes.started.elapsed().as_secs()
        );
    }
}
