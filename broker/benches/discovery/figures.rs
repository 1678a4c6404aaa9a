//! All that one run measured.

use super::load::Received;
use super::spread::Spread;
use super::tls_connection::Size;

/// See the module.
pub struct Figures {
    /// Where it ran.
    pub machine: String,
    /// Kept connections.
    pub kept: Vec<Subject>,
    /// A new connection for each request.
    pub new: Vec<Subject>,
    /// Kept connections beside slow clients.
    pub crowded: Vec<Subject>,
    /// How many slow clients.
    pub slow: usize,
    /// Resident memory of each server.
    pub memory: Vec<Memory>,
    /// Why the peer is missing, if it is.
    pub no_peer: Option<String>,
}

/// One document of one server under one load.
pub struct Subject {
    /// What it is.
    pub name: String,
    /// Which server, by its place.
    pub server: usize,
    /// The size of its answer.
    pub size: Size,
    /// One for each round.
    pub samples: Vec<Sample>,
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What came back.
    pub received: Received,
    /// Answers per second.
    pub rate: f64,
    /// The server's CPU time per answer in microseconds; nothing where the system does not tell.
    pub cpu: Option<f64>,
}

/// Resident memory of one server in KiB.
pub struct Memory {
    /// Which.
    pub name: &'static str,
    /// After its start.
    pub idle: Option<u64>,
    /// After the first round of kept connections.
    pub warm: Option<u64>,
    /// After everything on kept and new connections.
    pub after_load: Option<u64>,
    /// While slow clients were connected, round by round.
    pub crowded: Vec<u64>,
    /// A moment after they had left, round by round.
    pub left: Vec<u64>,
}

impl Subject {
    /// The spread of one figure over the rounds.
    pub fn spread(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(of))
    }

    /// This one's figure by that of another, round by round.
    pub fn ratio(&self, other: &Self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let pairs = self.samples.iter().zip(&other.samples);
        Spread::of(pairs.filter_map(|(own, other)| Some(of(own)? / of(other)?)))
    }
}
