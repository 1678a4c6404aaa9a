//! Formats the figures as text and tables.

use super::figures::Figures;
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
    let sections = [
        ("Throughput", throughput(figures)),
        ("A stampede", stampede(figures)),
        ("A slow mint beside warm callers", slow_mint(figures)),
        ("Memory", memory(figures)),
        ("Load on the hub", hub_load(figures)),
    ];
    let sections: Vec<String> = sections
        .iter()
        .map(|(title, section)| format!("### {title}\n\n{}", table(section)))
        .collect();
    format!("{}\n\n{}", figures.machine, sections.join("\n"))
}

fn throughput(figures: &Figures) -> Table {
    let head = vec![
        "answer",
        "bytes",
        "requests/s",
        "p50 us",
        "p99 us",
        "server CPU us",
        "of the empty handler: min / median / max",
    ];
    let row = |subject: &super::throughput::Subject| {
        let middle = |spread: Option<Spread>| {
            spread.map_or("-".to_owned(), |spread| format!("{:.0}", spread.median))
        };
        let ratio = subject.ratio(&figures.throughput);
        vec![
            subject.name.to_owned(),
            (subject.size.head + subject.size.body).to_string(),
            middle(subject.rate()),
            middle(subject.p50()),
            middle(subject.p99()),
            subject
                .cpu()
                .map_or("-".to_owned(), |cpu| format!("{:.1}", cpu.median)),
            ratio.map_or("-".to_owned(), |it| {
                format!(
                    "{} / {} / {}",
                    percent(it.least),
                    percent(it.median),
                    percent(it.most)
                )
            }),
        ]
    };
    Table {
        head,
        rows: figures.throughput.iter().map(row).collect(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
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
    let mib = |kib: Option<u64>| {
        kib.map_or("-".to_owned(), |kib| {
            format!("{:.1} MiB", kib as f64 / 1024.0)
        })
    };
    let beyond = it
        .bytes_per_token
        .map(|bytes| bytes - it.token_bytes as f64);
    let rows = vec![
        vec![
            "RSS of an idle `keyferry serve`, one target and one access".to_owned(),
            mib(it.idle_kib),
        ],
        vec![
            format!("RSS of an idle one with {} objects in its file", it.objects),
            mib(it.idle_with_policy_kib),
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
