//! Measures how fast `verify` and `lint` are: `cargo bench -p keyferry --bench verify`, with `--
//! --markdown` for the text of `docs/development/benchmarks.md`.
//!
//! Evaluations are of every file of `auth-configs/` with every token of its vectors, compared with
//! kube-apiserver's own authenticator on the same input. Processes are the built binary on a
//! shipped file, compared with a process that does nothing. The benchmark ends by itself in a
//! minute.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

// Shared with the other benchmarks; this one does not need all of it.
#[allow(dead_code)]
#[path = "exchange/process.rs"]
mod process;
#[path = "exchange/spread.rs"]
mod spread;
#[path = "exchange/table.rs"]
mod table;

#[path = "verify/evaluations.rs"]
mod evaluations;
#[path = "verify/peer.rs"]
mod peer;
#[path = "verify/processes.rs"]
mod processes;
#[path = "verify/work.rs"]
mod work;

use std::process::ExitCode;

use spread::Spread;
use table::Table;

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    process::exit(if has("--bench") {
        measured(has("--markdown"))
    } else {
        // `cargo test --all-targets` also starts benchmarks, without this argument.
        process::say("nothing is measured without `cargo bench`\n")
    })
}

fn measured(markdown: bool) -> Outcome<()> {
    let machine = process::machine();
    let work = work::Work::read()?;
    let (mut ours, mut theirs, mut absent) = (Vec::new(), Vec::new(), None);
    let mut peer = peer::Peer::start().map_err(|why| absent = Some(why)).ok();
    for round in 0..5 {
        process::complain(&format!("evaluations, round {} ...\n", round + 1))?;
        // Alternate, so that other load on the machine affects both.
        ours.push(evaluations::rate(&work)?);
        if let Some(peer) = &mut peer {
            theirs.push(peer.rate(&work)?);
        }
    }
    process::complain("processes ...\n")?;
    let started = processes::measure()?;
    let tables = [
        rates(&work, &ours, &theirs, absent.as_deref()),
        times(&started),
    ];
    let rendered: Vec<String> = tables
        .iter()
        .map(|table| {
            if markdown {
                table.markdown()
            } else {
                table.text()
            }
        })
        .collect();
    process::say(&format!("{machine}\n\n{}", rendered.join("\n")))
}

fn rates(work: &work::Work, ours: &[f64], theirs: &[f64], absent: Option<&str>) -> Table {
    let row = |name: String, rates: &[f64]| match Spread::of(rates.iter().copied()) {
        Some(Spread {
            least,
            median,
            most,
        }) => vec![
            name,
            format!("{least:.0}"),
            format!("{median:.0}"),
            format!("{most:.0}"),
        ],
        None => vec![
            format!("{name}: {}", absent.unwrap_or_default()),
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
        ],
    };
    let what = format!("{} files, {} tokens", work.files.len(), work.tokens());
    Table {
        head: vec!["evaluations/s of one thread", "least", "median", "most"],
        rows: vec![
            row(format!("keyferry-kube-authn, {what}"), ours),
            row(format!("{}, the same", peer::NAME), theirs),
        ],
    }
}

fn times(started: &[processes::Subject]) -> Table {
    let row = |subject: &processes::Subject| {
        let mut sorted = subject.times.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| {
            sorted
                .get(sorted.len() * part / 100)
                .map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"))
        };
        let cpu = subject.cpu.map_or_else(
            || "-".to_owned(),
            |cpu| format!("{:.1}", cpu / sorted.len().max(1) as f64),
        );
        vec![
            subject.name.to_owned(),
            at(0),
            at(50),
            at(95),
            cpu,
            sorted.len().to_string(),
        ]
    };
    Table {
        head: vec!["whole process, ms", "least", "p50", "p95", "CPU", "runs"],
        rows: started.iter().map(row).collect(),
    }
}
