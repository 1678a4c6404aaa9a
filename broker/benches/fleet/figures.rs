//! All that one run measured.

use std::time::Duration;

use super::calls::Call;
use super::credential::Credential;
use super::revoke::Revoked;
use super::spread::Spread;

/// See the module.
pub struct Figures {
    /// Where it ran.
    pub machine: String,
    /// Accesses that were made at once.
    pub accesses: usize,
    /// From the first to ready.
    pub rise: Rise,
    /// A fleet that is ready.
    pub steady: Steady,
    /// From the answer to a create until the access is ready, one access after the other, in
    /// seconds.
    pub newcomers: Option<Spread>,
    /// The exec plugin.
    pub credential: Credential,
    /// An entry of `allow[]` that is taken out.
    pub revoked: Revoked,
    /// Keyferry's process, in the order of time.
    pub process: Vec<Process>,
}

/// From nothing to ready.
pub struct Rise {
    /// From the first create to the last.
    pub making: Duration,
    /// From the last create to the last `Ready`.
    pub until_ready: Duration,
    /// For each access from the answer to its create until it was ready, in seconds, sorted.
    pub each: Vec<f64>,
    /// What Keyferry asked of the hub for it.
    pub calls: Vec<Call>,
}

/// A fleet that is watched.
pub struct Steady {
    /// How long.
    pub watched: Duration,
    /// What Keyferry asked of the hub meanwhile.
    pub calls: Vec<Call>,
    /// TokenRequests for each key and lifetime of ten minutes: the lifetime by the time between two
    /// requests of one key.
    pub per_lifetime: Option<Spread>,
    /// From how many pairs of requests.
    pub intervals: usize,
}

/// Keyferry's process at some time.
pub struct Process {
    /// At which.
    pub when: &'static str,
    /// Resident memory in KiB.
    pub resident: Option<u64>,
    /// CPU time since the row before.
    pub cpu: Option<Duration>,
    /// Time since the row before.
    pub elapsed: Duration,
}
