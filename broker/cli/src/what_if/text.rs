//! What a change does, for people.

use keyferry_reach::doors;
use keyferry_reach::report::ReportedHop;
use keyferry_reach::what_if::{WhatIfReport, WhatIfWay};

/// How many ways are shown; JSON has all of them.
const MAX_SHOWN: usize = 200;

/// A sentence, then a line for each way and delivery.
pub(super) fn lines(report: &WhatIfReport) -> String {
    let mut lines = vec![sentence(report)];
    for way in report.ways.iter().take(MAX_SHOWN) {
        push_way(way, &mut lines);
    }
    if report.ways.len() > MAX_SHOWN {
        let more = report.ways.len() - MAX_SHOWN;
        lines.push(format!("{more} more ways; -o json prints them"));
    }
    for broken in &report.broken_deliveries {
        let breaks = if broken.answer == "yes" {
            "breaks"
        } else {
            "may break"
        };
        lines.push(format!(
            "{breaks}: delivery {} of {}: {}",
            broken.delivery, broken.access, broken.why
        ));
    }
    for unjudged in &report.not_judged {
        lines.push(format!("not judged: {}: {}", unjudged.object, unjudged.why));
    }
    lines.push(format!("assumes: {}", report.assumptions.join("; ")));
    lines.join("\n")
}

/// How many ways appear and disappear, certainly or perhaps.
pub(super) fn sentence(report: &WhatIfReport) -> String {
    let count = |change: &str, answer: &str| {
        let ways = report.ways.iter();
        ways.filter(|way| way.change == change && way.answer == answer)
            .count()
    };
    let more = if report.has_more_ways {
        "; there are more"
    } else {
        ""
    };
    format!(
        "ways that appear: {}, undetermined: {}; that disappear: {}, undetermined: {}; deliveries that break: {}; not judged: {}{more}",
        count("appears", "yes"),
        count("appears", "undetermined"),
        count("disappears", "yes"),
        count("disappears", "undetermined"),
        report.broken_deliveries.len(),
        report.not_judged.len(),
    )
}

fn push_way(way: &WhatIfWay, lines: &mut Vec<String>) {
    let users: Vec<String> = way.users.iter().map(ToString::to_string).collect();
    let users = match users.is_empty() {
        true => String::new(),
        false => format!(" as {}", users.join(", ")),
    };
    let allowed = if way.is_allowed { " (expected)" } else { "" };
    lines.push(format!(
        "{}: {} {} at {} by {}{users}{allowed}",
        change_words(way),
        way.kind,
        way.subject,
        target_words(way),
        door_words(way.door),
    ));
    if !way.way.is_empty() {
        let hops: Vec<String> = way.way.iter().map(hop_words).collect();
        lines.push(format!("    {}", hops.join(" → ")));
    }
    for right in &way.rights {
        lines.push(format!("    right: {right}"));
    }
    for fact in &way.undecided {
        lines.push(format!(
            "    {}; to decide: {}",
            fact.description, fact.decide
        ));
    }
    if let Some(object) = &way.object {
        lines.push(format!("    because of {object}{}", location_words(way)));
    }
}

pub(super) fn change_words(way: &WhatIfWay) -> String {
    match (way.answer, way.rights.is_empty(), way.change) {
        ("yes", true, change) => change.to_owned(),
        ("yes", false, "appears") => "rights appear".to_owned(),
        ("yes", false, _) => "rights disappear".to_owned(),
        (_, _, "appears") => "may appear".to_owned(),
        _ => "may disappear".to_owned(),
    }
}

pub(super) fn target_words(way: &WhatIfWay) -> String {
    way.target
        .as_ref()
        .map_or_else(|| "any target".to_owned(), ToString::to_string)
}

pub(super) fn door_words(door: Option<u8>) -> String {
    match doors::ALL.iter().find(|it| Some(it.number) == door) {
        Some(door) => format!("door {} ({})", door.number, door.name),
        None => "any door".to_owned(),
    }
}

pub(super) fn hop_words(hop: &ReportedHop) -> String {
    match hop.door {
        Some(door) => format!("[{door}] {}", hop.step),
        None => hop.step.to_string(),
    }
}

fn location_words(way: &WhatIfWay) -> String {
    match &way.location {
        Some(location) => match location.line {
            Some(line) => format!(" ({}:{line})", location.file),
            None => format!(" ({})", location.file),
        },
        None => String::new(),
    }
}
