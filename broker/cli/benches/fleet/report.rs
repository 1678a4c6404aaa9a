//! Writes the figures as tables.

use std::time::Duration;

use super::calls::{Call, Kind, counted};
use super::credential::{Credential, Program};
use super::figures::{Figures, Process};
use super::in_process::InProcess;
use super::plan::{NEWCOMERS, SHORT_LIVED};
use crate::harness::cell::{MISSING, mebibytes, missing_row, number};
use crate::harness::report::Report;
use crate::harness::spread::Spread;
use crate::harness::table::Table;

const HOUR: f64 = 3600.0;
/// The default lifetime of a token in a Secret, in hours.
const LIFETIME_HOURS: f64 = 12.0;

/// The report of all measurements.
pub fn of(figures: &Figures) -> Report {
    let minutes = figures.steady.watched.as_secs_f64() / 60.0;
    let watched: Vec<&Call> = figures
        .steady
        .calls
        .iter()
        .filter(|call| !call.is_short_lived())
        .collect();
    let rise_title = format!(
        "What {} accesses at {} targets asked of the hub to be ready",
        figures.rise.each.len(),
        figures.targets
    );
    let steady_title = format!(
        "What {} accesses ask of the hub, watched for {minutes:.0} minutes",
        figures.accesses
    );
    Report::of(figures.machine.clone())
        .with_section("Times", times(figures))
        .with_section(rise_title, rise(figures))
        .with_section(steady_title, steady(&watched, figures))
        .with_section(
            format!("Renewal of {SHORT_LIVED} tokens of 10 minutes"),
            renewal(figures),
        )
        .with_section(
            "A token by a command, beside `kubectl create token`",
            credential(&figures.credential),
        )
        .with_section(
            "A token for a program that runs, beside Flux's own token cache",
            in_process(&figures.in_process),
        )
        .with_section("Keyferry's process", process(&figures.process))
}

fn times(figures: &Figures) -> Table {
    let (rise, revoked) = (&figures.rise, &figures.revoked);
    let share = |part: f64| {
        rise.each
            .get((rise.each.len() as f64 * part) as usize)
            .or(rise.each.last())
            .copied()
            .unwrap_or(f64::NAN)
    };
    let newcomers = |of: fn(Spread) -> f64| figures.newcomers.map_or(f64::NAN, of);
    let rows = [
        (
            format!("creating {} accesses, 32 requests at once", rise.each.len()),
            rise.making.as_secs_f64(),
        ),
        (
            "from the last create until all are ready".to_owned(),
            rise.until_ready.as_secs_f64(),
        ),
        (
            "from its create until an access is ready: half of them within".to_owned(),
            share(0.5),
        ),
        ("99 of 100 within".to_owned(), share(0.99)),
        ("the last one".to_owned(), share(1.0)),
        (
            format!("one more access, {NEWCOMERS} one after the other: half of them within"),
            newcomers(|it| it.median),
        ),
        ("the last of these".to_owned(), newcomers(|it| it.most)),
        (
            format!(
                "an entry of allow[] with {} accesses taken out: the token API refuses",
                revoked.accesses
            ),
            revoked.refused,
        ),
        (
            "the hub denies every TokenRequest".to_owned(),
            revoked.denied,
        ),
        (
            "the first object is deleted".to_owned(),
            revoked.first_deleted,
        ),
        (
            "the last object is deleted".to_owned(),
            revoked.last_deleted,
        ),
        ("every access says so".to_owned(), revoked.told),
    ];
    let rows = rows
        .into_iter()
        .map(|(what, seconds)| vec![what, format!("{seconds:.2}")])
        .collect();
    Table {
        head: vec!["what", "seconds"],
        rows,
    }
}

fn rise(figures: &Figures) -> Table {
    let per = |count: usize| format!("{:.2}", count as f64 / figures.rise.each.len() as f64);
    let row =
        |((kind, resource, verb), (all, failed)): ((Kind, String, String), (usize, usize))| {
            vec![
                named(kind, &verb, &resource),
                all.to_string(),
                failed.to_string(),
                per(all),
            ]
        };
    let calls = &figures.rise.calls;
    let mut rows: Vec<Vec<String>> = counted(calls).into_iter().map(row).collect();
    for kind in [Kind::Read, Kind::Write, Kind::Token] {
        let all = calls.iter().filter(|call| call.kind() == kind).count();
        let failed = calls
            .iter()
            .filter(|call| call.kind() == kind && is_refused(call))
            .count();
        rows.push(vec![
            format!("all {}", plural(kind)),
            all.to_string(),
            failed.to_string(),
            per(all),
        ]);
    }
    let conflicts = calls.iter().filter(|call| call.code == 409).count();
    rows.push(vec![
        "conflicts (409)".to_owned(),
        conflicts.to_string(),
        conflicts.to_string(),
        per(conflicts),
    ]);
    Table {
        head: vec!["request", "sent", "refused", "for each access"],
        rows,
    }
}

fn steady(watched: &[&Call], figures: &Figures) -> Table {
    let hours = figures.steady.watched.as_secs_f64() / HOUR;
    let an_hour = |count: usize| format!("{:.0}", count as f64 / hours);
    let row =
        |((kind, resource, verb), (all, failed)): ((Kind, String, String), (usize, usize))| {
            vec![
                named(kind, &verb, &resource),
                all.to_string(),
                failed.to_string(),
                an_hour(all),
            ]
        };
    let mut rows: Vec<Vec<String>> = counted(watched.iter().copied())
        .into_iter()
        .map(row)
        .collect();
    for kind in [Kind::Read, Kind::Write, Kind::Token] {
        let of: Vec<&&Call> = watched.iter().filter(|call| call.kind() == kind).collect();
        let failed = of.iter().filter(|call| is_refused(call)).count();
        rows.push(vec![
            format!("all {}", plural(kind)),
            of.len().to_string(),
            failed.to_string(),
            an_hour(of.len()),
        ]);
    }
    Table {
        head: vec!["request", "sent", "refused", "an hour"],
        rows,
    }
}

/// The cost of a renewal, measured with short-lived tokens and extrapolated to the default
/// lifetime.
fn renewal(figures: &Figures) -> Table {
    let short: Vec<&Call> = figures
        .steady
        .calls
        .iter()
        .filter(|call| call.is_short_lived())
        .collect();
    let renewals = short
        .iter()
        .filter(|call| call.kind() == Kind::Token)
        .count();
    let writes = short
        .iter()
        .filter(|call| call.kind() == Kind::Write)
        .count();
    // Less than seven minutes of watching contains no renewal.
    let each = (renewals > 0).then(|| writes as f64 / renewals as f64);
    let shown = |figure: Option<f64>, decimals: usize| {
        figure.map_or("-".to_owned(), |figure| format!("{figure:.decimals$}"))
    };
    let secrets = figures.accesses.div_ceil(2) as f64;
    // A renewal happens at a random time after 77.5 to 80 % of a lifetime.
    let an_hour = secrets / (LIFETIME_HOURS * 0.7875);
    let lifetimes = figures.steady.per_lifetime.map_or("-".to_owned(), |it| {
        format!("{:.2} / {:.2} / {:.2}", it.least, it.median, it.most)
    });
    let rows = [
        ("renewals".to_owned(), renewals.to_string()),
        ("writes for each of them".to_owned(), shown(each, 2)),
        (
            format!(
                "TokenRequests for each key and lifetime, from {} pairs: min / median / max",
                figures.steady.intervals
            ),
            lifetimes,
        ),
        (
            format!(
                "so, for {secrets} Secrets with tokens of {LIFETIME_HOURS} h renewed after 78.75 % \
                 of it: TokenRequests an hour"
            ),
            format!("{an_hour:.0}"),
        ),
        (
            "and writes an hour, beside those above".to_owned(),
            shown(each.map(|each| an_hour * each), 0),
        ),
    ];
    Table {
        head: vec!["what", "figure"],
        rows: rows
            .into_iter()
            .map(|(what, figure)| vec![what, figure])
            .collect(),
    }
}

fn credential(credential: &Credential) -> Table {
    let row = |name: &str, program: &Program| {
        let took = |of: fn(Spread) -> f64| {
            program
                .took
                .map_or("-".to_owned(), |it| format!("{:.1}", of(it)))
        };
        let resident = program
            .resident
            .map_or("-".to_owned(), |kib| format!("{:.1}", kib as f64 / 1024.0));
        vec![
            name.to_owned(),
            took(|it| it.least),
            took(|it| it.median),
            took(|it| it.most),
            resident,
        ]
    };
    let ratio = |name: &str, own: &Program| {
        let took = credential.kubectl.took.zip(own.took);
        let resident = credential.kubectl.resident.zip(own.resident);
        vec![
            format!("kubectl's by that of `{name}`"),
            MISSING.to_owned(),
            number(took.map(|(peer, own)| peer.median / own.median), 1),
            MISSING.to_owned(),
            number(resident.map(|(peer, own)| peer as f64 / own as f64), 1),
        ]
    };
    let rows = vec![
        row(
            "`keyferry credential`, its token in the cache",
            &credential.plugin,
        ),
        row("`keyferry token`, an exchange", &credential.token),
        row("`kubectl create token`", &credential.kubectl),
        ratio("keyferry credential", &credential.plugin),
        ratio("keyferry token", &credential.token),
    ];
    Table {
        head: vec![
            "whole process",
            "least ms",
            "median ms",
            "most ms",
            "peak RSS MiB",
        ],
        rows,
    }
}

fn in_process(figures: &InProcess) -> Table {
    let row = |name: &str, wait: Option<Spread>| {
        let took = |of: fn(Spread) -> f64| number(wait.map(of), 2);
        let cells = [
            took(|it| it.least),
            took(|it| it.median),
            took(|it| it.most),
        ];
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let own = figures.exchange;
    let mut rows = vec![
        row(
            "an exchange on a kept connection, the token cached by Keyferry",
            own.warm,
        ),
        row(
            "the same, nothing cached: a TokenReview and a TokenRequest",
            own.cold,
        ),
    ];
    match &figures.flux {
        Ok(flux) => {
            rows.extend([
                row(
                    "Flux in its own process, the token cached: a GET of its ConfigMap",
                    flux.warm,
                ),
                row(
                    "the same, nothing cached: a GET and a TokenRequest",
                    flux.cold,
                ),
                times_row("Flux's by Keyferry's, cached", flux.warm, own.warm),
                times_row("Flux's by Keyferry's, nothing cached", flux.cold, own.cold),
            ]);
        }
        Err(why) => rows.push(missing_row(format!("Flux's token cache: {why}"), 4)),
    }
    Table {
        head: vec![
            "a token for a running program",
            "least ms",
            "median ms",
            "most ms",
        ],
        rows,
    }
}

fn times_row(name: &str, peer: Option<Spread>, own: Option<Spread>) -> Vec<String> {
    let medians = peer.zip(own).map(|(peer, own)| peer.median / own.median);
    vec![
        name.to_owned(),
        MISSING.to_owned(),
        number(medians, 2),
        MISSING.to_owned(),
    ]
}

fn process(rows: &[Process]) -> Table {
    let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
    let row = |process: &Process| {
        let share = process.cpu.map(|cpu| {
            format!(
                "{:.1} %",
                cpu.as_secs_f64() / process.elapsed.as_secs_f64().max(0.001) * 100.0
            )
        });
        vec![
            process.when.to_owned(),
            mebibytes(process.resident),
            mebibytes(process.peak),
            seconds(process.elapsed),
            process.cpu.map_or("-".to_owned(), seconds),
            share.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    Table {
        head: vec![
            "when",
            "RSS",
            "peak RSS",
            "seconds since the row before",
            "CPU seconds",
            "of one core",
        ],
        rows: rows.iter().map(row).collect(),
    }
}

fn is_refused(call: &Call) -> bool {
    call.code >= 400 && call.code != 404
}

fn named(kind: Kind, verb: &str, resource: &str) -> String {
    let what = match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Token => "token",
    };
    format!("{what}: {verb} {resource}")
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Token => "TokenRequests and reviews",
    }
}
