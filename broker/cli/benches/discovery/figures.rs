//! All measurements of one run.

use super::load::Received;
use crate::harness::spread::Spread;
use crate::harness::tls_connection::Size;

/// All measurements of one run.
pub struct Figures {
    /// The machine of the run.
    pub machine: String,
    /// Measurements with kept connections.
    pub kept: Vec<Subject>,
    /// Measurements with a new connection for each request.
    pub new: Vec<Subject>,
    /// Measurements with kept connections beside slow clients.
    pub crowded: Vec<Subject>,
    /// The number of slow clients.
    pub slow: usize,
    /// Resident memory of each server.
    pub memory: Vec<Memory>,
    /// Why the peer is missing, if it is.
    pub no_peer: Option<String>,
}

/// One document of one server under one load.
pub struct Subject {
    /// The name in the tables.
    pub name: String,
    /// The index of the server.
    pub server: usize,
    /// The size of its response.
    pub size: Size,
    /// One sample for each round.
    pub samples: Vec<Sample>,
}

/// The result of one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The responses that the load received.
    pub received: Received,
    /// The responses per second.
    pub rate: f64,
    /// The server's CPU time per response in microseconds; `None` where the system does not report
    /// it.
    pub cpu: Option<f64>,
}

/// Resident memory of one server in KiB.
pub struct Memory {
    /// The name of the server.
    pub name: &'static str,
    /// After the start.
    pub idle: Option<u64>,
    /// After the first round of kept connections.
    pub warm: Option<u64>,
    /// After all loads on kept and new connections.
    pub after_load: Option<u64>,
    /// While slow clients were connected, round by round.
    pub crowded: Vec<u64>,
    /// A moment after the slow clients had disconnected, round by round.
    pub left: Vec<u64>,
}

impl Subject {
    /// The spread of one figure over the rounds.
    pub fn spread(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(of))
    }

    /// The ratio of this subject's figure to another's, round by round.
    pub fn ratio(&self, other: &Self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of_ratios(&self.samples, &other.samples, of)
    }
}
