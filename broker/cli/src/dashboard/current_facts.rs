//! The facts that the viewer shows: those of the last reading, judged about every half minute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Fleet, ReadFailure};
use keyferry_platform::clock::Clock;
use tokio::time::Instant;

use crate::command_error::CommandError;

/// How often the hub may be read.
const MIN_READING_INTERVAL: Duration = Duration::from_secs(5);
/// How long a reading may take.
const READING_TIMEOUT: Duration = Duration::from_secs(60);
/// How old a judgement about what has ended may be.
const MAX_JUDGEMENT_AGE: SignedDuration = SignedDuration::from_secs(30);
/// What to do about a reading that failed without a fix of its own.
const FAILURE_FIX: &str = "check that the hub answers: kubectl get targetclusters";

/// Reads the fleet: from the hub, or from a folder.
pub(crate) trait ReadFleet: Send + Sync {
    /// Reads everything once.
    fn read_fleet(&self) -> BoxFuture<'_, Result<Arc<dyn JudgeFleet>, CommandError>>;
}

/// What was read once, to be judged at any later moment.
pub(crate) trait JudgeFleet: Send + Sync {
    /// Says what is true at `now`.
    fn judge_fleet(&self, now: Timestamp) -> Fleet;
}

/// The last reading, and how to read again.
pub(crate) struct CurrentFacts {
    reader: Box<dyn ReadFleet>,
    clock: Arc<dyn Clock>,
    shown: Mutex<ShownFacts>,
    /// When the last reading began. Locked while one is under way.
    last_reading: tokio::sync::Mutex<Instant>,
}

struct ShownFacts {
    reading: Arc<dyn JudgeFleet>,
    judged: Arc<Fleet>,
    failed: Option<ReadFailure>,
}

impl CurrentFacts {
    /// Reads the fleet for the first time.
    ///
    /// # Errors
    /// The error of the reader.
    pub(crate) async fn read_first(
        reader: Box<dyn ReadFleet>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let began = Instant::now();
        let reading = reader.read_fleet().await?;
        let judged = Arc::new(reading.judge_fleet(clock.now().wall));
        Ok(Self {
            reader,
            clock,
            shown: Mutex::new(ShownFacts {
                reading,
                judged,
                failed: None,
            }),
            last_reading: tokio::sync::Mutex::new(began),
        })
    }

    /// Returns the facts, judged at most half a minute ago. It may take as long as a judgement, so
    /// it must not run on a thread of the runtime.
    pub(crate) fn judged_facts(&self) -> Arc<Fleet> {
        let now = self.clock.now().wall;
        let mut shown = self.lock_shown();
        let age = now.duration_since(shown.judged.reading.judged_at);
        if age.abs() >= MAX_JUDGEMENT_AGE {
            shown.judge(now);
        }
        Arc::clone(&shown.judged)
    }

    /// Reads the fleet again, unless a reading is under way or has just begun. If that fails, the
    /// earlier facts stay, and say so.
    pub(crate) async fn read_again(&self) {
        // A second reader waits for nothing: the first one's result is as new.
        let Ok(mut last_reading) = self.last_reading.try_lock() else {
            return;
        };
        if last_reading.elapsed() < MIN_READING_INTERVAL {
            return;
        }
        *last_reading = Instant::now();
        let read = tokio::time::timeout(READING_TIMEOUT, self.reader.read_fleet()).await;
        let read = read.unwrap_or_else(|_| {
            Err(CommandError::new(format!(
                "reading the fleet: it took longer than {} s",
                READING_TIMEOUT.as_secs()
            )))
        });
        let now = self.clock.now().wall;
        let mut shown = self.lock_shown();
        match read {
            Ok(reading) => {
                shown.reading = reading;
                shown.failed = None;
            }
            Err(error) => {
                shown.failed = Some(ReadFailure {
                    at: now,
                    message: ForeignText::new(&error.to_string()),
                    fix: error
                        .fix
                        .map_or_else(|| FAILURE_FIX.to_owned(), |fix| fix.into_owned()),
                });
            }
        }
        shown.judge(now);
    }

    fn lock_shown(&self) -> MutexGuard<'_, ShownFacts> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShownFacts {
    fn judge(&mut self, now: Timestamp) {
        let mut fleet = self.reading.judge_fleet(now);
        fleet.reading.failed = self.failed.clone();
        self.judged = Arc::new(fleet);
    }
}
