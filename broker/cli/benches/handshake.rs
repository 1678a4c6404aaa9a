//! Measures what a client certificate costs a new connection of the token API:
//! `cargo bench -p keyferry --bench handshake`, with `-- --markdown` for the table of
//! `docs/development/benchmarks.md`.
//!
//! Every server is a separate process, so that its CPU time can be measured alone. One of them is an
//! empty axum handler behind the same listener, without client certificates. Everything is on
//! loopback and ends by itself within two minutes.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

// Shared with the other benchmarks; this one does not need all of it.
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
#[path = "exchange/stage.rs"]
mod stage;
#[allow(dead_code)]
#[path = "exchange/table.rs"]
mod table;
#[allow(dead_code)]
#[path = "exchange/tls_connection.rs"]
mod tls_connection;

#[path = "handshake/callers.rs"]
mod callers;
#[allow(dead_code)]
#[path = "discovery/empty.rs"]
mod empty;
#[path = "handshake/measure.rs"]
mod measure;

use std::process::ExitCode;

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let outcome = if has(empty::SERVE) {
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
    let (machine, table) = runtime.block_on(measure::all())?;
    let text = if markdown {
        table.markdown()
    } else {
        table.text()
    };
    process::say(&format!("{machine}\n\n{text}"))
}
