//! Measures a fleet of TargetAccesses on one real hub: `cargo bench -p keyferry --bench fleet`,
//! with `-- --markdown` for the text of `docs/development/benchmarks.md`, `--accesses N` for
//! another number than 2,000, and `--minutes N` to watch for another time than 15 minutes.
//!
//! The hub is the newest kube-apiserver of the tests with its etcd and kube-controller-manager on
//! this machine, with the shipped installation and admission policies. Keyferry is the shipped
//! binary as a separate process, with no more rights than the shipped ones. Its calls to the hub are
//! read from the hub's own audit log.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[allow(dead_code)]
#[path = "exchange/process.rs"]
mod process;
#[path = "exchange/spread.rs"]
mod spread;
#[path = "exchange/table.rs"]
mod table;

#[path = "fleet/calls.rs"]
mod calls;
#[path = "fleet/credential.rs"]
mod credential;
#[path = "fleet/figures.rs"]
mod figures;
#[path = "fleet/hub.rs"]
mod hub;
#[path = "fleet/measure.rs"]
mod measure;
#[path = "fleet/plan.rs"]
mod plan;
#[path = "fleet/report.rs"]
mod report;
#[path = "fleet/revoke.rs"]
mod revoke;
#[path = "fleet/seen.rs"]
mod seen;

use std::process::ExitCode;

use self::plan::Plan;

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = if arguments.iter().any(|argument| argument == "--bench") {
        measured(&arguments)
    } else {
        // `cargo test --all-targets` also starts benchmarks, without this argument.
        process::say("nothing is measured without `cargo bench`\n")
    };
    process::exit(outcome)
}

fn measured(arguments: &[String]) -> Outcome<()> {
    let plan = Plan::of(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(measure::all(plan))?;
    let markdown = arguments.iter().any(|argument| argument == "--markdown");
    process::say(&if markdown {
        report::markdown(&figures)
    } else {
        report::text(&figures)
    })
}
