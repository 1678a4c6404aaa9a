//! The hub that all replicas share, the network between them, and what has happened so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keyferry_api::moment::Moment;
use keyferry_hub::ports::HubError;
use keyferry_issuer::testing::managed_issuers::FakeStore;
use keyferry_issuer::testing::{FakeObjects, MemorySecrets};
use keyferry_platform::clock::Clock;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::draw::{add_to_hash, draw};
use crate::hub_keys::HUB_KEYS;
use crate::mistake::Mistake;
use crate::oracle::Oracle;
use crate::plan::Event;

/// The number of replicas.
pub(crate) const REPLICAS: usize = 3;
/// The most seconds that a clock is off at the start of a process.
const SMALL_STEP: i64 = 60;
/// How long a call waits for a hub that does not answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The hub's own state, besides its objects and Secrets.
pub(crate) struct HubState {
    /// The keys that the hub lists, by their index.
    pub(crate) listed: BTreeSet<usize>,
    /// The key that it signs with.
    pub(crate) signing: usize,
    /// The UID of each ServiceAccount, by namespace and name.
    pub(crate) accounts: BTreeMap<(String, String), String>,
    /// Changes whenever `accounts` does.
    pub(crate) accounts_version: u64,
    /// The callers' tokens that the hub has signed, with namespace, name and UID.
    pub(crate) caller_tokens: BTreeMap<String, (String, String, String)>,
}

/// How the network and the hub fail now: each until a moment.
#[derive(Default)]
struct Failures {
    hub_down: Duration,
    lies: Duration,
    lease_stolen: Duration,
    split: [Duration; REPLICAS],
    slow: [Duration; REPLICAS],
    answers_lost: [Duration; REPLICAS],
    audit_blocked: [Duration; REPLICAS],
}

/// What happened, as one number: equal runs have equal numbers.
#[derive(Default)]
struct Trace {
    hash: u64,
    at: Duration,
    /// The sum over one moment, in which tasks may run in any order.
    moment: u64,
    lines: Option<Vec<String>>,
}

/// Everything outside of the replicas.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) mistake: Option<Mistake>,
    start: Instant,
    pub(crate) hub: Mutex<HubState>,
    pub(crate) secrets: MemorySecrets,
    pub(crate) objects: FakeObjects,
    /// Changes with every write of an object, so that watches need not compare them.
    pub(crate) objects_version: AtomicU64,
    pub(crate) issuer_keys: FakeStore,
    pub(crate) oracle: Mutex<Oracle>,
    failures: Mutex<Failures>,
    trace: Mutex<Trace>,
    clock_offsets: [Arc<AtomicI64>; REPLICAS],
}

impl World {
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>, keeps_lines: bool) -> Self {
        let accounts = crate::objects::ACCOUNTS.map(|(namespace, name)| {
            let key = (namespace.to_owned(), name.to_owned());
            (key, format!("{namespace}-{name}-0"))
        });
        Self {
            seed,
            mistake,
            start: Instant::now(),
            hub: Mutex::new(HubState {
                listed: [0].into(),
                signing: 0,
                accounts: accounts.into(),
                accounts_version: 1,
                caller_tokens: BTreeMap::new(),
            }),
            secrets: MemorySecrets::default(),
            objects: FakeObjects::default(),
            objects_version: AtomicU64::new(1),
            issuer_keys: FakeStore::default(),
            oracle: Mutex::default(),
            failures: Mutex::default(),
            trace: Mutex::new(Trace {
                lines: keeps_lines.then(Vec::new),
                ..Trace::default()
            }),
            clock_offsets: Default::default(),
        }
    }

    /// The true time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The hub's wall clock, which is right.
    pub(crate) fn wall(&self) -> Timestamp {
        wall_at(self.now())
    }

    /// Notes that an object was written.
    pub(crate) fn note_object_write(&self) {
        self.objects_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a mistake was planted.
    pub(crate) fn has_mistake(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Adds to the trace.
    pub(crate) fn note(&self, what: &str) {
        let now = self.now();
        let mut trace = self.trace.lock();
        if now != trace.at {
            let passed = format!("{} {}", trace.at.as_nanos(), trace.moment);
            trace.hash = add_to_hash(trace.hash, &passed);
            (trace.at, trace.moment) = (now, 0);
        }
        trace.moment = trace.moment.wrapping_add(add_to_hash(0, what));
        if let Some(lines) = &mut trace.lines {
            lines.push(format!("{:>10.3} {what}", now.as_secs_f64()));
        }
    }

    /// The hash of the whole trace, and its lines if they were kept.
    pub(crate) fn finish_trace(&self) -> (u64, Vec<String>) {
        self.note("end");
        let mut trace = self.trace.lock();
        let last = trace.moment.to_string();
        let lines = trace.lines.take().unwrap_or_default();
        (add_to_hash(trace.hash, &last), lines)
    }

    /// Starts a failure that lasts.
    pub(crate) fn start_failure(&self, event: Event, lasts: Duration) {
        let until = self.now() + lasts;
        let mut failures = self.failures.lock();
        let slot = match event {
            Event::Split(replica) => &mut failures.split[replica],
            Event::Slow(replica) => &mut failures.slow[replica],
            Event::LoseAnswers(replica) => &mut failures.answers_lost[replica],
            Event::BlockAudit(replica) => &mut failures.audit_blocked[replica],
            Event::HubDown => &mut failures.hub_down,
            Event::StealLease => &mut failures.lease_stolen,
            _ => &mut failures.lies,
        };
        *slot = until.max(*slot);
    }

    /// Moves the wall clock of a replica.
    pub(crate) fn step_clock(&self, replica: usize, seconds: i64) {
        self.clock_offsets[replica].fetch_add(seconds, Ordering::Relaxed);
    }

    /// Corrects a wall clock that is far off, as before a process starts: it believes the times in
    /// the key journal once.
    pub(crate) fn correct_clock(&self, replica: usize) {
        let offset = &self.clock_offsets[replica];
        if offset.load(Ordering::Relaxed).abs() > SMALL_STEP {
            offset.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the replica reaches the hub now.
    pub(crate) fn is_reachable(&self, replica: usize) -> bool {
        let (now, failures) = (self.now(), self.failures.lock());
        now >= failures.hub_down && now >= failures.split[replica]
    }

    pub(crate) fn lies(&self) -> bool {
        self.now() < self.failures.lock().lies
    }

    pub(crate) fn is_lease_stolen(&self) -> bool {
        self.now() < self.failures.lock().lease_stolen
    }

    pub(crate) fn is_audit_blocked(&self, replica: usize) -> bool {
        self.now() < self.failures.lock().audit_blocked[replica]
    }

    /// The keys that the hub has, whether it lists them or not.
    pub(crate) fn hub_kids() -> impl Iterator<Item = &'static str> {
        HUB_KEYS.iter().map(|key| key.kid.as_str())
    }
}

/// The wall clock at a time since the start.
fn wall_at(since_start: Duration) -> Timestamp {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    start.saturating_add(since_start).unwrap()
}

/// The clocks of one replica: virtual time, with a wall clock that can be wrong.
pub(crate) struct ReplicaClock {
    start: Instant,
    offset: Arc<AtomicI64>,
    /// What the monotonic clock shows is this share of the true time, in percent.
    rate: u32,
    /// How much later than the other two clocks' users this one is read.
    lag: Duration,
}

impl ReplicaClock {
    pub(crate) fn new(world: &World, replica: usize) -> Self {
        Self {
            start: world.start,
            offset: Arc::clone(&world.clock_offsets[replica]),
            rate: 100,
            lag: Duration::ZERO,
        }
    }

    /// A clock that a mistake made slow.
    pub(crate) fn with_rate(self, rate: u32) -> Self {
        Self { rate, ..self }
    }

    /// A clock that a mistake lets lag.
    pub(crate) fn with_lag(self, lag: Duration) -> Self {
        Self { lag, ..self }
    }
}

impl Clock for ReplicaClock {
    fn now(&self) -> Moment {
        let passed = self.start.elapsed();
        let offset = SignedDuration::from_secs(self.offset.load(Ordering::Relaxed));
        let shown = passed * self.rate / 100 + Duration::from_secs(1000);
        Moment {
            wall: wall_at(passed).saturating_add(offset).unwrap(),
            mono: shown.saturating_sub(self.lag),
        }
    }
}

/// The connection of one process to the hub and to its log.
pub(crate) struct Link {
    pub(crate) world: Arc<World>,
    pub(crate) replica: usize,
    /// Which process of the replica it is: each restart makes another.
    pub(crate) process: u64,
    is_dead: AtomicBool,
}

impl Link {
    pub(crate) fn new(world: &Arc<World>, replica: usize, process: u64) -> Self {
        Self {
            world: Arc::clone(world),
            replica,
            process,
            is_dead: AtomicBool::new(false),
        }
    }

    /// Kills the process: what it still waits for never comes.
    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// A number for the use of `purpose` at this moment. Equal uses at one moment draw the same,
    /// because tokio wakes those who wait for one result in a random order.
    pub(crate) fn draw(&self, purpose: &str) -> u64 {
        let place = format!("{} {} {purpose}", self.replica, self.process);
        let now = u64::try_from(self.world.now().as_millis()).unwrap_or_default();
        draw(self.world.seed, &place, now)
    }

    /// Waits, unless the process is dead.
    pub(crate) async fn wait(&self, span: Duration) {
        sleep(span).await;
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Makes one call of the hub, with the failures of the network.
    pub(crate) async fn call<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, HubError>>,
    ) -> Result<T, HubError> {
        let drawn = self.draw(what);
        self.wait(self.latency(drawn)).await;
        if !self.world.is_reachable(self.replica) {
            // Refused at once, or without any answer.
            let silence = [Duration::from_millis(3), CALL_TIMEOUT][usize::from(drawn & 1 == 0)];
            self.wait(silence).await;
            return self.fail(what);
        }
        let outcome = work.await;
        self.wait(self.latency(drawn >> 20)).await;
        let is_lost = self.world.now() < self.world.failures.lock().answers_lost[self.replica];
        if !self.world.is_reachable(self.replica) || is_lost && drawn & 3 == 0 {
            return self.fail(what);
        }
        crate::oracle::observe(&self.world);
        self.note(&format!("{what} {}", outcome_text(&outcome)));
        outcome
    }

    fn fail<T>(&self, what: &str) -> Result<T, HubError> {
        self.note(&format!("{what} unreachable"));
        Err(HubError::Unreachable("no answer".to_owned()))
    }

    fn latency(&self, drawn: u64) -> Duration {
        let is_slow = self.world.now() < self.world.failures.lock().slow[self.replica];
        Duration::from_millis(if is_slow {
            300 + drawn % 3500
        } else {
            1 + drawn % 30
        })
    }

    /// Adds to the trace what this replica did.
    pub(crate) fn note(&self, what: &str) {
        self.world.note(&format!("{} {what}", self.replica));
    }
}

fn outcome_text<T>(outcome: &Result<T, HubError>) -> &'static str {
    match outcome {
        Ok(_) => "ok",
        Err(HubError::Conflict(_)) => "conflict",
        Err(HubError::NotFound(_)) => "absent",
        Err(_) => "refused",
    }
}
