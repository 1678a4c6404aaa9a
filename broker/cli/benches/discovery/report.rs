//! Writes the figures as tables.

use super::figures::{Figures, Memory, Sample, Subject};
use super::peer;
use crate::harness::cell;
use crate::harness::report::Report;
use crate::harness::table::Table;

/// The report of all measurements.
pub fn of(figures: &Figures) -> Report {
    let missing = figures.no_peer.as_deref();
    let crowded = format!("Kept connections beside {} slow clients", figures.slow);
    Report::of(figures.machine.clone())
        .with_section("Kept connections", throughput(&figures.kept, missing))
        .with_section(
            "A new connection for each request",
            throughput(&figures.new, missing),
        )
        .with_section(crowded, throughput(&figures.crowded, missing))
        .with_section("Slow clients", slow_clients(figures))
        .with_section("Memory of the server", memory(figures))
}

fn throughput(subjects: &[Subject], missing: Option<&str>) -> Table {
    let head = vec![
        "answer",
        "bytes",
        "requests/s",
        "p50 us",
        "p99 us",
        "server CPU us",
        "requests/s of the empty handler's: min / median / max",
        "server CPU of the peer's: min / median / max",
    ];
    let empty = subjects.first();
    let row = |subject: &Subject| {
        let own_peer = subjects
            .iter()
            .find(|other| other.name.starts_with(peer::NAME) && what(other) == what(subject));
        let of_empty = empty
            .filter(|empty| empty.server != subject.server)
            .and_then(|empty| subject.ratio(empty, rate));
        let of_peer = own_peer
            .filter(|peer| peer.server != subject.server)
            .and_then(|peer| subject.ratio(peer, cpu));
        vec![
            subject.name.clone(),
            (subject.size.head + subject.size.body).to_string(),
            cell::median(subject.spread(rate), 0),
            cell::median(
                subject.spread(|sample| Some(sample.received.answered.time.p50)),
                0,
            ),
            cell::median(
                subject.spread(|sample| Some(sample.received.answered.time.p99)),
                0,
            ),
            cell::median(subject.spread(cpu), 1),
            cell::percents(of_empty),
            cell::percents(of_peer),
        ]
    };
    let mut rows: Vec<Vec<String>> = subjects.iter().map(row).collect();
    rows.extend(
        missing.map(|why| {
            cell::missing_row(format!("{}: not measured, {why}", peer::NAME), head.len())
        }),
    );
    Table { head, rows }
}

fn rate(sample: &Sample) -> Option<f64> {
    Some(sample.rate)
}

fn cpu(sample: &Sample) -> Option<f64> {
    sample.cpu
}

/// `keys`, `provider metadata`, or nothing for the empty handler.
fn what(subject: &Subject) -> Option<&str> {
    subject.name.split_once(", ").map(|(_, what)| what)
}

fn slow_clients(figures: &Figures) -> Table {
    let row = |subject: &Subject| {
        let sum = |of: fn(&Sample) -> u64| subject.samples.iter().map(of).sum::<u64>().to_string();
        vec![
            subject.name.clone(),
            sum(|sample| sample.received.slow_answers),
            sum(|sample| sample.received.slow_lost),
        ]
    };
    Table {
        head: vec!["all rounds", "answers to slow clients", "slow clients lost"],
        rows: figures.crowded.iter().map(row).collect(),
    }
}

fn memory(figures: &Figures) -> Table {
    let rounds = |kib: &[u64]| {
        kib.iter()
            .map(|kib| cell::mebibytes(Some(*kib)).replace(" MiB", ""))
            .collect::<Vec<_>>()
            .join(" / ")
    };
    let row = |it: &Memory| {
        vec![
            it.name.to_owned(),
            cell::mebibytes(it.idle),
            cell::mebibytes(it.warm),
            cell::mebibytes(it.after_load),
            rounds(&it.crowded),
            rounds(&it.left),
        ]
    };
    let head = vec![
        "RSS",
        "idle",
        "after the first round",
        "after all that load",
        "with slow clients: MiB, round by round",
        "after they left: MiB, round by round",
    ];
    Table {
        head,
        rows: figures.memory.iter().map(row).collect(),
    }
}
