//! All measurements of one run.

use std::time::Duration;

use super::calls::Call;
use super::credential::Credential;
use super::in_process::InProcess;
use super::revoke::Revoked;
use crate::harness::spread::Spread;

/// All measurements of one run.
pub struct Figures {
    /// The machine of the run.
    pub machine: String,
    /// The number of accesses that were created at once.
    pub accesses: usize,
    /// The number of TargetClusters.
    pub targets: usize,
    /// From the first create until all are ready.
    pub rise: Rise,
    /// A fleet that is ready.
    pub steady: Steady,
    /// The seconds from the response to a create until the access is ready, for one access after
    /// the other.
    pub newcomers: Option<Spread>,
    /// Commands that print a token.
    pub credential: Credential,
    /// A token for a program that runs.
    pub in_process: InProcess,
    /// The removal of an entry of `allow[]`.
    pub revoked: Revoked,
    /// Keyferry's process, in order of time.
    pub process: Vec<Process>,
}

/// How the fleet becomes ready.
pub struct Rise {
    /// From the first create to the last.
    pub making: Duration,
    /// From the last create to the last `Ready`.
    pub until_ready: Duration,
    /// For each access, the seconds from the response to its create until it was ready, sorted.
    pub each: Vec<f64>,
    /// Keyferry's calls to the hub in this time.
    pub calls: Vec<Call>,
}

/// A ready fleet that is watched.
pub struct Steady {
    /// How long it was watched.
    pub watched: Duration,
    /// Keyferry's calls to the hub in this time.
    pub calls: Vec<Call>,
    /// TokenRequests for each key in a lifetime of ten minutes, calculated as the lifetime divided
    /// by the time between two requests of one key.
    pub per_lifetime: Option<Spread>,
    /// The number of pairs of requests for that figure.
    pub intervals: usize,
}

/// Keyferry's process at one point in time.
pub struct Process {
    /// The name of the point in time.
    pub when: &'static str,
    /// Resident memory in KiB.
    pub resident: Option<u64>,
    /// The highest resident memory so far, in KiB.
    pub peak: Option<u64>,
    /// The CPU time since the previous row.
    pub cpu: Option<Duration>,
    /// The time since the previous row.
    pub elapsed: Duration,
}
