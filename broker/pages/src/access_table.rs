//! The accesses of a target or of a tenant.

use jiff::Timestamp;
use keyferry_fleet::facts::{AccessFacts, DeliveryFacts, Health};
use maud::{Markup, html};

use crate::list::{pager, past_the_end};
use crate::outlet::View;
use crate::query::{PAGE_ROWS, Question};
use crate::table::{cell, rest_note};
use crate::words::{answer_mark, joined, mark, time, time_or};

/// Rows of one target in the file.
const MAX_FILE_ROWS: usize = 5000;

/// Whether the page is about one target, so that no row has to name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    OneTarget,
    EachTarget,
}

/// A page of accesses, worst first. `page` is the last part of the page's own path.
pub(crate) fn access_table(
    view: &View<'_>,
    accesses: &[&AccessFacts],
    question: &Question,
    page: &str,
    shown: Shown,
) -> Markup {
    let rows = accesses.iter().skip(question.offset).take(PAGE_ROWS);
    html! {
        @if accesses.is_empty() {
            p {
                @if view.gap_of("targetaccesses").is_some() { "The accesses were not readable." }
                @else { "There is none." }
            }
        } @else if accesses.len() <= question.offset {
            (past_the_end(page, accesses.len()))
        } @else {
            table.list {
                caption { "Accesses" }
                thead {
                    tr {
                        th scope="col" { "Access" } th scope="col" { "State" }
                        @if shown == Shown::EachTarget { th scope="col" { "Target" } }
                        th scope="col" { "As" } th scope="col" { "Deliveries" } th scope="col" { "Accepted" }
                        th scope="col" { "Exposed until" }
                    }
                }
                tbody { @for access in rows { (access_row(view, access, shown)) } }
            }
            (pager(page, question, accesses.len()))
        }
    }
}

fn access_row(view: &View<'_>, access: &AccessFacts, shown: Shown) -> Markup {
    html! {
        tr {
            th scope="row" {
                (view.tenant_name(&access.name.namespace)) "/" (access.name.name)
                @if access.suspended { " " span.tag { "suspended" } }
            }
            (cell("State", html! {
                (mark(access.health))
                @if !access.cause.is_empty() { " " span.cause { (access.cause) } }
                @if let Some(reason) = &access.reason { " " span.code { (reason) } }
            }))
            @if shown == Shown::EachTarget { (cell("Target", view.target_name(&access.target))) }
            (cell("As", html! {
                (access.service_account)
                @if !access.callers.is_empty() { ", for " (joined(&access.callers)) }
                @if let Some(user) = &access.user { " " span.code { (user) } }
            }))
            (cell("Deliveries", html! {
                @for delivery in &access.deliveries { div { (delivery_text(view.now, delivery)) } }
            }))
            (cell("Accepted", html! {
                (answer_mark(&access.accepted))
                @if let Some(at) = access.asked_at { " " span.faint { (time(at, view.now)) } }
            }))
            (cell("Exposed until", time_or(access.exposure_until, view.now, "–")))
        }
    }
}

fn delivery_text(now: Timestamp, delivery: &DeliveryFacts) -> Markup {
    let failure = delivery
        .reason
        .as_ref()
        .filter(|reason| **reason != *"Delivered");
    html! {
        (delivery.delivery_type)
        @if let Some(object) = &delivery.object { " " (object) }
        @if let Some(reason) = failure { " ✕ " (reason) }
        @if let Some(at) = delivery.expires_at { ", ends " (time(at, now)) }
        @if let Some(at) = delivery.renew_at { ", renewed " (time(at, now)) }
    }
}

/// The accesses of a target in the file, where 10,000 rows have to stay small: moments are absolute,
/// because the file is read later. The names have no `scope`, which a first column of heads has by
/// itself.
pub(crate) fn access_rows(view: &View<'_>, accesses: &[&AccessFacts]) -> Markup {
    let rows = accesses.iter().take(MAX_FILE_ROWS);
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Access" } th scope="col" { "State" } th scope="col" { "As" }
                    th scope="col" { "Deliveries" } th scope="col" { "First ends" }
                }
            }
            tbody { @for access in rows { (small_access_row(view, access)) } }
        }
        (rest_note(MAX_FILE_ROWS, accesses.len(), "accesses"))
    }
}

fn small_access_row(view: &View<'_>, access: &AccessFacts) -> Markup {
    let ends = access
        .deliveries
        .iter()
        .filter_map(|delivery| delivery.expires_at)
        .min();
    let types: Vec<String> = access
        .deliveries
        .iter()
        .map(|delivery| delivery.delivery_type.to_string())
        .collect();
    html! {
        tr {
            th { (access.name) }
            td {
                @if access.health == Health::Ready {
                    "● ready"
                } @else {
                    (mark(access.health)) " " (access.cause)
                    @if let Some(reason) = &access.reason { " " (reason) }
                }
                @if access.suspended { " suspended" }
            }
            td { (access.service_account) }
            td { (types.join(", ")) }
            td {
                @match ends {
                    Some(at) => time { (at.strftime("%Y-%m-%d %H:%MZ")) },
                    None => { @if view.fleet.reading.redacted { "left out" } @else { "–" } }
                }
            }
        }
    }
}
