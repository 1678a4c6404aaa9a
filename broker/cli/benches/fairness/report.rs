//! Writes the figures as a table and two charts.

use super::cpu_share;
use super::flood::Flooded;
use super::measure::{Figures, Round, Scale, Subject};
use crate::harness::cell;
use crate::harness::chart::{Bar, Chart};
use crate::harness::report::Report;
use crate::harness::spread::Spread;
use crate::harness::table::Table;

/// The report of the measured floods. Only figures of all, of the full scale, are drawn.
pub fn of(figures: &Figures, scale: Scale, row: u64) -> Report {
    let title = format!(
        "A neighbour beside floods, each with {}",
        cpu_share::DESCRIPTION
    );
    let report = Report::of(figures.machine.clone()).with_section(title, render_table(figures));
    if scale != Scale::FULL || row != 0 {
        return report;
    }
    report
        .with_chart(Chart {
            file: "fairness-p50.svg",
            title: "A neighbour's median response time during a flood, of that before it",
            bars: bars(figures, Subject::p50_ratio),
            decimals: 2,
        })
        .with_chart(Chart {
            file: "fairness-p99.svg",
            title: "A neighbour's p99 during a flood, of that before it",
            bars: bars(figures, Subject::p99_ratio),
            decimals: 2,
        })
}

impl Subject {
    fn spread(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(figure))
    }

    fn p50_ratio(&self) -> Option<Spread> {
        self.spread(|round| Some(round.during.p50 / round.before.p50))
    }

    fn p99_ratio(&self) -> Option<Spread> {
        self.spread(|round| Some(round.during.p99 / round.before.p99))
    }
}

fn bars(figures: &Figures, figure: impl Fn(&Subject) -> Option<Spread>) -> Vec<Bar> {
    let bar = |subject: &Subject| {
        Some(Bar {
            name: subject.name,
            spread: figure(subject)?,
            marks: Vec::new(),
            is_peer: subject.rounds.iter().all(|round| round.flooded.is_none()),
        })
    };
    figures.subjects.iter().filter_map(bar).collect()
}

fn render_table(figures: &Figures) -> Table {
    Table {
        head: vec![
            "flood",
            "requests/s",
            "refused",
            "its cores",
            "server's cores",
            "server waits for a core, ms/s",
            "neighbour waits",
            "p50 us before",
            "during",
            "p50 ratio: min / median / max",
            "p99 us before",
            "during",
            "p99 ratio: min / median / max",
        ],
        rows: figures.subjects.iter().map(row).collect(),
    }
}

fn row(subject: &Subject) -> Vec<String> {
    let flooded = |figure: fn(Flooded) -> f64| subject.spread(|round| Some(figure(round.flooded?)));
    let time = |figure: fn(&Round) -> f64| cell::median(subject.spread(|it| Some(figure(it))), 0);
    let refused = flooded(|flooded| flooded.refused);
    vec![
        subject.name.to_owned(),
        cell::median(flooded(|flooded| flooded.rate), 0),
        refused.map_or(cell::MISSING.to_owned(), |it| cell::percent(it.median)),
        cell::median(flooded(|flooded| flooded.cores), 2),
        cell::median(subject.spread(|round| round.server_cores), 2),
        cell::median(subject.spread(|round| Some(round.server_waits)), 0),
        cell::median(subject.spread(|round| Some(round.neighbour_waits)), 0),
        time(|round| round.before.p50),
        time(|round| round.during.p50),
        ratios(subject.p50_ratio()),
        time(|round| round.before.p99),
        time(|round| round.during.p99),
        ratios(subject.p99_ratio()),
    ]
}

/// The minimum, the median and the maximum of a ratio.
fn ratios(spread: Option<Spread>) -> String {
    spread.map_or(cell::MISSING.to_owned(), |it| {
        [it.least, it.median, it.most]
            .map(|ratio| format!("{ratio:.2}"))
            .join(" / ")
    })
}
