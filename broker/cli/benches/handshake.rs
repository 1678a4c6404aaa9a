//! Measures what a client certificate costs a new connection of the token API:
//! `cargo bench -p keyferry --bench handshake`, with `-- --markdown` for the table of
//! `docs/development/benchmarks.md`.
//!
//! Every server is a separate process, so that its CPU time can be measured alone. One of them is an
//! empty axum handler behind the same listener, without client certificates. Everything is on
//! loopback and ends by itself within two minutes.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod handshake {
    pub mod callers;
    pub mod measure;
}

use std::process::ExitCode;

use handshake::measure;
use harness::empty_handler;

fn main() -> ExitCode {
    let children: [harness::Child; 1] = [(empty_handler::SERVE, empty_handler::main)];
    harness::run(
        "handshake",
        &children,
        |_| harness::block_on(measure::all()),
    )
}
