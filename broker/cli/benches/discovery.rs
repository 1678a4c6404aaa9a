//! Compares the published documents with an empty handler and with SPIRE's oidc-discovery-provider:
//! `cargo bench -p keyferry --bench discovery`, with `-- --markdown` for the text of
//! `docs/development/benchmarks.md`.
//!
//! Every server is a separate process, so that its CPU time and memory can be measured alone, and
//! so is the load. Everything is on loopback, limited in count and time, and ends by itself in
//! eight minutes. If the peer cannot be built, its rows say why.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

// Shared with the other benchmark; this one does not need all of it.
#[allow(dead_code)]
#[path = "exchange/answer_time.rs"]
mod answer_time;
#[allow(dead_code)]
#[path = "exchange/driver.rs"]
mod driver;
#[allow(dead_code)]
#[path = "exchange/generator.rs"]
mod generator;
#[allow(dead_code)]
#[path = "exchange/keyferry_process.rs"]
mod keyferry_process;
#[allow(dead_code)]
#[path = "exchange/policy.rs"]
mod policy;
#[allow(dead_code)]
#[path = "exchange/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "exchange/spread.rs"]
mod spread;
#[allow(dead_code)]
#[path = "exchange/stage.rs"]
mod stage;
#[allow(dead_code)]
#[path = "exchange/table.rs"]
mod table;
#[allow(dead_code)]
#[path = "exchange/tls_connection.rs"]
mod tls_connection;
#[path = "exchange/window.rs"]
mod window;

#[path = "discovery/empty.rs"]
mod empty;
#[path = "discovery/figures.rs"]
mod figures;
#[path = "discovery/load.rs"]
mod load;
#[path = "discovery/measure.rs"]
mod measure;
#[path = "discovery/peer.rs"]
mod peer;
#[path = "discovery/report.rs"]
mod report;
#[path = "discovery/server.rs"]
mod server;

use std::process::ExitCode;

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let outcome = if has(load::LOAD) {
        load::main()
    } else if has(empty::SERVE) {
        empty::main()
    } else if has("--bench") {
        measured(has("--markdown"))
    } else {
        // `cargo test --all-targets` also starts benchmarks, without this argument.
        process::say("nothing is measured without `cargo bench`\n")
    };
    process::exit(outcome)
}

fn measured(markdown: bool) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(measure::all())?;
    process::say(&if markdown {
        report::markdown(&figures)
    } else {
        report::text(&figures)
    })
}
