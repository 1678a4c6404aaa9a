//! All measurements of one run.

use super::hub_load::HubLoad;
use super::memory::Memory;
use super::slow_mint::Round;
use super::stampede::Stampede;
use super::throughput::{Sample, Subject};
use crate::harness::spread::Spread;

/// All measurements of one run.
pub struct Figures {
    /// The machine of the run.
    pub machine: String,
    /// The measured requests per second.
    pub throughput: Vec<Subject>,
    /// Many callers that want one key.
    pub stampede: Stampede,
    /// Warm callers beside a slow mint.
    pub slow_mint: Vec<Round>,
    /// Resident memory.
    pub memory: Memory,
    /// How often Keyferry calls the hub.
    pub hub_load: Vec<HubLoad>,
}

impl Subject {
    /// Its requests per second.
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.rate))
    }

    /// The median response time, in microseconds.
    pub fn p50(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.p50))
    }

    /// The response time that 99 of 100 did not exceed, in microseconds.
    pub fn p99(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.p99))
    }

    /// The server's CPU time for one response, in microseconds.
    pub fn cpu(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.cpu))
    }

    /// The ratio of its requests per second to those of its baseline, round by round.
    pub fn ratio(&self, all: &[Self]) -> Option<Spread> {
        let baseline = all.get(self.baseline?)?;
        Spread::of_ratios(&self.samples, &baseline.samples, |sample: &Sample| {
            Some(sample.rate)
        })
    }
}
