//! Counts of responses, and percentiles of their times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Percentiles of response times in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct AnswerTime {
    /// Half of the responses took no longer.
    pub p50: f64,
    /// 99 of 100 responses took no longer.
    pub p99: f64,
    /// No response took longer.
    pub most: f64,
}

/// The responses that a load received in its measured time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Answered {
    /// The number of responses.
    pub count: u64,
    /// Their response times.
    pub time: AnswerTime,
}

impl AnswerTime {
    /// The percentiles of these times, in any order.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let last = times.len().saturating_sub(1);
            let index = (last as f64 * share).round() as usize;
            times
                .get(index)
                .map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Self {
            p50: at(0.5),
            p99: at(0.99),
            most: at(1.0),
        }
    }
}

impl Answered {
    /// The count and the percentiles of these times, in any order.
    pub fn of(times: Vec<Duration>) -> Self {
        Self {
            count: times.len() as u64,
            time: AnswerTime::of(times),
        }
    }
}
