//! Holds a process with one thread to half a core, as a cgroup with `cpu.max` of `50000 100000`
//! does. A cgroup needs rights that a container seldom has, and the figures of machines with and
//! without them could not be compared.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::harness::{Outcome, process};

/// How the flood is limited, for the report.
pub const DESCRIPTION: &str = "50 of 100 ms of CPU time, by pacing in the flooding process";

const PERIOD: Duration = Duration::from_millis(100);
const CPU_TIME_PER_PERIOD: Duration = Duration::from_millis(50);

/// The CPU time that this process may still use.
pub struct CpuShare {
    /// The CPU time of the thread so far, in nanoseconds.
    schedstat: File,
    period: Cell<Period>,
}

#[derive(Clone, Copy)]
struct Period {
    until: Instant,
    /// The CPU time of the thread at which it has to wait for the next period.
    limit: Duration,
}

impl CpuShare {
    /// A share of the thread that calls it, which must be the first of its process.
    pub fn new() -> Outcome<Self> {
        let share = Self {
            schedstat: File::open("/proc/self/schedstat")?,
            period: Cell::new(Period {
                until: process::now(),
                limit: Duration::ZERO,
            }),
        };
        let limit = share.used()?;
        share.period.set(Period {
            limit,
            ..share.period.get()
        });
        Ok(share)
    }

    /// Waits until the process may use CPU time again. Call it before each piece of work: what that
    /// uses beyond the limit is taken from the next period.
    pub async fn wait(&self) -> Outcome<()> {
        loop {
            let (now, used) = (process::now(), self.used()?);
            let Period { until, limit } = self.period.get();
            if now >= until {
                self.period.set(Period {
                    until: now + PERIOD,
                    limit: used.min(limit) + CPU_TIME_PER_PERIOD,
                });
            } else if used < limit {
                return Ok(());
            } else {
                tokio::time::sleep_until(until.into()).await;
            }
        }
    }

    /// The CPU time that the process has used.
    pub fn used(&self) -> Outcome<Duration> {
        let mut text = [0; 64];
        let length = self.schedstat.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(text.get(..length).unwrap_or_default())?;
        let first = text.split_whitespace().next();
        let nanoseconds = first.ok_or("the CPU time of the flood is not known")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    }
}
