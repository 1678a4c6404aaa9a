//! The page `fleet`: every target, worst first, and how long they work without the hub.

use keyferry_fleet::facts::{Comparison, Fleet, Health, TargetFacts};
use maud::{Markup, html};

use crate::document::Content;
use crate::empty::{nothing_matches, nothing_yet, unreadable};
use crate::list::{column_heads, list_controls, pager, past_the_end};
use crate::outlet::{Destination, Outlet, View};
use crate::picture::{count_state, state_bar};
use crate::query::{PAGE_ROWS, Question, STATES, Sort};
use crate::words::{counted, health_shape, mark, number, relative, span, time_or};

const PAGE: &str = "fleet";

/// The heads of the columns, and the order that each stands for.
const COLUMNS: [(&str, Option<Sort>); 7] = [
    ("Target", Some(Sort::Name)),
    ("State", Some(Sort::Worst)),
    ("Tokens accepted", None),
    ("Trust", None),
    ("CA ends", None),
    ("Accesses", Some(Sort::Accesses)),
    ("Runway", Some(Sort::Runway)),
];

pub(crate) fn fleet_content(view: &View<'_>, question: &Question) -> Content {
    let fleet = view.fleet;
    let gap = view.gap_of("targetclusters");
    let is_empty = fleet.targets.is_empty();
    Content {
        title: "Fleet".to_owned(),
        sentence: fleet_sentence(fleet, gap.is_some()),
        body: html! {
            @if is_empty && gap.is_none() && fleet.accesses.is_empty() {
                (nothing_yet())
            } @else {
                p.lead { (runway_sentence(view)) }
                (count_tiles(view))
                @match (is_empty, gap) {
                    (true, Some(gap)) => (unreadable(gap)),
                    (true, None) => p { "No TargetCluster exists, but accesses name some." },
                    (false, _) => (target_list(view, question)),
                }
            }
        },
    }
}

fn fleet_sentence(fleet: &Fleet, is_hidden: bool) -> String {
    let all = fleet.targets.len();
    if is_hidden && all == 0 {
        return "The targets were not readable".to_owned();
    }
    if all == 0 {
        return "There is no target yet".to_owned();
    }
    let broken = count_state(fleet, Health::Broken);
    let attention = count_state(fleet, Health::Attention);
    let unknown = count_state(fleet, Health::Unknown);
    let of_all = |count: usize| match all {
        1 => "The only target".to_owned(),
        _ if count == all => format!("All {} targets", number(all)),
        _ => format!("{} of {} targets", number(count), number(all)),
    };
    let verb = |count: usize, singular: &'static str, plural: &'static str| {
        if count == 1 { singular } else { plural }
    };
    let partly = if is_hidden {
        " of those that were readable"
    } else {
        ""
    };
    let rest = |count: usize| match count {
        0 => String::new(),
        _ => format!(
            ", {} {} attention",
            number(count),
            verb(count, "needs", "need")
        ),
    };
    match (broken, attention, unknown) {
        (0, 0, 0) => format!("{}{partly} {}", of_all(all), verb(all, "works", "work")),
        (0, 0, unknown) => {
            format!(
                "{}{partly} {} not proven to work",
                of_all(unknown),
                verb(unknown, "is", "are")
            )
        }
        (0, attention, _) => {
            format!(
                "{}{partly} {} attention",
                of_all(attention),
                verb(attention, "needs", "need")
            )
        }
        (broken, attention, _) => format!(
            "{}{partly} {} not work{}",
            of_all(broken),
            verb(broken, "does", "do"),
            rest(attention)
        ),
    }
}

/// How long the fleet works if the hub stops now.
fn runway_sentence(view: &View<'_>) -> Markup {
    let Some(ending) = &view.fleet.runway else {
        let hidden = view.gap_of("targetaccesses").is_some();
        return match hidden {
            true => html! { "How long the fleet works without the hub is not known." },
            false => html! {
                "If the hub stops now, nothing that was delivered ends: no delivery writes a token, \
                 and callers that fetch one depend on the hub."
            },
        };
    };
    let moment = relative(ending.at, view.now);
    html! {
        @if ending.at > view.now {
            "If the hub stops now, the first token ends " b { (moment) }
        } @else {
            "The first token ended " b { (moment) }
        }
        " (" (ending.place)
        @if let Some(target) = &ending.target { " at " (view.target_name(target)) }
        ")."
    }
}

/// The four figures above the table.
fn count_tiles(view: &View<'_>) -> Markup {
    let fleet = view.fleet;
    let refusals: usize = fleet.denials.groups.iter().map(|group| group.count).sum();
    let runway = match &fleet.runway {
        Some(ending) if ending.at > view.now => span(ending.at.duration_since(view.now)),
        Some(_) => "over".to_owned(),
        None => "–".to_owned(),
    };
    html! {
        ul.tiles {
            li {
                span.label { "Runway" } b.figure { (runway) }
                a href=(view.outlet.link(Destination::Expiry)) { "all that ends" }
            }
            li.wide {
                span.label { "Targets" } b.figure { (number(fleet.targets.len())) }
                (state_bar(fleet))
                span.states {
                    @for (health, _) in STATES {
                        @let count = count_state(fleet, health);
                        @if count > 0 { span.state { (mark(health)) " " (number(count)) } " " }
                    }
                }
            }
            li {
                span.label { "Accesses" } b.figure { (number(fleet.accesses.len())) }
                a href=(view.outlet.link(Destination::Tenants)) {
                    "in " (counted(fleet.tenants.len(), "namespace", "namespaces"))
                }
            }
            li {
                span.label { "Refusals, last hour" }
                b.figure { @if fleet.denials.source.is_some() { (number(refusals)) } @else { "?" } }
                a href=(view.outlet.link(Destination::Denials)) {
                    @if fleet.denials.source.is_some() { "why" } @else { "not read" }
                }
            }
        }
    }
}

fn target_list(view: &View<'_>, question: &Question) -> Markup {
    let targets = matching_targets(view, question);
    let in_viewer = view.outlet != Outlet::File;
    let rows = if in_viewer { PAGE_ROWS } else { targets.len() };
    let counts = STATES.map(|(health, word)| (health, word, count_state(view.fleet, health)));
    html! {
        (view.heading("Targets"))
        @if in_viewer { (list_controls(PAGE, question, &counts, "Target, address or cause")) }
        @if targets.is_empty() {
            (nothing_matches(PAGE, question, "target"))
        } @else if targets.len() <= question.offset {
            (past_the_end(PAGE, targets.len()))
        } @else {
            table.list.targets {
                caption { "Targets" }
                (column_heads(PAGE, question, &COLUMNS, in_viewer))
                tbody {
                    @for target in targets.iter().skip(question.offset).take(rows) {
                        (target_row(view, target))
                    }
                }
            }
            @if in_viewer { (pager(PAGE, question, targets.len())) }
        }
    }
}

/// The targets that the question asks for, in its order.
fn matching_targets<'a>(view: &View<'a>, question: &Question) -> Vec<&'a TargetFacts> {
    let matches = |target: &&TargetFacts| {
        let address = target.address.as_ref().map(ToString::to_string);
        let cause = target.cause.to_string();
        let reason = target.reason.as_ref().map(ToString::to_string);
        let texts = [target.name.as_str(), &cause];
        let optional = [address.as_deref(), reason.as_deref()];
        question.state.is_none_or(|state| state == target.health)
            && question.matches_any(texts.into_iter().chain(optional.into_iter().flatten()))
    };
    let mut targets: Vec<&TargetFacts> = view.fleet.targets.iter().filter(matches).collect();
    match question.sort {
        Sort::Worst => {}
        Sort::Runway => {
            targets.sort_by_key(|target| (target.next_ending.is_none(), target.next_ending));
        }
        Sort::Name => targets.sort_by_key(|target| &target.name),
        Sort::Accesses => targets.sort_by_key(|target| std::cmp::Reverse(target.accesses)),
    }
    targets
}

/// A row of the list. The style sheet names its cells on a narrow screen, because the file has 300
/// of them.
fn target_row(view: &View<'_>, target: &TargetFacts) -> Markup {
    let now = view.now;
    html! {
        tr {
            th scope="row" {
                (view.target_name(&target.name))
                (tags(target))
            }
            td { (state_and_cause(target)) }
            td { (accepted_text(target)) }
            td { (trust_text(target)) }
            td { (time_or(target.certificate_authority.ends, now, view.missing())) }
            td.number {
                (number(target.accesses))
                @if target.tenants > 0 { " " span.faint { "in " (number(target.tenants)) } }
            }
            td { (time_or(target.next_ending, now, "–")) }
        }
    }
}

/// What else is to be known about a target beside its name.
pub(crate) fn tags(target: &TargetFacts) -> Markup {
    html! {
        @if target.hub { " " span.tag { "hub" } }
        @if target.relying_party { " " span.tag { "no cluster" } }
        @if target.suspended { " " span.tag { "suspended" } }
    }
}

fn state_and_cause(target: &TargetFacts) -> Markup {
    html! {
        (mark(target.health))
        @if !target.cause.is_empty() { " " span.cause { (target.cause) } }
        @if let Some(reason) = &target.reason { " " span.code { (reason) } }
    }
}

/// How the target answered tokens, in few words.
pub(crate) fn accepted_text(target: &TargetFacts) -> Markup {
    let accepted = &target.accepted;
    html! {
        @if accepted.asked == 0 {
            span.faint { "never asked" }
        } @else {
            (accepted.accepted) " of " (accepted.asked)
            @if accepted.refused > 0 { ", " (accepted.refused) " refused" }
            @if accepted.unanswered > 0 { ", " (accepted.unanswered) " unanswered" }
        }
    }
}

/// Desired trust against live, in few words.
fn trust_text(target: &TargetFacts) -> Markup {
    let Some(trust) = &target.trust else {
        return html! { span.faint { "not compared" } };
    };
    let parts = [
        &trust.file,
        &trust.loaded_file,
        &trust.keys,
        &trust.behaviour,
    ];
    let differing = parts
        .iter()
        .filter(|part| matches!(part, Comparison::Differs { .. }))
        .count();
    let matching = parts
        .iter()
        .filter(|part| matches!(part, Comparison::Matches))
        .count();
    html! {
        @if differing > 0 {
            (health_shape(Health::Broken)) " " (counted(differing, "part differs", "parts differ"))
        } @else if matching == parts.len() {
            "matches"
        } @else if matching > 0 {
            (matching) " of " (parts.len()) " match"
        } @else {
            span.faint { "not compared" }
        }
    }
}
