//! Compares the published documents with an empty handler and with SPIRE's oidc-discovery-provider:
//! `cargo bench -p keyferry --bench discovery`, with `-- --markdown` for the text of
//! `docs/development/benchmarks.md`.
//!
//! Every server is a separate process, so that its CPU time and memory can be measured alone, and
//! so is the load. Everything is on loopback, limited in count and time, and ends by itself in
//! eight minutes. If the peer cannot be built, its rows say why.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod discovery {
    pub mod figures;
    pub mod load;
    pub mod measure;
    pub mod peer;
    pub mod report;
    pub mod server;
}

use std::process::ExitCode;

use discovery::{load, measure, report};
use harness::empty_handler;

fn main() -> ExitCode {
    let children: [harness::Child; 2] = [
        (load::LOAD, load::main),
        (empty_handler::SERVE, empty_handler::main),
    ];
    harness::run("discovery", &children, |_| {
        Ok(report::of(&harness::block_on(measure::all())?))
    })
}
