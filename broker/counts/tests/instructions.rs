//! Holds the instructions of an exchange, a delivery and a `verify` within 3 % of
//! `broker/counts/instructions.tsv`: `cargo test --locked --profile counts -p keyferry-counts --test
//! instructions`. With `KEYFERRY_WRITE_COPIES=1` it writes that file.
//!
//! Callgrind counts, so the machine's load, its clock rate and its caches do not matter. What does
//! matter is recorded with the figures: the compilers, libc, valgrind, and what the emulated
//! processor can do. Where one of them differs, the figures are printed and nothing is compared.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

#[path = "subjects/subjects.rs"]
mod subjects;

#[path = "instructions"]
mod instructions {
    pub mod callgrind;
    pub mod counted;
    pub mod figures;
    pub mod record;
    pub mod server;
}

use std::process::ExitCode;

use instructions::figures::Figures;
use instructions::{callgrind, counted, record};

/// The server's own, so that what an allocation costs is the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(counted::FOLDER) {
        counted::run_all(folder.as_ref());
        return ExitCode::SUCCESS;
    }
    match count_and_compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("instructions: FAILED: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn count_and_compare() -> Result<(), String> {
    if cfg!(debug_assertions) {
        println!(
            "instructions: NOT counted, because this build is not optimised. fix: cargo test \
             --locked --profile counts -p keyferry-counts"
        );
        return Ok(());
    }
    let Some(valgrind) = callgrind::version() else {
        return not_compared("there is no valgrind. fix: apt-get install valgrind".to_owned());
    };
    let counted = callgrind::count()?;
    let figures = Figures::of_rounds(&counted.rounds);
    let environment = record::environment(valgrind, counted.processor);
    print!("{}", figures.table());
    figures.hold_ratios()?;
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some() {
        return record::write(&environment, &figures);
    }
    let recorded = record::read();
    if let Some(difference) = recorded.difference(&environment) {
        return not_compared(difference);
    }
    recorded.compare(&figures)?;
    println!("instructions: compared with the record, all within 3 %");
    Ok(())
}

/// Where a missing part is a failure, so is a run that compares nothing.
fn not_compared(why: String) -> Result<(), String> {
    let why = format!("NOT compared with the record, because {why}");
    if std::env::var_os("KEYFERRY_REQUIRE_REAL").is_some() {
        return Err(why);
    }
    println!("instructions: {why}");
    Ok(())
}
