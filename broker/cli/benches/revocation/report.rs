//! Writes the figures as tables and as a chart.

use super::measure::{Figures, Run};
use super::stage::MAX_AGE;
use crate::harness::cell::MISSING;
use crate::harness::chart::Chart;
use crate::harness::distribution::Distribution;
use crate::harness::report::Report;
use crate::harness::table::Table;

/// The documented bound of a replica: `docs/concepts/security.md`, "How long cached state is used".
const REPLICA_BOUND: f64 = 10.0;
/// A caller whose TokenReview is cached is believed as long, as the same table says.
const CACHED_REVIEW: f64 = 10.0;
/// How long beyond `discovery.maxAge` the command waits for a target before it reports a failure.
const BEYOND_MAX_AGE: f64 = 60.0;

/// One figure of all runs.
struct Row {
    name: &'static str,
    distribution: Distribution,
    bound: Option<f64>,
}

impl Row {
    fn of(name: &'static str, runs: &[Run], figure: impl Fn(&Run) -> f64) -> Self {
        Self {
            name,
            distribution: Distribution::of(runs.iter().map(figure)),
            bound: None,
        }
    }

    fn within(self, bound: f64) -> Self {
        Self {
            bound: Some(bound),
            ..self
        }
    }

    fn cells(&self) -> Vec<String> {
        let bound = self
            .bound
            .map_or([MISSING.to_owned(), MISSING.to_owned()], |bound| {
                let above = self.distribution.count_above(bound);
                [format!("{bound:.0}"), above.to_string()]
            });
        let name = std::iter::once(self.name.to_owned());
        name.chain(self.distribution.cells(1))
            .chain(bound)
            .collect()
    }
}

/// The report of all runs.
pub fn of(figures: &Figures) -> Report {
    let (appeared, revoked) = (appeared(&figures.runs), revoked(&figures.runs));
    let runs = figures.runs.len();
    let rows = appeared.iter().chain(&revoked);
    let chart = Chart {
        file: "revocation.svg",
        title: "Seconds: median; a line from the minimum to the maximum, with p90 and p99",
        bars: rows.map(|row| row.distribution.bar(row.name)).collect(),
        decimals: 1,
    };
    Report::of(figures.machine.clone())
        .with_section(
            format!("A new key of the hub, {runs} runs, in seconds"),
            render_table(&appeared),
        )
        .with_section(
            format!("A revoked key, {runs} runs, in seconds"),
            render_table(&revoked),
        )
        .with_chart(chart)
}

fn appeared(runs: &[Run]) -> Vec<Row> {
    vec![
        Row::of("appears; the first replica publishes", runs, |run| {
            run.appeared.first_replica
        }),
        Row::of(
            "appears; the last of three replicas publishes",
            runs,
            |run| run.appeared.last_replica,
        ),
        Row::of("the first replica publishes; the last does", runs, |run| {
            run.appeared.last_replica - run.appeared.first_replica
        })
        .within(REPLICA_BOUND),
        Row::of("appears; the last of two targets accepts it", runs, |run| {
            run.appeared.last_target
        }),
    ]
}

fn revoked(runs: &[Run]) -> Vec<Row> {
    vec![
        Row::of("revoke starts; no replica publishes the key", runs, |run| {
            run.revoked.unpublished
        }),
        Row::of("revoke starts; no replica takes its tokens", runs, |run| {
            run.revoked.callers
        }),
        Row::of("revoke starts; no target takes its tokens", runs, |run| {
            run.revoked.targets
        }),
        Row::of("revoke starts; the last refusal of all", runs, |run| {
            run.revoked.everywhere()
        }),
        Row::of("revoke starts; it ends", runs, |run| run.revoked.ended),
        Row::of("in the key journal; no replica publishes it", runs, |run| {
            run.revoked.unpublished_after_written()
        })
        .within(REPLICA_BOUND),
        Row::of(
            "in the key journal; no replica takes its tokens",
            runs,
            |run| run.revoked.callers_after_written(),
        )
        .within(REPLICA_BOUND + CACHED_REVIEW),
        Row::of(
            "in the key journal; no target takes its tokens",
            runs,
            |run| run.revoked.targets_after_written(),
        )
        .within(MAX_AGE.as_secs_f64() + BEYOND_MAX_AGE),
    ]
}

fn render_table(rows: &[Row]) -> Table {
    let head = ["from; until"].into_iter().chain(Distribution::HEAD);
    Table {
        head: head.chain(["bound", "runs above it"]).collect(),
        rows: rows.iter().map(Row::cells).collect(),
    }
}
