//! The page of one question about reach: who can do something at a target, and by which way.

use keyferry_api::foreign_text::ForeignText;
use keyferry_reach::report::{Report, ReportedAnswer, ReportedHop, ReportedWay};
use maud::{DOCTYPE, Markup, html};

use crate::style::{file_policy, style_element};
use crate::table::{cell, table};
use crate::words::{counted, number};

/// How many rows a table of the page has.
const MAX_ROWS: usize = 100;

/// Renders the answers to one question as a file.
#[must_use]
pub fn reach_file(report: &Report) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(file_policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "Reach · Keyferry" }
                (style_element())
            }
            body {
                main #main tabindex="-1" {
                    p.note {
                        "This file holds no token and no key, but it is a map for an attacker: keep \
                         it as private as a kubeconfig."
                    }
                    p.kicker { (question(report)) }
                    h1 { (reach_sentence(report)) }
                    @for text in &report.disagreements {
                        p.notice.broken {
                            span aria-hidden="true" { "✕ " } b { "The hub disagrees. " } (text)
                            ". What rests on it is undetermined."
                        }
                    }
                    (way_table(report))
                    (cut(report))
                    (undecided_table(report))
                    (miss_table(report))
                    (assumptions(report))
                }
            }
        }
    };
    document.into_string()
}

fn question(report: &Report) -> String {
    match (&report.question.subject, &report.question.request) {
        (Some(subject), _) => format!("What {subject} reaches"),
        (None, Some(request)) => format!("Who can {request}"),
        (None, None) => "Who has a token".to_owned(),
    }
}

fn reach_sentence(report: &Report) -> String {
    let sum = |count: fn(&keyferry_reach::report::TargetCounts) -> usize| -> usize {
        report.targets.iter().map(count).sum()
    };
    let ways: usize = report.answers.iter().map(|answer| answer.ways.len()).sum();
    format!(
        "Yes: {} by {}; undetermined: {}; no: {}",
        number(sum(|it| it.yes)),
        counted(ways, "way", "ways"),
        number(sum(|it| it.undetermined)),
        number(sum(|it| it.no))
    )
}

fn subject(answer: &ReportedAnswer) -> Markup {
    html! { (answer.kind) " " (answer.subject) }
}

fn rows_left_out(shown: usize, all: usize) -> Markup {
    html! {
        @if all > shown {
            p.note { "The first " (number(shown)) " of " (number(all)) ". All of them: " code { "-o json" } }
        }
    }
}

fn way_table(report: &Report) -> Markup {
    let ways: Vec<(&ReportedAnswer, &ReportedWay)> = report
        .answers
        .iter()
        .flat_map(|answer| answer.ways.iter().map(move |way| (answer, way)))
        .collect();
    if ways.is_empty() {
        return html! { div.empty { p { "No way is known." } } };
    }
    let columns = [
        "Subject",
        "Doors and steps at the hub",
        "Target",
        "As user",
        "Right",
    ];
    let rows = html! {
        @for (answer, way) in ways.iter().take(MAX_ROWS) {
            tr {
                th scope="row" { (subject(answer)) }
                (cell(columns[1], steps(&way.hub)))
                (cell(columns[2], html! { (answer.target) }))
                (cell(columns[3], html! { (way.user) }))
                (cell(columns[4], steps(&way.target)))
            }
        }
    };
    html! {
        (table("Every way, with each step", &columns, &rows))
        (rows_left_out(MAX_ROWS, ways.len()))
    }
}

fn steps(hops: &[ReportedHop]) -> Markup {
    html! {
        ol {
            @for hop in hops {
                li { @if let Some(door) = hop.door { b { "door " (door) } " " } (hop.step) }
            }
        }
    }
}

fn cut(report: &Report) -> Markup {
    let line = |name: Markup, cut: &[ForeignText]| {
        html! {
            li {
                (name) ": "
                @for (index, object) in cut.iter().enumerate() { @if index > 0 { ", " } (object) }
            }
        }
    };
    let answers = report.answers.iter().take(MAX_ROWS);
    let own: Vec<Markup> = answers
        .filter_map(|answer| Some(line(subject(answer), answer.cut.as_ref()?)))
        .collect();
    html! {
        @if !own.is_empty() {
            h2 { "The fewest removals that close every way" }
            ul {
                @for line in &own { (line) }
                @if let Some(cut) = &report.cut { (line(html! { "all of them" }, cut)) }
            }
        }
    }
}

fn undecided_table(report: &Report) -> Markup {
    let columns = ["Subject", "Target", "Not known", "To decide"];
    let open: Vec<&ReportedAnswer> = report
        .answers
        .iter()
        .filter(|answer| answer.answer == "undetermined")
        .collect();
    let rows = html! {
        @for answer in open.iter().take(MAX_ROWS) {
            @for fact in &answer.undecided {
                tr {
                    th scope="row" { (subject(answer)) }
                    (cell(columns[1], html! { (answer.target) }))
                    (cell(columns[2], html! { (fact.description) }))
                    (cell(columns[3], html! { code { (fact.decide) } }))
                }
            }
        }
        @for fact in &report.unread_subjects {
            tr {
                th scope="row" { "other subjects" }
                (cell(columns[1], "each"))
                (cell(columns[2], html! { (fact.description) }))
                (cell(columns[3], html! { code { (fact.decide) } }))
            }
        }
    };
    html! {
        @if !open.is_empty() || !report.unread_subjects.is_empty() {
            (table("Undetermined, and what would decide it", &columns, &rows))
            (rows_left_out(MAX_ROWS, open.len()))
        }
    }
}

fn miss_table(report: &Report) -> Markup {
    let columns = ["Subject", "Target", "What it lacks"];
    let misses: Vec<(&ReportedAnswer, &ForeignText)> = report
        .answers
        .iter()
        .filter_map(|answer| Some((answer, answer.nearest_miss.as_ref()?)))
        .collect();
    let rows = html! {
        @for (answer, miss) in misses.iter().take(MAX_ROWS) {
            tr {
                th scope="row" { (subject(answer)) }
                (cell(columns[1], html! { (answer.target) }))
                (cell(columns[2], html! { (miss) }))
            }
        }
    };
    html! {
        @if !misses.is_empty() {
            (table("No, and what came nearest", &columns, &rows))
            (rows_left_out(MAX_ROWS, misses.len()))
        }
    }
}

fn assumptions(report: &Report) -> Markup {
    html! {
        h2 { "What every answer assumes" }
        ul { @for text in &report.assumptions { li { (text) } } }
        p { (report.checked_words()) "." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_reach;

    #[test]
    fn text_of_others_changes_no_tag() {
        let tags = |html: &str| html.matches('<').count();
        let plain = reach_file(&sample_reach("plain"));
        for text in [
            "<script>alert(1)</script>",
            "\"><img src=x>",
            "javascript:a\n\u{202e}<b>",
        ] {
            let page = reach_file(&sample_reach(text));
            assert_eq!(tags(&page), tags(&plain), "{text}");
            assert!(
                !page.contains("<script") && !page.contains('\u{202e}'),
                "{text}"
            );
        }
        insta::assert_snapshot!(plain.split_once("</style>").map_or("", |(_, body)| body));
    }
}
