//! The page `expiry`: all that ends, the earliest first, and what renews it.

use jiff::{SignedDuration, Timestamp};
use keyferry_fleet::facts::{Ending, EndingKind};
use maud::{Markup, html};

use crate::document::Content;
use crate::empty::unreadable;
use crate::list::{pager, past_the_end};
use crate::outlet::{Outlet, View};
use crate::picture::bars;
use crate::query::{PAGE_ROWS, Question};
use crate::table::{cell, number_cell, rest_note, table};
use crate::words::{counted, number, relative, time};

const PAGE: &str = "expiry";
/// The hours of the picture.
const HOURS: usize = 24;

pub(crate) fn expiry_content(view: &View<'_>, question: &Question) -> Content {
    let endings = &view.fleet.endings;
    Content {
        title: "Expiry".to_owned(),
        sentence: expiry_sentence(view),
        body: html! {
            @if let Some(gap) = view.gap_of("targetaccesses") { (unreadable(gap)) }
            @if let Some(without_hub) = outage_text(view) { p.lead { (without_hub) } }
            @if !endings.is_empty() {
                (hour_picture(view))
                (view.heading("What ends"))
                (ending_table(view, question))
                (hour_table(view))
            }
        },
    }
}

/// Whether it is a credential that a delivery wrote, which ends sooner than it is missed.
fn is_delivered(ending: &Ending) -> bool {
    matches!(
        ending.what,
        EndingKind::Token | EndingKind::ClientCertificate
    )
}

fn delivered<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Ending> {
    view.fleet
        .endings
        .iter()
        .filter(|ending| is_delivered(ending))
}

fn expiry_sentence(view: &View<'_>) -> String {
    let count = delivered(view).count();
    if let Some(first) = delivered(view).next() {
        let verb = if first.at > view.now { "ends" } else { "ended" };
        let moment = relative(first.at, view.now);
        return match count {
            1 => format!("The only delivered token {verb} {moment}"),
            _ => format!("The first of {} tokens {verb} {moment}", number(count)),
        };
    }
    match (
        view.gap_of("targetaccesses").is_some(),
        view.fleet.endings.first(),
    ) {
        (true, _) => "When delivered tokens end is not known".to_owned(),
        (false, Some(first)) => format!(
            "No delivery writes a token; the {} {} {}",
            ending_word(first.what),
            if first.at > view.now { "ends" } else { "ended" },
            relative(first.at, view.now)
        ),
        (false, None) => "No delivery writes a token; callers fetch them".to_owned(),
    }
}

/// By when the delivered tokens have ended, if the hub stops now.
fn outage_text(view: &View<'_>) -> Option<String> {
    let ends: Vec<Timestamp> = delivered(view)
        .map(|ending| ending.at)
        .filter(|at| *at > view.now)
        .collect();
    let in_words = |at: &Timestamp| relative(*at, view.now);
    let (half, last) = (ends.get(ends.len() / 2)?, ends.last()?);
    Some(format!(
        "If the hub stops now, callers that fetch a token are refused first. Half of the delivered \
         tokens have ended {}, and all of them {}.",
        in_words(half),
        in_words(last),
    ))
}

/// How many delivered tokens end in each of the next hours.
fn counts_by_hour(view: &View<'_>) -> [usize; HOURS] {
    let mut counts = [0; HOURS];
    for ending in delivered(view).filter(|ending| ending.at >= view.now) {
        let hours = ending.at.duration_since(view.now).as_hours();
        if let Some(count) = usize::try_from(hours)
            .ok()
            .and_then(|hour| counts.get_mut(hour))
        {
            *count += 1;
        }
    }
    counts
}

fn hour_picture(view: &View<'_>) -> Markup {
    let counts = counts_by_hour(view);
    let total: usize = counts.iter().sum();
    html! {
        @if total > 0 {
            (view.heading("Tokens that end in each of the next 24 hours"))
            (bars(
                &format!("{} of the next {HOURS} hours, by hour", counted(total, "ending", "endings")),
                &counts,
                ("now", "in 24 h"),
            ))
        }
    }
}

/// The facts of the picture.
fn hour_table(view: &View<'_>) -> Markup {
    let counts = counts_by_hour(view);
    let rows = html! {
        @for (hour, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            @let start = view.now.saturating_add(SignedDuration::from_hours(hour as i64)).unwrap_or(view.now);
            tr {
                th scope="row" { "from " (time(start, view.now)) }
                (number_cell("Tokens that end", number(*count)))
            }
        }
    };
    html! {
        @if counts.iter().any(|count| *count > 0) {
            (view.heading("The picture as a table"))
            (table("Tokens that end, by hour", &["Hour", "Tokens that end"], &rows))
        }
    }
}

fn ending_table(view: &View<'_>, question: &Question) -> Markup {
    let endings = &view.fleet.endings;
    let rows = html! {
        @for ending in endings.iter().skip(question.offset).take(PAGE_ROWS) {
            tr {
                th scope="row" { (ending_word(ending.what)) }
                (cell("Where", html! { (ending.place) }))
                (cell("Target", html! {
                    @if let Some(target) = &ending.target { (view.target_name(target)) } @else { "–" }
                }))
                (cell("Ends", html! {
                    @if ending.at <= view.now { b.late { "✕ ended " (time(ending.at, view.now)) } }
                    @else { (time(ending.at, view.now)) }
                }))
                (cell("Renewed", html! {
                    @match ending.renew_at {
                        Some(at) => (time(at, view.now)),
                        None => "by hand",
                    }
                }))
            }
        }
    };
    html! {
        @if endings.len() <= question.offset {
            (past_the_end(PAGE, endings.len()))
        } @else {
            (table("What ends", &["What", "Where", "Target", "Ends", "Renewed"], &rows))
        }
        @if view.outlet == Outlet::File {
            (rest_note(PAGE_ROWS, endings.len(), "endings"))
        } @else {
            (pager(PAGE, question, endings.len()))
        }
    }
}

fn ending_word(kind: EndingKind) -> &'static str {
    match kind {
        EndingKind::Token => "token",
        EndingKind::ClientCertificate => "client certificate",
        EndingKind::TargetCertificateAuthority => "CA of the target",
        EndingKind::DiscoveryCertificateAuthority => "CA of discovery",
        EndingKind::ServingCertificate => "serving certificate",
    }
}
