//! Builds the parts that suites need, one after the other, and reports how far that is.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Mutex;

use crate::parts::installed::Client;
use crate::parts::{Minor, Part, Parts};

/// A part or a client in another language that a suite needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needed {
    /// A binary that Go builds.
    Part(Part),
    /// A client whose libraries are installed.
    Client(Client),
}

impl Needed {
    /// The folder below `integration` that pins or contains it.
    pub(super) fn folder(self) -> String {
        match self {
            Self::Part(part) => part.folder(),
            Self::Client(client) => client.folder(),
        }
    }
}

/// The parts of every control plane, in the order of their builds.
pub(super) fn control_planes() -> Vec<Needed> {
    vec![
        Needed::Part(Part::Etcd),
        Needed::Part(Part::ApiServer(Minor::newest())),
        Needed::Part(Part::ControllerManager),
        Needed::Part(Part::Kubectl),
        Needed::Part(Part::ApiServer(Minor::V1_33)),
    ]
}

/// Builds missing parts. One build at a time, because a build uses all cores.
pub(super) struct PartBuilder {
    parts: Parts,
    building: Mutex<()>,
    missing: AtomicUsize,
    built: AtomicUsize,
    started: Instant,
}

impl PartBuilder {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            building: Mutex::new(()),
            missing: AtomicUsize::new(0),
            built: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    /// Counts what the suites of the run need and this machine does not have yet.
    pub(super) async fn survey(&self, needed: &BTreeSet<Needed>) {
        let (mut missing, mut seconds) = (0, 0);
        for one in needed {
            if !self.has(*one).await {
                missing += 1;
                seconds += expected_seconds(*one);
            }
        }
        self.missing.store(missing, Ordering::Relaxed);
        if missing > 0 {
            eprintln!(
                "{missing} parts are built once for this machine, about {} minutes on two cores; \
                 suites start as soon as they have theirs",
                seconds.div_ceil(60)
            );
        }
    }

    /// Builds the parts of one suite. A failure is reported by the test that uses the part.
    pub(super) async fn prepare(&self, needed: &[Needed]) {
        for one in needed.iter().copied() {
            if let Err(error) = self.build(one).await {
                eprintln!("{error}");
            }
        }
    }

    /// Builds all parts of a run.
    ///
    /// # Errors
    /// The first part that cannot be built. Those after it are built all the same.
    pub(super) async fn prepare_all(&self, needed: &BTreeSet<Needed>) -> Result<(), String> {
        let mut outcome = Ok(());
        for one in needed.iter().copied() {
            outcome = outcome.and(self.build(one).await);
        }
        outcome
    }

    /// Builds one part, unless this machine has it.
    async fn build(&self, one: Needed) -> Result<(), String> {
        let _one_at_a_time = self.building.lock().await;
        if self.has(one).await {
            return Ok(());
        }
        eprintln!(
            "part {} of {} ({} s elapsed)",
            self.built.fetch_add(1, Ordering::Relaxed) + 1,
            self.missing.load(Ordering::Relaxed),
            self.started.elapsed().as_secs()
        );
        let built = match one {
            Needed::Part(part) => self.parts.locate(part).await.map(drop),
            Needed::Client(client) => self.parts.install(client).await.map(drop),
        };
        built.map_err(|error| error.to_string())
    }

    async fn has(&self, needed: Needed) -> bool {
        match needed {
            Needed::Part(part) => self.parts.has(part).await,
            Needed::Client(client) => self.parts.has_client(client),
        }
    }
}

fn expected_seconds(needed: Needed) -> u32 {
    match needed {
        Needed::Part(part) => part.expected_seconds(),
        Needed::Client(_) => 30,
    }
}
