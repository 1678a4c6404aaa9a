//! All that one run measured.

use super::hub_load::HubLoad;
use super::memory::Memory;
use super::slow_mint::Round;
use super::spread::Spread;
use super::stampede::Stampede;
use super::throughput::Subject;

/// See the module.
pub struct Figures {
    /// Where it ran.
    pub machine: String,
    /// Requests a second.
    pub throughput: Vec<Subject>,
    /// Many callers, one key.
    pub stampede: Stampede,
    /// Warm callers beside a slow mint.
    pub slow_mint: Vec<Round>,
    /// Resident memory.
    pub memory: Memory,
    /// How often the hub is asked.
    pub hub_load: Vec<HubLoad>,
}

impl Subject {
    /// Requests a second.
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.rate))
    }

    /// Half of the answers took no longer, in microseconds.
    pub fn p50(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.p50))
    }

    /// 99 of 100 took no longer, in microseconds.
    pub fn p99(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.p99))
    }

    /// The server's CPU time for one answer, in microseconds.
    pub fn cpu(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.cpu))
    }

    /// Its requests a second by those of its empty handler, round by round.
    pub fn ratio(&self, all: &[Self]) -> Option<Spread> {
        let empty = all.get(self.empty?)?;
        Spread::of(
            self.samples
                .iter()
                .zip(&empty.samples)
                .map(|(own, empty)| own.rate / empty.rate),
        )
    }
}
