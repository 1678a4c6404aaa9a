//! The page `denials`: what was refused, to whom, why, and what to do.

use jiff::SignedDuration;
use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Denial, DenialGroup};
use maud::{Markup, html};

use crate::document::Content;
use crate::empty::unreadable;
use crate::outlet::View;
use crate::picture::bars;
use crate::table::{cell, number_cell, rest_note, table};
use crate::words::{counted, number, time, utc};

const MINUTES: usize = 60;
const MAX_GROUPS: usize = 100;

pub(crate) fn denials_content(view: &View<'_>) -> Content {
    let denials = &view.fleet.denials;
    Content {
        title: "Denials".to_owned(),
        sentence: denials_sentence(view),
        body: html! {
            @match &denials.source {
                None => (not_read(view)),
                Some(source) => p.lead {
                    (counted(denials.lines, "audit line", "audit lines")) " from "
                    (ForeignText::new(source))
                    @if let Some(since) = denials.since { ", the first " (time(since, view.now)) } "."
                },
            }
            @if !denials.groups.is_empty() {
                (view.heading("Refusals in each of the last 60 minutes"))
                (bars("Refusals by minute", &counts_by_minute(&denials.groups), ("1 h ago", "now")))
                (view.heading("By reason and namespace"))
                (group_table(&denials.groups))
            }
            @if !denials.newest.is_empty() {
                (view.heading("The newest"))
                (newest_table(view, &denials.newest))
            }
            @if !denials.groups.is_empty() { (minute_table(view)) }
        },
    }
}

fn not_read(view: &View<'_>) -> Markup {
    match view.gap_of("pods/log").or_else(|| view.gap_of("pods")) {
        Some(gap) => unreadable(gap),
        None => html! {
            div.empty {
                p { "No audit line was read, so nothing is known about refusals." }
                p {
                    b { "Fix: " } "give a file of audit lines: "
                    code { "keyferry fleet --audit FILE" }
                }
            }
        },
    }
}

fn denials_sentence(view: &View<'_>) -> String {
    let denials = &view.fleet.denials;
    if denials.source.is_none() {
        return "Refusals were not read".to_owned();
    }
    let hour_ago = view
        .now
        .saturating_sub(SignedDuration::from_hours(1))
        .unwrap_or(view.now);
    // Lines may begin later than the hour that the sentence would speak about.
    let period = match denials.since {
        Some(since) if since > hour_ago => format!("since {}", utc(since)),
        _ => "in the last hour".to_owned(),
    };
    let total: usize = denials.groups.iter().map(|group| group.count).sum();
    let Some(largest) = denials.groups.first() else {
        return format!("Nothing was refused {period}");
    };
    let count = counted(total, "refusal", "refusals");
    let reason = format!("{}{}", largest.reason, namespace_text(&largest.namespace));
    match largest.count == total {
        true => format!("{count} {period}, {reason}"),
        false => format!(
            "{count} {period}, {} of them {reason}",
            number(largest.count)
        ),
    }
}

fn namespace_text(namespace: &ForeignText) -> String {
    match namespace.is_empty() {
        true => " to callers that are not known".to_owned(),
        false => format!(" by {namespace}"),
    }
}

/// The refusals of each minute, the oldest first.
fn counts_by_minute(groups: &[DenialGroup]) -> [usize; MINUTES] {
    let mut counts = [0; MINUTES];
    for (minute, count) in groups.iter().flat_map(|group| &group.by_minute) {
        if let Some(total) = counts.get_mut(usize::from(*minute)) {
            *total += count;
        }
    }
    counts
}

fn group_table(groups: &[DenialGroup]) -> Markup {
    let rows = html! {
        @for group in groups.iter().take(MAX_GROUPS) {
            tr {
                th scope="row" { (group.reason) }
                (cell("Namespace", html! {
                    @if group.namespace.is_empty() { span.faint { "not known" } } @else { (group.namespace) }
                }))
                (number_cell("Refusals", number(group.count)))
            }
        }
    };
    html! {
        (table("Refusals of the last hour", &["Reason", "Namespace", "Refusals"], &rows))
        (rest_note(MAX_GROUPS, groups.len(), "groups"))
    }
}

fn newest_table(view: &View<'_>, newest: &[Denial]) -> Markup {
    const COLUMNS: [&str; 6] = ["When", "Caller", "Access", "Target", "Why", "What to do"];
    let text = |text: &Option<ForeignText>| match text {
        Some(text) => html! { (text) },
        None => html! { span.faint { (view.missing()) } },
    };
    let rows = html! {
        @for denial in newest {
            tr {
                th scope="row" { (time(denial.at, view.now)) }
                (cell("Caller", text(&denial.caller)))
                (cell("Access", text(&denial.access)))
                (cell("Target", text(&denial.target)))
                (cell("Why", html! { span.code { (denial.reason) } " " (ForeignText::new(&denial.cause)) }))
                (cell("What to do", html! { (ForeignText::new(&denial.fix)) }))
            }
        }
    };
    table("The newest refusals", &COLUMNS, &rows)
}

/// The facts of the picture.
fn minute_table(view: &View<'_>) -> Markup {
    let counts = counts_by_minute(&view.fleet.denials.groups);
    let rows = html! {
        @for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            @let minutes = SignedDuration::from_mins((MINUTES - index) as i64);
            @let start = view.now.saturating_sub(minutes).unwrap_or(view.now);
            tr {
                th scope="row" { "from " (time(start, view.now)) }
                (number_cell("Refusals", number(*count)))
            }
        }
    };
    html! {
        (view.heading("The picture as a table"))
        (table("Refusals by minute", &["Minute", "Refusals"], &rows))
    }
}
