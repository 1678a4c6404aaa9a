//! What every bench shares: one entry point, one clock, one stage and one report.

#![allow(
    dead_code,
    reason = "every bench includes this tree and needs a part of it"
)]

pub mod answer_time;
pub mod arguments;
pub mod cell;
pub mod chart;
pub mod distribution;
pub mod empty_handler;
pub mod load_process;
pub mod policy;
pub mod process;
pub mod report;
pub mod server_process;
pub mod spread;
pub mod stage;
pub mod table;
pub mod tls_connection;
pub mod window;

use std::process::ExitCode;

use self::arguments::Arguments;
use self::report::{Form, Report};

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A part of a bench that runs as a separate process: the argument that starts it, and what it
/// does.
pub type Child = (&'static str, fn() -> Outcome<()>);

/// Runs a bench: one of its children if the command asks for it, otherwise the measurement, whose
/// report it prints.
pub fn run(
    bench: &'static str,
    children: &[Child],
    measure: impl FnOnce(&Arguments) -> Outcome<Report>,
) -> ExitCode {
    let arguments = Arguments::from_environment();
    process::exit(run_with(bench, &arguments, children, measure))
}

fn run_with(
    bench: &'static str,
    arguments: &Arguments,
    children: &[Child],
    measure: impl FnOnce(&Arguments) -> Outcome<Report>,
) -> Outcome<()> {
    if let Some((_, child)) = children.iter().find(|(name, _)| arguments.has(name)) {
        return child();
    }
    if !arguments.has("--bench") {
        // `cargo test --all-targets` also starts benchmarks, without this argument.
        return process::say("nothing is measured without `cargo bench`\n");
    }
    let report = measure(arguments)?;
    report.write_charts()?;
    let form = if arguments.has("--markdown") {
        Form::Markdown
    } else {
        Form::Text
    };
    process::say(&report.render(&arguments.command(bench), form))
}

/// Runs a future on the same runtime as `keyferry serve`.
pub fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// The indexes of `count` subjects: forwards in even rounds and backwards in odd ones, so that a
/// slow drift of the machine favours no subject.
pub fn alternating(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| {
        if round.is_multiple_of(2) {
            place
        } else {
            count - 1 - place
        }
    })
}
