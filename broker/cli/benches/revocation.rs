//! Measures how soon the last replica publishes a new key of the hub, and how soon the last replica
//! and the last target refuse a key after `keyferry revoke`: `cargo bench -p keyferry --bench
//! revocation`, with `-- --markdown` for the text of `docs/development/benchmarks.md`, and `--runs N`
//! for another number than 100.
//!
//! One real hub, three replicas of the shipped binary, and two targets of two minor versions. The
//! keys are the hub's from its start, so that it accepts what they sign, but a proxy hides each key
//! of its key set until its run, so that the moment of its appearance is known.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod revocation {
    pub mod command;
    pub mod measure;
    pub mod report;
    pub mod stage;
}

use std::process::ExitCode;

use revocation::{measure, report};

fn main() -> ExitCode {
    harness::run("revocation", &[], |arguments| {
        let runs = usize::try_from(arguments.number("--runs", 100)?)?;
        Ok(report::of(&harness::block_on(measure::all(runs))?))
    })
}
