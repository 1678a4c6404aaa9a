//! The controls of a long list: search, states as links, order, and pages of 100 rows.

use keyferry_fleet::facts::Health;
use maud::{Markup, html};

use crate::query::{PAGE_ROWS, Question, STATES, Sort};
use crate::words::{mark, number};

/// The form and the links above a list. `counts` says how many rows have each state.
pub(crate) fn list_controls(
    page: &str,
    question: &Question,
    counts: &[(Health, &str, usize)],
    search_label: &str,
) -> Markup {
    let all: usize = counts.iter().map(|(_, _, count)| count).sum();
    html! {
        div.controls {
            ul.filters aria-label="States" {
                li {
                    a href=(question.with_state(None).link(page))
                        aria-current=[question.state.is_none().then_some("true")] {
                        "all " (number(all))
                    }
                }
                @for (health, _, count) in counts.iter().filter(|(_, _, count)| *count > 0) {
                    li {
                        a href=(question.with_state(Some(*health)).link(page))
                            aria-current=[(question.state == Some(*health)).then_some("true")] {
                            (mark(*health)) " " (number(*count))
                        }
                    }
                }
            }
            (search_form(page, question, search_label))
        }
    }
}

fn search_form(page: &str, question: &Question, search_label: &str) -> Markup {
    html! {
        form method="get" action=(page) role="search" {
            @if let Some((_, word)) = STATES.iter().find(|(health, _)| Some(*health) == question.state) {
                input type="hidden" name="state" value=(word);
            }
            label {
                span { (search_label) }
                input type="search" name="q" value=(question.search) maxlength="200"
                    autocomplete="off" spellcheck="false";
            }
            label {
                span { "Order" }
                select name="sort" {
                    @for (sort, word, text) in Sort::ALL {
                        option value=(word) selected[sort == question.sort] { (text) }
                    }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

/// The heads of a list's columns. Those with an order are links to it.
pub(crate) fn column_heads(
    page: &str,
    question: &Question,
    columns: &[(&str, Option<Sort>)],
    with_links: bool,
) -> Markup {
    html! {
        thead {
            tr {
                @for (name, sort) in columns {
                    @let is_current = *sort == Some(question.sort);
                    th scope="col" aria-sort=[is_current.then(|| direction(question.sort))] {
                        @match sort {
                            Some(sort) if with_links => {
                                a href=(question.with_sort(*sort).link(page)) { (name) }
                            }
                            _ => (name),
                        }
                    }
                }
            }
        }
    }
}

fn direction(sort: Sort) -> &'static str {
    match sort {
        Sort::Worst | Sort::Accesses => "descending",
        Sort::Runway | Sort::Name => "ascending",
    }
}

/// What a page says that begins after the last row.
pub(crate) fn past_the_end(page: &str, all: usize) -> Markup {
    html! { p { "There are only " (number(all)) " rows. " a href=(page) { "show the first" } } }
}

/// Which rows are shown, and the links to those before and after.
pub(crate) fn pager(page: &str, question: &Question, all: usize) -> Markup {
    let last = (question.offset + PAGE_ROWS).min(all);
    html! {
        @if all > PAGE_ROWS {
            nav.pager aria-label="Rows" {
                @if question.offset > 0 {
                    a href=(question.with_offset(question.offset.saturating_sub(PAGE_ROWS)).link(page)) {
                        "← previous"
                    }
                }
                span {
                    (number((question.offset + 1).min(all))) "–" (number(last)) " of " (number(all))
                }
                @if last < all {
                    a href=(question.with_offset(question.offset + PAGE_ROWS).link(page)) { "next →" }
                }
            }
        }
    }
}
