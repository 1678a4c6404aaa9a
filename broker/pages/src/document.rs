//! The document around a page: head, navigation, what has to be known before the facts are read,
//! and where they come from.

use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Reading, Source};
use keyferry_fleet::gap::{Gap, GapCause};
use maud::{DOCTYPE, Markup, html};
use url::form_urlencoded::Serializer;

use crate::outlet::{Destination, Outlet, View};
use crate::style::{file_policy, style_element};
use crate::table::{cell, table};
use crate::words::{counted, span, time, utc};

/// Beyond it a page says how old its facts are.
const FRESH_SECONDS: i64 = 5 * 60;

/// One page of the viewer, or one section of the file.
pub(crate) struct Content {
    /// What it is about, in the title and above the sentence.
    pub(crate) title: String,
    /// The answer to the page's question.
    pub(crate) sentence: String,
    /// Everything below it.
    pub(crate) body: Markup,
}

/// The pages that navigation leads to.
const NAVIGATION: [(Destination<'static>, &str); 5] = [
    (Destination::Fleet, "Fleet"),
    (Destination::Tenants, "Tenants"),
    (Destination::Expiry, "Expiry"),
    (Destination::Keys, "Keys"),
    (Destination::Denials, "Denials"),
];

/// A page of the viewer, by its path and its query. The path is its link in the navigation, if it has
/// one.
pub(crate) fn viewer_document(
    view: &View<'_>,
    content: &Content,
    path: &str,
    query: &str,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (html_head(view, &content.title))
            body {
                (page_header(view, path, Some(&read_again_link(path, query))))
                main #main tabindex="-1" {
                    p.kicker { (content.title) }
                    h1 { (content.sentence) }
                    (content.body)
                }
                (page_footer(view))
            }
        }
    }
}

/// The file, with a section for each of the contents and its anchor.
pub(crate) fn file_document(view: &View<'_>, title: &str, sections: &[(&str, Content)]) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (html_head(view, title))
            body {
                (page_header(view, "", None))
                main #main tabindex="-1" {
                    p.note {
                        "This file holds no token and no key, but it is a map of the fleet: keep it \
                         as private as a kubeconfig."
                    }
                    h1 { (title) }
                    @for (anchor, content) in sections {
                        section id=(anchor) {
                            p.kicker { (content.title) }
                            h2 { (content.sentence) }
                            (content.body)
                        }
                    }
                }
                (page_footer(view))
            }
        }
    }
}

fn html_head(view: &View<'_>, title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            @if view.outlet == Outlet::File {
                meta http-equiv="Content-Security-Policy" content=(file_policy());
            }
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="referrer" content="no-referrer";
            title { (title) " · Keyferry" }
            (style_element())
        }
    }
}

fn page_header(view: &View<'_>, current: &str, read_again: Option<&str>) -> Markup {
    html! {
        a.skip href="#main" { "Skip to the content" }
        header {
            div.bar {
                p.brand { (brand_picture()) "Keyferry" }
                nav aria-label="Pages" {
                    ul {
                        @for (destination, name) in NAVIGATION {
                            @let link = view.outlet.link(destination);
                            li {
                                a href=(link) aria-current=[(link == current).then_some("page")] {
                                    (name)
                                }
                            }
                        }
                    }
                }
                (provenance(view, read_again))
            }
            (notices(view))
        }
    }
}

/// The mark of the product: a boat on two waves.
fn brand_picture() -> Markup {
    html! {
        svg.logo viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" {
            path.hull d="M3 17h26l-4 7H8zM9 15V9h11l4 6zM12 8V4h3v4z";
            path.wave d="M2 27q3.5-3 7 0t7 0 7 0 7 0" fill="none";
        }
    }
}

/// The short line about the reading; the foot has the rest.
fn provenance(view: &View<'_>, read_again: Option<&str>) -> Markup {
    let reading = &view.fleet.reading;
    html! {
        p.provenance {
            "Read " (time(reading.read_at, view.now)) " · "
            @if let Some(link) = read_again {
                a href=(link) { "read again" } " · "
            }
            a href="#reading" { "about these facts" }
        }
    }
}

/// The relative URL with which the viewer reads the hub again, and returns to this page.
fn read_again_link(path: &str, query: &str) -> String {
    let page = match query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    let then = Serializer::new(String::new())
        .append_pair(crate::RETURN_PARAMETER, &page)
        .finish();
    let session = "../".repeat(path.matches('/').count());
    format!("{session}{}?{then}", crate::READ_AGAIN_PATH)
}

/// What has to be known before anything is concluded from the page.
fn notices(view: &View<'_>) -> Markup {
    let reading = &view.fleet.reading;
    let age = reading.judged_at.duration_since(reading.read_at);
    html! {
        @if let Source::Generated { seed } = reading.source {
            p.notice { b { "Generated. " } "None of this exists: a made-up fleet with seed " (seed) "." }
        }
        @if reading.source == Source::Demo {
            p.notice {
                b { "The demo. " }
                "Its hub and its target run in this process; the exchange and the refusal are those that it has just made."
            }
        }
        @if reading.redacted {
            p.notice {
                b { "Redacted. " } "Addresses, audiences, users and namespaces of others are left out."
            }
        }
        @if let Some(tenant) = &reading.tenant {
            p.notice { b { "One namespace. " } "Only " (tenant) " was read; other tenants are not here." }
        }
        @if let Some(failure) = &reading.failed {
            p.notice.broken {
                span aria-hidden="true" { "✕ " } b { "The hub did not answer " (time(failure.at, view.now)) ". " }
                "These facts were read " (time(reading.read_at, view.now)) ". " (failure.message)
                " " b { "Fix: " } (ForeignText::new(&failure.fix))
            }
        } @else if age.as_secs() > FRESH_SECONDS {
            p.notice.attention {
                span aria-hidden="true" { "▲ " } b { "These facts are " (span(age)) " old. " }
                "What happened since is not here."
            }
        }
        @if !view.fleet.gaps.is_empty() {
            p.notice.unknown {
                span aria-hidden="true" { "? " }
                b { (counted(view.fleet.gaps.len(), "list was", "lists were")) " not readable: " }
                (hidden_facts(&view.fleet.gaps)) " " a href="#gaps" { "What would change that" }
            }
        }
    }
}

/// What the first gaps hide, as a sentence.
fn hidden_facts(gaps: &[Gap]) -> String {
    const NAMED_GAPS: usize = 3;
    let hidden: Vec<String> = gaps
        .iter()
        .take(NAMED_GAPS)
        .map(|gap| ForeignText::new(&gap.hides).to_string())
        .collect();
    let more = match gaps.len().saturating_sub(NAMED_GAPS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("not known here: {}{more}.", hidden.join("; "))
}

/// Who read the facts, where and when, and what was not readable.
fn page_footer(view: &View<'_>) -> Markup {
    let reading = &view.fleet.reading;
    html! {
        footer #reading tabindex="-1" {
            h2 { "About these facts" }
            dl.facts {
                div { dt { "Source" } dd { (source_text(reading)) } }
                div { dt { "Read by" } dd { (reader_text(reading)) } }
                div { dt { "Read at" } dd { (utc(reading.read_at)) } }
                div { dt { "Judged at" } dd { (utc(reading.judged_at)) } }
            }
            @if view.fleet.gaps.is_empty() {
                p { "Every list was readable." }
            } @else {
                (gap_table(&view.fleet.gaps))
            }
        }
    }
}

fn source_text(reading: &Reading) -> String {
    match &reading.source {
        Source::Hub { server } => format!("the hub {server}"),
        Source::Folder { path } => format!("the folder {path}"),
        Source::Demo => "the demo's embedded hub and target".to_owned(),
        Source::Generated { seed } => format!("generated with seed {seed}"),
    }
}

fn reader_text(reading: &Reading) -> String {
    match (&reading.user, &reading.source) {
        (Some(user), _) => user.to_string(),
        (None, Source::Hub { .. }) if reading.redacted => "left out".to_owned(),
        (None, Source::Hub { .. }) => "not known".to_owned(),
        (None, Source::Demo) => "the demo".to_owned(),
        (None, _) => "nobody: no hub was asked".to_owned(),
    }
}

fn gap_table(gaps: &[Gap]) -> Markup {
    /// One cluster seldom has more, and each row has a whole Role in it.
    const MAX_GAPS: usize = 50;
    let rows = html! {
        @for gap in gaps.iter().take(MAX_GAPS) {
            tr {
                th scope="row" {
                    (ForeignText::new(&gap.resource))
                    @if let Some(namespace) = &gap.namespace { " in " (namespace) }
                    @if let Some(target) = &gap.target { " at " (target) }
                }
                (cell("Why", html! {
                    b { (cause_text(gap.cause)) } @if !gap.message.is_empty() { ": " (gap.message) }
                }))
                (cell("Not known here", ForeignText::new(&gap.hides).to_string()))
                (cell("Fix", ForeignText::new(&gap.fix).to_string()))
            }
        }
    };
    html! {
        section #gaps tabindex="-1" {
            h3 { "What was not readable" }
            (table("Lists that are missing", &["List", "Why", "Not known here", "Fix"], &rows))
            (crate::table::rest_note(MAX_GAPS, gaps.len(), "lists"))
        }
    }
}

fn cause_text(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Refused => "refused",
        GapCause::Absent => "no file",
        GapCause::Cut => "cut short",
        GapCause::Failed => "failed",
    }
}
