//! Measures what a flood costs a neighbour: `cargo bench -p keyferry --bench fairness`, with
//! `-- --markdown` for the table of `docs/development/benchmarks.md`, and `-- --smoke` for one short
//! round that only shows that everything still runs. `-- --row 7` is that of row 7 alone, for a
//! profile.
//!
//! The server is the shipped program with its usual limits, the neighbour and the flood are each a
//! process of their own, and the simulated hub is in this one. Everything is on loopback and ends
//! by itself within nine minutes.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod fairness {
    pub mod cpu_share;
    pub mod flood;
    pub mod ground;
    pub mod measure;
    pub mod neighbour;
    pub mod plan;
    pub mod report;
}

use std::process::ExitCode;

use fairness::measure::Scale;
use fairness::{flood, measure, neighbour, report};

fn main() -> ExitCode {
    let children: [harness::Child; 2] = [
        (neighbour::ASK, neighbour::main),
        (flood::FLOOD, flood::main),
    ];
    harness::run("fairness", &children, |arguments| {
        let scale = if arguments.has("--smoke") {
            Scale::SMOKE
        } else {
            Scale::FULL
        };
        let row = arguments.number("--row", 0)?;
        let figures = harness::block_on(measure::measure_all(scale, row))?;
        Ok(report::of(&figures, scale, row))
    })
}
