//! The facts of a fleet as text: a row for each target, worst first.

use jiff::{SignedDuration, Timestamp};
use keyferry_fleet::facts::{Answer, Comparison, Ending, Fleet, Health, Source, TargetFacts};
use keyferry_fleet::gap::Gap;

use crate::ui;

const HEAD: [&str; 10] = [
    "TARGET",
    "STATE",
    "REACHABLE",
    "CA UNTIL",
    "FILE",
    "KEYS",
    "ACCEPTS",
    "ACCESSES",
    "NEXT END",
    "CAUSE",
];
/// The most targets that are named for one cause.
const MAX_NAMED_TARGETS: usize = 3;
const TRUST_HEAD: [&str; 5] = ["TRUST", "FILE", "LOADED FILE", "KEYS", "BEHAVIOUR"];
/// The most commands that are named below the table.
const MAX_NEXT_LINES: usize = 20;

/// Renders everything that the command prints.
pub(super) fn render(fleet: &Fleet) -> String {
    let now = fleet.reading.judged_at;
    let mut parts = vec![[runway_line(fleet), counts_line(fleet), source_line(fleet)].join("\n")];
    if fleet.targets.is_empty() {
        parts.push("There is no target to show.".to_owned());
    } else {
        let head = HEAD.map(str::to_owned).to_vec();
        let rows = fleet.targets.iter().map(|target| row(target, now));
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        parts.push(ui::table(&rows));
    }
    parts.extend(trust_parts(fleet));
    let next = next_lines(fleet);
    if !next.is_empty() {
        parts.push(next.join("\n"));
    }
    if !fleet.gaps.is_empty() {
        let gaps: Vec<String> = fleet.gaps.iter().map(gap_lines).collect();
        parts.push(gaps.join("\n"));
    }
    parts.join("\n\n")
}

/// When the first delivered token ends if nothing renews it.
fn runway_line(fleet: &Fleet) -> String {
    let now = fleet.reading.judged_at;
    match &fleet.runway {
        Some(ending) => format!(
            "Runway: if the hub stopped now, the first credential would end {} ({})",
            when(ending.at, now),
            ending_place(ending)
        ),
        None if fleet.gaps.iter().any(Gap::is_of_objects) => {
            "Runway: not known, because not all accesses were read".to_owned()
        }
        None if has_unknown_access(fleet) => {
            "Runway: not known, because accesses have no status of now".to_owned()
        }
        None => "Runway: no delivery holds a credential; callers and Flux fetch theirs".to_owned(),
    }
}

fn has_unknown_access(fleet: &Fleet) -> bool {
    let mut findings = fleet.accesses.iter().flat_map(|access| &access.findings);
    findings.any(|finding| finding.health == Health::Unknown)
}

fn ending_place(ending: &Ending) -> String {
    match &ending.target {
        Some(target) => format!("{} at {target}", ending.place),
        None => ending.place.to_string(),
    }
}

fn counts_line(fleet: &Fleet) -> String {
    let count = |health| {
        fleet
            .targets
            .iter()
            .filter(|it| it.health == health)
            .count()
    };
    let healths = [
        Health::Broken,
        Health::Attention,
        Health::Unknown,
        Health::Ready,
    ];
    let counts: Vec<String> = healths
        .iter()
        .map(|health| format!("{} {}", count(*health), state(*health)))
        .collect();
    format!(
        "{}: {}; {} in {}",
        counted(fleet.targets.len(), "target"),
        counts.join(", "),
        counted(fleet.accesses.len(), "access"),
        counted(fleet.tenants.len(), "namespace")
    )
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

fn source_line(fleet: &Fleet) -> String {
    let reading = &fleet.reading;
    let source = match &reading.source {
        Source::Hub { server } => format!("hub {server}"),
        Source::Folder { path } => path.to_string(),
        Source::Demo => "the demo".to_owned(),
        Source::Generated { seed } => format!("made up with seed {seed}"),
    };
    let user = reading.user.as_ref().map(|user| format!(" by {user}"));
    let tenant = reading
        .tenant
        .as_ref()
        .map(|tenant| format!("; namespace {tenant} alone"));
    format!(
        "Read from {source}{} at {}{}",
        user.unwrap_or_default(),
        second(reading.read_at),
        tenant.unwrap_or_default()
    )
}

fn row(target: &TargetFacts, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    let authority = target.certificate_authority.ends;
    vec![
        match &target.role {
            Some(role) => format!("{} ({role})", target.name),
            None => target.name.to_string(),
        },
        state(target.health).to_owned(),
        answer_text(&target.reachable).to_owned(),
        authority.map_or_else(dash, |at| at.strftime("%Y-%m-%d").to_string()),
        answer_text(&target.file_active).to_owned(),
        answer_text(&target.keys_read).to_owned(),
        accepts(target, now),
        target.accesses.to_string(),
        target.next_ending.map_or_else(dash, |at| when(at, now)),
        target.cause.to_string(),
    ]
}

/// How desired trust and live compare, and below it what differs or was not compared.
fn trust_parts(fleet: &Fleet) -> Vec<String> {
    let mut rows = vec![TRUST_HEAD.map(str::to_owned).to_vec()];
    let mut differences = Vec::new();
    // Many targets may have the same cause, such as a flag that was not given.
    let mut causes: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for target in &fleet.targets {
        let (name, Some(trust)) = (target.name.as_str(), &target.trust) else {
            continue;
        };
        let mut cells = vec![name.to_owned()];
        for (row, comparison) in trust.rows() {
            cells.push(comparison_text(comparison).to_owned());
            match comparison {
                Comparison::Matches => {}
                Comparison::Differs { differences: all } => differences.extend(
                    all.iter()
                        .map(|it| format!("differs: {row} of {name}: {it}")),
                ),
                Comparison::NotCompared { why } => {
                    let known = causes.iter_mut().find(|it| (it.0, it.1) == (row, why));
                    match known {
                        Some((.., targets)) => targets.push(name),
                        None => causes.push((row, why, vec![name])),
                    }
                }
            }
        }
        rows.push(cells);
    }
    let not_compared = causes.iter().map(|(row, why, targets)| {
        let more = targets.len().saturating_sub(MAX_NAMED_TARGETS);
        let named: Vec<&str> = targets.iter().take(MAX_NAMED_TARGETS).copied().collect();
        let named = named.join(", ");
        match more {
            0 => format!("not compared: {row} of {named}: {why}"),
            more => format!("not compared: {row} of {named} and {more} more: {why}"),
        }
    });
    let lines: Vec<String> = differences.into_iter().chain(not_compared).collect();
    match rows.len() {
        1 => Vec::new(),
        _ => vec![ui::table(&rows), lines.join("\n")],
    }
}

fn comparison_text(comparison: &Comparison) -> &'static str {
    match comparison {
        Comparison::Matches => "matches",
        Comparison::Differs { .. } => "differs",
        Comparison::NotCompared { .. } => "not compared",
    }
}

/// A word with a shape, which needs no colour.
fn state(health: Health) -> &'static str {
    match health {
        Health::Broken => "✕ broken",
        Health::Attention => "▲ attention",
        Health::Unknown => "? unknown",
        Health::Ready => "● ready",
    }
}

fn answer_text(answer: &Answer) -> &'static str {
    match answer {
        Answer::Yes => "yes",
        Answer::No { .. } => "no",
        Answer::Unknown { .. } => "?",
    }
}

/// How many tokens a target accepted, of those that it was asked about, and when.
fn accepts(target: &TargetFacts, now: Timestamp) -> String {
    let facts = &target.accepted;
    match (facts.asked, facts.asked_at) {
        (0, _) => "not asked".to_owned(),
        (asked, None) => format!("{} of {asked}", facts.accepted),
        (asked, Some(at)) => format!("{} of {asked}, {}", facts.accepted, when(at, now)),
    }
}

/// The next command of each target that is not ready, each once.
fn next_lines(fleet: &Fleet) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut left_out = 0;
    for target in &fleet.targets {
        let Some(command) = &target.next_command else {
            continue;
        };
        let line = format!("next: {command}");
        if lines.contains(&line) {
            continue;
        }
        if lines.len() < MAX_NEXT_LINES {
            lines.push(line);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        lines.push(format!("and {left_out} more: -o json has all of them"));
    }
    lines
}

fn gap_lines(gap: &Gap) -> String {
    let why = match gap.message.is_empty() {
        true => format!("{} was not read", gap.resource),
        false => format!("{}: {}", gap.resource, gap.message),
    };
    format!("not known: {} ({why})\nfix: {}", gap.hides, gap.fix)
}

fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as its distance from `now`: `in 2 h 14 min`, `3 min ago`.
fn when(at: Timestamp, now: Timestamp) -> String {
    let distance = at.duration_since(now);
    match distance > SignedDuration::ZERO {
        true => format!("in {}", span(distance)),
        false => format!("{} ago", span(distance.abs())),
    }
}

fn span(distance: SignedDuration) -> String {
    let minutes = distance.as_mins();
    match (minutes / (24 * 60), minutes / 60, minutes % 60) {
        (0, 0, _) if minutes < 2 => format!("{} s", distance.as_secs()),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (1, hours, _) => format!("{hours} h"),
        (days, ..) => format!("{days} d"),
    }
}
