//! Writes the figures as tables and charts.

use super::figures::Figures;
use super::throughput::Subject;
use crate::harness::cell;
use crate::harness::chart::{Bar, Chart};
use crate::harness::report::Report;
use crate::harness::spread::Spread;
use crate::harness::table::Table;

/// The report of all measurements.
pub fn of(figures: &Figures) -> Report {
    Report::of(figures.machine.clone())
        .with_section("Throughput", throughput(figures))
        .with_section("A stampede", stampede(figures))
        .with_section("A slow mint beside warm callers", slow_mint(figures))
        .with_section("Memory", memory(figures))
        .with_section("Load on the hub", hub_load(figures))
        .with_chart(Chart {
            file: "requests.svg",
            title: "Requests a second, 64 connections (more is better)",
            bars: bars(figures, Subject::rate),
            decimals: 0,
        })
        .with_chart(Chart {
            file: "cpu.svg",
            title: "Server CPU microseconds a request (less is better)",
            bars: bars(figures, Subject::cpu),
            decimals: 1,
        })
}

fn bars(figures: &Figures, figure: impl Fn(&Subject) -> Option<Spread>) -> Vec<Bar> {
    let bar = |subject: &Subject| {
        Some(Bar {
            name: subject.name,
            spread: figure(subject)?,
            marks: Vec::new(),
            is_peer: subject.baseline.is_none(),
        })
    };
    figures.throughput.iter().filter_map(bar).collect()
}

fn throughput(figures: &Figures) -> Table {
    let head = vec![
        "answer",
        "bytes",
        "requests/s",
        "p50 us",
        "p99 us",
        "server CPU us",
        "of the empty handler, or of the first exchange: min / median / max",
    ];
    let row = |subject: &Subject| {
        vec![
            subject.name.to_owned(),
            (subject.size.head + subject.size.body).to_string(),
            cell::median(subject.rate(), 0),
            cell::median(subject.p50(), 0),
            cell::median(subject.p99(), 0),
            cell::median(subject.cpu(), 1),
            cell::percents(subject.ratio(&figures.throughput)),
        ]
    };
    Table {
        head,
        rows: figures.throughput.iter().map(row).collect(),
    }
}

fn stampede(figures: &Figures) -> Table {
    let it = &figures.stampede;
    let answers: Vec<String> = it
        .answers
        .iter()
        .map(|(status, count)| format!("{count} x {status}"))
        .collect();
    let row = vec![
        format!("{} callers, {} tokens, one key", it.callers, it.tokens),
        answers.join(", "),
        it.token_requests.to_string(),
        it.token_reviews.to_string(),
        format!("{:.0}", it.time.p50 / 1e3),
        format!("{:.0}", it.time.most / 1e3),
    ];
    Table {
        head: vec![
            "all at once",
            "answers",
            "TokenRequests",
            "TokenReviews",
            "half by ms",
            "last at ms",
        ],
        rows: vec![row],
    }
}

fn slow_mint(figures: &Figures) -> Table {
    let rows = figures.slow_mint.iter().enumerate().map(|(index, round)| {
        let (without, with) = (&round.without, &round.with);
        vec![
            format!("round {}", index + 1),
            format!("{:.0} / {:.0}", without.p50, without.p99),
            format!("{:.0} / {:.0}", with.p50, with.p99),
            format!(
                "{:+.0} / {:+.0}",
                with.p50 - without.p50,
                with.p99 - without.p99
            ),
            format!("{:.0}", round.slow.as_secs_f64() * 1e3),
        ]
    });
    let head = vec![
        "warm hits",
        "alone: p50 / p99 us",
        "beside it: p50 / p99 us",
        "difference us",
        "the slow caller waited ms",
    ];
    Table {
        head,
        rows: rows.collect(),
    }
}

fn memory(figures: &Figures) -> Table {
    let it = &figures.memory;
    let beyond = it
        .bytes_per_token
        .map(|bytes| bytes - it.token_bytes as f64);
    let rows = vec![
        vec![
            "RSS of an idle `keyferry serve`, one target and one access".to_owned(),
            cell::mebibytes(it.idle_kib),
        ],
        vec![
            format!("RSS of an idle one with {} objects in its file", it.objects),
            cell::mebibytes(it.idle_with_policy_kib),
        ],
        vec![
            format!(
                "RSS for each of {} tokens more, beyond the token's own {} bytes",
                it.tokens, it.token_bytes
            ),
            beyond.map_or("-".to_owned(), |bytes| format!("{bytes:.0} bytes")),
        ],
    ];
    Table {
        head: vec!["what", "weight"],
        rows,
    }
}

fn hub_load(figures: &Figures) -> Table {
    let rows = figures.hub_load.iter().map(|it| {
        let an_hour = |count: u64| format!("{:.1}", count as f64 / it.hours as f64);
        let lifetimes = (it.hours * 3600) as f64 / it.lifetime_seconds as f64;
        vec![
            format!("{}, tokens of {}", it.caller, it.lifetime),
            an_hour(it.asked),
            an_hour(it.token_reviews),
            an_hour(it.access_reviews),
            an_hour(it.token_requests),
            format!("{:.2}", it.token_requests as f64 / lifetimes),
            an_hour(it.canary),
        ]
    });
    let head = vec![
        "caller, asking every 5 s",
        "requests/h",
        "TokenReviews/h",
        "SARs/h",
        "TokenRequests/h",
        "TokenRequests per lifetime",
        "canary calls/h and audience",
    ];
    Table {
        head,
        rows: rows.collect(),
    }
}
