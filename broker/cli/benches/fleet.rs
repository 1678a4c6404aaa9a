//! Measures a fleet of TargetAccesses on one real hub: `cargo bench -p keyferry --bench fleet`,
//! with `-- --markdown` for the text of `docs/development/benchmarks.md`, `--accesses N` for
//! another number than 2,000, `--targets N` for another number than 40, and `--minutes N` to watch
//! for another time than 15 minutes.
//!
//! The hub is the newest kube-apiserver of the tests with its etcd and kube-controller-manager on
//! this machine, with the shipped installation and admission policies. Keyferry is the shipped
//! binary as a separate process, with no more rights than the shipped ones. Its calls to the hub are
//! read from the hub's own audit log.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod fleet {
    pub mod calls;
    pub mod credential;
    pub mod figures;
    pub mod hub;
    pub mod in_process;
    pub mod measure;
    pub mod plan;
    pub mod report;
    pub mod revoke;
    pub mod seen;
}

use std::process::ExitCode;

use fleet::plan::Plan;
use fleet::{measure, report};

fn main() -> ExitCode {
    harness::run("fleet", &[], |arguments| {
        let plan = Plan::of(arguments)?;
        Ok(report::of(&harness::block_on(measure::all(plan))?))
    })
}
