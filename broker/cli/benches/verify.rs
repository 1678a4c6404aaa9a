//! Measures how fast `verify` and `lint` are: `cargo bench -p keyferry --bench verify`, with `--
//! --markdown` for the text of `docs/development/benchmarks.md`.
//!
//! Evaluations are of every file of `auth-configs/` with every token of its vectors, compared with
//! kube-apiserver's own authenticator on the same input. Processes are the built binary on a
//! shipped file, compared with a process that does nothing. The benchmark ends by itself in a
//! minute.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod verify {
    pub mod evaluations;
    pub mod peer;
    pub mod processes;
    pub mod work;
}

use std::process::ExitCode;

use harness::report::Report;
use harness::spread::Spread;
use harness::table::Table;
use harness::{Outcome, cell, process};
use verify::{evaluations, peer, processes, work};

const ROUNDS: usize = 5;

fn main() -> ExitCode {
    harness::run("verify", &[], |_| measure_all())
}

fn measure_all() -> Outcome<Report> {
    let machine = process::machine();
    let work = work::Work::read()?;
    let (mut ours, mut theirs, mut missing) = (Vec::new(), Vec::new(), None);
    let mut peer = peer::Peer::start().map_err(|why| missing = Some(why)).ok();
    for round in 0..ROUNDS {
        process::complain(&format!("evaluations, round {} ...\n", round + 1))?;
        // Alternate, so that other load on the machine affects both.
        ours.push(evaluations::rate(&work)?);
        if let Some(peer) = &mut peer {
            theirs.push(peer.rate(&work)?);
        }
    }
    process::complain("processes ...\n")?;
    let started = processes::measure()?;
    Ok(Report::of(machine)
        .with_section(
            "Evaluations",
            rates(&work, &ours, &theirs, missing.as_deref()),
        )
        .with_section("Whole processes", times(&started)))
}

fn rates(work: &work::Work, ours: &[f64], theirs: &[f64], missing: Option<&str>) -> Table {
    let head = vec!["evaluations/s of one thread", "least", "median", "most"];
    let row = |name: String, rates: &[f64]| match Spread::of(rates.iter().copied()) {
        Some(it) => {
            let figures = [it.least, it.median, it.most];
            let cells = figures.map(|figure| cell::number(Some(figure), 0));
            [vec![name], cells.to_vec()].concat()
        }
        None => cell::missing_row(
            format!("{name}: {}", missing.unwrap_or_default()),
            head.len(),
        ),
    };
    let what = format!("{} files, {} tokens", work.files.len(), work.tokens());
    let rows = vec![
        row(format!("keyferry-kube-authn, {what}"), ours),
        row(format!("{}, the same", peer::NAME), theirs),
    ];
    Table { head, rows }
}

fn times(started: &[processes::Subject]) -> Table {
    let row = |subject: &processes::Subject| {
        let mut sorted = subject.times.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| cell::number(sorted.get(sorted.len() * part / 100).copied(), 1);
        let cpu = subject.cpu.map(|cpu| cpu / sorted.len().max(1) as f64);
        vec![
            subject.name.to_owned(),
            at(0),
            at(50),
            at(95),
            cell::number(cpu, 1),
            sorted.len().to_string(),
        ]
    };
    Table {
        head: vec!["whole process, ms", "least", "p50", "p95", "CPU", "runs"],
        rows: started.iter().map(row).collect(),
    }
}
