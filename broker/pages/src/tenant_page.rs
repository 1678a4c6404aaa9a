//! The pages `tenants` and `tenant/NAMESPACE`: which targets a namespace has accesses to, and as whom.

use std::collections::BTreeMap;

use keyferry_api::name::ObjectName;
use keyferry_fleet::facts::{AccessFacts, Answer, Fleet, Health, TenantFacts};
use maud::{Markup, html};

use crate::access_table::{Shown, access_table};
use crate::document::Content;
use crate::empty::{nothing_matches, unreadable};
use crate::list::{column_heads, list_controls, pager, past_the_end};
use crate::outlet::{Outlet, View};
use crate::query::{PAGE_ROWS, Question, STATES, Sort};
use crate::table::{cell, rest_note, table};
use crate::words::{counted, health_word, mark, mark_with, number, time_or};

const PAGE: &str = "tenants";
/// More columns are a list, not a picture.
const MAX_MATRIX_ACCOUNTS: usize = 6;
/// Targets that a row of the list names.
const NAMED_TARGETS: usize = 5;

const COLUMNS: [(&str, Option<Sort>); 6] = [
    ("Namespace", Some(Sort::Name)),
    ("State", Some(Sort::Worst)),
    ("Targets", None),
    ("As", None),
    ("Accesses", Some(Sort::Accesses)),
    ("Runway", Some(Sort::Runway)),
];

pub(crate) fn tenants_content(view: &View<'_>, question: &Question) -> Content {
    let tenants = &view.fleet.tenants;
    Content {
        title: "Tenants".to_owned(),
        sentence: tenants_sentence(view),
        body: html! {
            @match (tenants.is_empty(), view.gap_of("targetaccesses")) {
                (true, Some(gap)) => (unreadable(gap)),
                (true, None) => p { "A namespace is here as soon as it has a TargetAccess." },
                (false, _) => (tenant_list(view, question)),
            }
        },
    }
}

fn tenants_sentence(view: &View<'_>) -> String {
    let tenants = &view.fleet.tenants;
    if tenants.is_empty() {
        return match view.gap_of("targetaccesses") {
            Some(_) => "The accesses of tenants were not readable".to_owned(),
            None => "No namespace has an access".to_owned(),
        };
    }
    let count = |health| {
        tenants
            .iter()
            .filter(|tenant| tenant.health == health)
            .count()
    };
    let all = counted(tenants.len(), "namespace has", "namespaces have");
    let trouble: Vec<String> = STATES
        .iter()
        .filter(|(health, _)| *health != Health::Ready && count(*health) > 0)
        .map(|(health, _)| format!("{} {}", number(count(*health)), health_word(*health)))
        .collect();
    match trouble.is_empty() {
        true => format!("{all} accesses, and all of them work"),
        false => format!("{all} accesses: {}", trouble.join(", ")),
    }
}

fn tenant_list(view: &View<'_>, question: &Question) -> Markup {
    let tenants = matching_tenants(view.fleet, question);
    let in_viewer = view.outlet != Outlet::File;
    let rows = if in_viewer { PAGE_ROWS } else { tenants.len() };
    let counts = STATES.map(|(health, word)| {
        let count = view
            .fleet
            .tenants
            .iter()
            .filter(|tenant| tenant.health == health)
            .count();
        (health, word, count)
    });
    html! {
        @if in_viewer { (list_controls(PAGE, question, &counts, "Namespace, account or target")) }
        @if tenants.is_empty() {
            (nothing_matches(PAGE, question, "namespace"))
        } @else if tenants.len() <= question.offset {
            (past_the_end(PAGE, tenants.len()))
        } @else {
            table.list.tenants {
                caption { "Tenants" }
                (column_heads(PAGE, question, &COLUMNS, in_viewer))
                tbody {
                    @for tenant in tenants.iter().skip(question.offset).take(rows) {
                        (tenant_row(view, tenant))
                    }
                }
            }
            @if in_viewer { (pager(PAGE, question, tenants.len())) }
        }
    }
}

fn matching_tenants<'a>(fleet: &'a Fleet, question: &Question) -> Vec<&'a TenantFacts> {
    let matches = |tenant: &&TenantFacts| {
        let names = tenant.targets.iter().chain(&tenant.service_accounts);
        let texts = names
            .map(ObjectName::as_str)
            .chain([tenant.namespace.as_str()]);
        question.state.is_none_or(|state| state == tenant.health) && question.matches_any(texts)
    };
    let mut tenants: Vec<&TenantFacts> = fleet.tenants.iter().filter(matches).collect();
    match question.sort {
        // The facts have them by name; the sort keeps that among equals.
        Sort::Worst => tenants.sort_by_key(|tenant| tenant.health),
        Sort::Name => {}
        Sort::Runway => {
            tenants.sort_by_key(|tenant| (tenant.next_ending.is_none(), tenant.next_ending));
        }
        Sort::Accesses => tenants.sort_by_key(|tenant| std::cmp::Reverse(tenant.accesses)),
    }
    tenants
}

fn tenant_row(view: &View<'_>, tenant: &TenantFacts) -> Markup {
    let namespace = &tenant.namespace;
    let in_file = view.outlet == Outlet::File;
    let accounts: Vec<&str> = tenant
        .service_accounts
        .iter()
        .map(ObjectName::as_str)
        .collect();
    html! {
        tr id=[in_file.then(|| format!("tenant-{namespace}"))] {
            th scope="row" {
                @if in_file { (namespace) } @else { (view.tenant_name(namespace)) }
            }
            td { (mark(tenant.health)) }
            td { (target_names(tenant, in_file)) }
            td { (accounts.join(", ")) }
            td.number { (number(tenant.accesses)) }
            td { (time_or(tenant.next_ending, view.now, "–")) }
        }
    }
}

/// The targets by name; a list of the viewer names the first of them, because the page has all.
fn target_names(tenant: &TenantFacts, in_file: bool) -> String {
    let limit = if in_file {
        tenant.targets.len()
    } else {
        NAMED_TARGETS
    };
    let mut names: Vec<String> = tenant
        .targets
        .iter()
        .take(limit)
        .map(ToString::to_string)
        .collect();
    if tenant.targets.len() > limit {
        names.push(format!("and {} more", number(tenant.targets.len() - limit)));
    }
    names.join(", ")
}

pub(crate) fn tenant_content(
    view: &View<'_>,
    tenant: &TenantFacts,
    question: &Question,
) -> Content {
    let namespace = &tenant.namespace;
    let of_tenant = |access: &&AccessFacts| access.name.namespace == *namespace;
    let mut accesses: Vec<&AccessFacts> = view.fleet.accesses.iter().filter(of_tenant).collect();
    accesses.sort_by_key(|access| access.health);
    let trouble = accesses
        .iter()
        .filter(|access| access.health != Health::Ready)
        .count();
    let reach = format!(
        "{namespace} has accesses to {} as {}",
        counted(tenant.targets.len(), "target", "targets"),
        counted(tenant.service_accounts.len(), "account", "accounts"),
    );
    Content {
        title: format!("Tenant {namespace}"),
        sentence: match trouble {
            0 => reach,
            _ => format!(
                "{reach}; {} of {} {} not ready",
                number(trouble),
                counted(accesses.len(), "access", "accesses"),
                if trouble == 1 { "is" } else { "are" }
            ),
        },
        body: html! {
            (matrix(view, tenant, &accesses))
            (view.heading("Accesses"))
            (access_table(view, &accesses, question, namespace.as_str(), Shown::EachTarget))
            (access_findings(view, &accesses))
        },
    }
}

/// What is wrong with each access, in the words of its conditions.
fn access_findings(view: &View<'_>, accesses: &[&AccessFacts]) -> Markup {
    let findings = accesses.iter().flat_map(|access| {
        access
            .findings
            .iter()
            .map(move |finding| (&access.name.name, finding))
    });
    let rows = html! {
        @for (access, finding) in findings.clone().take(PAGE_ROWS) {
            tr {
                th scope="row" { (access) }
                (cell("Condition", html! { (finding.condition) }))
                (cell("State", mark(finding.health)))
                (cell("Message", html! { (finding.message) " " span.code { (finding.reason) } }))
            }
        }
    };
    html! {
        @if findings.clone().next().is_some() {
            (view.heading("Findings"))
            (table("Conditions that are not as they should be", &["Access", "Condition", "State", "Message"], &rows))
            (rest_note(PAGE_ROWS, findings.count(), "findings"))
        }
    }
}

/// Targets against accounts: who has an access to what, and whether it works.
fn matrix(view: &View<'_>, tenant: &TenantFacts, accesses: &[&AccessFacts]) -> Markup {
    let accounts = &tenant.service_accounts;
    let mut cells: BTreeMap<(&ObjectName, &ObjectName), &AccessFacts> = BTreeMap::new();
    for access in accesses {
        // Worst first, so the worst of several stays.
        cells
            .entry((&access.target, &access.service_account))
            .or_insert(access);
    }
    html! {
        @if accounts.len() <= MAX_MATRIX_ACCOUNTS && tenant.targets.len() <= PAGE_ROWS {
            (view.heading("Accounts and targets"))
            table.matrix {
                caption { "Targets and accounts" }
                thead {
                    tr {
                        th scope="col" { "Target" }
                        @for account in accounts { th scope="col" { (account) } }
                    }
                }
                tbody {
                    @for target in &tenant.targets {
                        tr {
                            th scope="row" { (view.target_name(target)) }
                            @for account in accounts {
                                (cell(account.as_str(), matrix_cell(cells.get(&(target, account)).copied())))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn matrix_cell(access: Option<&AccessFacts>) -> Markup {
    let Some(access) = access else {
        return html! { span.faint { "–" } };
    };
    match (&access.accepted, access.health) {
        (Answer::Yes, Health::Ready) => mark_with(Health::Ready, "accepted"),
        (_, health) => mark(health),
    }
}
