//! The page `target/NAME`: how one target is, what it trusts, and who may use it.

use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Answer, Comparison, Finding, Health, TargetFacts, TrustFacts};
use maud::{Markup, html};

use crate::access_table::{Shown, access_rows, access_table};
use crate::document::Content;
use crate::fleet_page::{accepted_text, tags};
use crate::outlet::{Outlet, View};
use crate::query::Question;
use crate::table::{cell, rest_note, table};
use crate::words::{answer_mark, counted, joined, mark, mark_with, time, time_or};

pub(crate) fn target_content(
    view: &View<'_>,
    target: &TargetFacts,
    question: &Question,
) -> Content {
    let accesses = view.accesses_of(&target.name);
    Content {
        title: format!("Target {}", target.name),
        sentence: target_sentence(target),
        body: html! {
            p.lead { (describe_target(target)) }
            (next_command(target))
            (identity(view, target))
            (view.heading("What it answered"))
            (check_table(view, target))
            (finding_table(view, &target.findings))
            (trust_table(view, target.trust.as_ref()))
            (allow_table(view, target))
            (view.heading("Accesses"))
            (access_table(view, accesses, question, target.name.as_str(), Shown::OneTarget))
        },
    }
}

/// The target's section of the file: the same facts, as few bytes as 10,000 rows allow.
///
/// `with_accesses` is false once the file is as large as it may get.
pub(crate) fn target_section(view: &View<'_>, target: &TargetFacts, with_accesses: bool) -> Markup {
    let accesses = view.accesses_of(&target.name);
    html! {
        section id={ "target-" (target.name) } {
            h3 { (target.name) (tags(target)) }
            p { (mark(target.health)) @if !target.cause.is_empty() { " " (target.cause) } }
            (next_command(target))
            (identity(view, target))
            @if target.health != Health::Ready { (check_table(view, target)) }
            @for finding in &target.findings {
                p { (mark(finding.health)) " " (finding.condition) " " (finding.reason) ": " (finding.message) }
            }
            @if let Some(trust) = &target.trust { (trust_rows_table(trust)) }
            @for rule in &target.allow {
                p {
                    "allow: " (joined(&rule.service_accounts)) " in " (rule.namespaces) " by "
                    (joined(&rule.deliveries))
                }
            }
            @if with_accesses {
                @if !accesses.is_empty() { (access_rows(view, accesses)) }
            } @else {
                (rest_note(0, accesses.len(), "accesses"))
            }
        }
    }
}

fn target_sentence(target: &TargetFacts) -> String {
    let name = &target.name;
    let because = match target.cause.is_empty() {
        true => String::new(),
        false => format!(": {}", target.cause),
    };
    match target.health {
        Health::Ready => format!("{name} works{because}"),
        Health::Attention => format!("{name} needs attention{because}"),
        Health::Broken => format!("{name} does not work{because}"),
        Health::Unknown => format!("{name} is not proven to work{because}"),
    }
}

fn describe_target(target: &TargetFacts) -> Markup {
    html! {
        @if target.suspended { "It is suspended, so nothing is minted for it. " }
        @if target.hub { "It is the hub itself. " }
        @if target.relying_party { "It is no Kubernetes cluster: it verifies tokens by itself. " }
        @match target.accesses {
            0 => "No access names it.",
            count => {
                (counted(count, "access", "accesses")) " in "
                (counted(target.tenants, "namespace", "namespaces"))
                @if count == 1 { " names it." } @else { " name it." }
            }
        }
    }
}

fn next_command(target: &TargetFacts) -> Markup {
    html! {
        @if let Some(command) = &target.next_command {
            p.next { b { "Next: " } code { (ForeignText::new(command)) } }
        }
    }
}

/// Where it is and what it trusts, in the words of its object.
fn identity(view: &View<'_>, target: &TargetFacts) -> Markup {
    let authority = &target.certificate_authority;
    // In the file the issuer stands once, with the keys, and here if it is another one.
    let in_file = view.outlet == Outlet::File;
    let value = |text: &Option<ForeignText>| match text {
        Some(text) => html! { (text) },
        None => html! { span.faint { (view.missing()) } },
    };
    html! {
        dl.facts {
            @if let Some(role) = &target.role { div { dt { "Role" } dd { (role) } } }
            @if !target.relying_party { div { dt { "Address" } dd { (value(&target.address)) } } }
            div { dt { "Audience" } dd { (value(&target.audience)) } }
            @if !in_file || target.issuer != view.fleet.keys.issuer {
                div { dt { "Issuer" } dd { (value(&target.issuer)) } }
            }
            @if !target.relying_party {
                div {
                    dt { "CA" }
                    dd {
                        @if authority.source.is_empty() { (view.missing()) } @else { (authority.source) }
                        ", ends " (time_or(authority.ends, view.now, "at a time that is not known"))
                    }
                }
            }
        }
    }
}

/// A question, and how the target answered it.
fn check_table(view: &View<'_>, target: &TargetFacts) -> Markup {
    let checks = [
        ("Does it answer?", &target.reachable),
        ("Is its configuration active?", &target.file_active),
        ("Has it read the issuer's keys?", &target.keys_read),
    ];
    let rows = html! {
        @for (check, answer) in checks {
            tr { th scope="row" { (check) } (answer_cells(answer)) }
        }
        tr {
            th scope="row" { "Does it accept tokens?" }
            (cell("Answer", accepted_mark(target)))
            (cell("Details", html! {
                @if let Some(at) = target.accepted.asked_at { "asked " (time(at, view.now)) }
            }))
        }
    };
    table(
        "What the target answered",
        &["Question", "Answer", "Details"],
        &rows,
    )
}

fn accepted_mark(target: &TargetFacts) -> Markup {
    let accepted = &target.accepted;
    let health = match (accepted.asked, accepted.refused, accepted.unanswered) {
        (0, _, _) => Health::Unknown,
        (_, 0, 0) => Health::Ready,
        (_, 0, _) => Health::Unknown,
        _ => Health::Broken,
    };
    html! { (mark_with(health, "")) (accepted_text(target)) }
}

/// The cells of an answer: its word, and what is wrong or why it is not known.
fn answer_cells(answer: &Answer) -> Markup {
    html! { (cell("Answer", answer_mark(answer))) (cell("Details", answer_detail(answer))) }
}

fn answer_detail(answer: &Answer) -> Markup {
    match answer {
        Answer::Yes => html! {},
        Answer::No { reason, message } => html! { (message) " " span.code { (reason) } },
        Answer::Unknown { why } => html! { (why) },
    }
}

/// Conditions that are not as they should be.
fn finding_table(view: &View<'_>, findings: &[Finding]) -> Markup {
    let rows = html! {
        @for finding in findings {
            tr {
                th scope="row" { (finding.condition) }
                (cell("State", mark(finding.health)))
                (cell("Message", html! { (finding.message) " " span.code { (finding.reason) } }))
            }
        }
    };
    html! {
        @if !findings.is_empty() {
            (view.heading("Findings"))
            (table("Conditions that are not as they should be", &["Condition", "State", "Message"], &rows))
        }
    }
}

fn trust_table(view: &View<'_>, trust: Option<&TrustFacts>) -> Markup {
    html! {
        (view.heading("Trust: what should be against what is"))
        @match trust {
            Some(trust) => (trust_rows_table(trust)),
            None => p {
                "Not compared: the target itself was not read. "
                code { "keyferry fleet --target-kubeconfigs DIR" } " compares it."
            },
        }
    }
}

fn trust_rows_table(trust: &TrustFacts) -> Markup {
    let parts = [
        ("File", &trust.file),
        ("Loaded file", &trust.loaded_file),
        ("Keys", &trust.keys),
        ("Behaviour", &trust.behaviour),
    ];
    let rows = html! {
        @for (part, comparison) in parts {
            tr { th scope="row" { (part) } (comparison_cells(comparison)) }
        }
    };
    table(
        "Desired trust against live",
        &["Part", "Result", "Details"],
        &rows,
    )
}

fn comparison_cells(comparison: &Comparison) -> Markup {
    let (mark, details) = match comparison {
        Comparison::Matches => (mark_with(Health::Ready, "matches"), html! {}),
        Comparison::Differs { differences } => (
            mark_with(Health::Broken, "differs"),
            html! { ul { @for difference in differences { li { (difference) } } } },
        ),
        Comparison::NotCompared { why } => (
            mark_with(Health::Unknown, "not compared"),
            html! { (ForeignText::new(why)) },
        ),
    };
    html! { (cell("Result", mark)) (cell("Details", details)) }
}

fn allow_table(view: &View<'_>, target: &TargetFacts) -> Markup {
    let rows = html! {
        @for rule in &target.allow {
            tr {
                th scope="row" { (rule.namespaces) }
                (cell("ServiceAccounts", joined(&rule.service_accounts)))
                (cell("Deliveries", joined(&rule.deliveries)))
            }
        }
    };
    let columns = ["Namespaces", "ServiceAccounts", "Deliveries"];
    html! {
        (view.heading("Who may use it"))
        @if target.allow.is_empty() {
            p { "No rule allows anybody." }
        } @else {
            (table("Rules of allow", &columns, &rows))
        }
    }
}
