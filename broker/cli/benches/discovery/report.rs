//! Formats the figures as text and tables.

use super::figures::{Figures, Memory, Sample, Subject};
use super::peer;
use super::spread::Spread;
use super::table::Table;

/// The report for the terminal.
pub fn text(figures: &Figures) -> String {
    render(figures, Table::text)
}

/// The report for `docs/development/benchmarks.md`.
pub fn markdown(figures: &Figures) -> String {
    render(figures, Table::markdown)
}

fn render(figures: &Figures, table: impl Fn(&Table) -> String) -> String {
    let missing = figures.no_peer.as_deref();
    let crowded = format!("Kept connections beside {} slow clients", figures.slow);
    let sections = [
        ("Kept connections", throughput(&figures.kept, missing)),
        (
            "A new connection for each request",
            throughput(&figures.new, missing),
        ),
        (crowded.as_str(), throughput(&figures.crowded, missing)),
        ("Slow clients", slow_clients(figures)),
        ("Memory of the server", memory(figures)),
    ];
    let sections: Vec<String> = sections
        .iter()
        .map(|(title, section)| format!("### {title}\n\n{}", table(section)))
        .collect();
    format!("{}\n\n{}", figures.machine, sections.join("\n"))
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
            middle(subject.spread(rate), 0),
            middle(
                subject.spread(|sample| Some(sample.received.answered.time.p50)),
                0,
            ),
            middle(
                subject.spread(|sample| Some(sample.received.answered.time.p99)),
                0,
            ),
            middle(subject.spread(cpu), 1),
            shares(of_empty),
            shares(of_peer),
        ]
    };
    let mut rows: Vec<Vec<String>> = subjects.iter().map(row).collect();
    rows.extend(missing.map(|why| absent(why, head.len())));
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

fn middle(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or("-".to_owned(), |spread| {
        format!("{:.decimals$}", spread.median)
    })
}

fn shares(spread: Option<Spread>) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    spread.map_or("-".to_owned(), |it| {
        format!(
            "{} / {} / {}",
            percent(it.least),
            percent(it.median),
            percent(it.most)
        )
    })
}

/// A row that says why there is no peer.
fn absent(why: &str, columns: usize) -> Vec<String> {
    let mut row = vec!["-".to_owned(); columns];
    if let Some(first) = row.first_mut() {
        *first = format!("{}: not measured, {why}", peer::NAME);
    }
    row
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
    let mib = |kib: Option<u64>| {
        kib.map_or("-".to_owned(), |kib| {
            format!("{:.1} MiB", kib as f64 / 1024.0)
        })
    };
    let rounds = |kib: &[u64]| {
        kib.iter()
            .map(|kib| mib(Some(*kib)).replace(" MiB", ""))
            .collect::<Vec<_>>()
            .join(" / ")
    };
    let row = |it: &Memory| {
        vec![
            it.name.to_owned(),
            mib(it.idle),
            mib(it.warm),
            mib(it.after_load),
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
