//! What one tenant can cost: each kind of thing that it writes, in its largest form and its largest
//! number, against a bound that the table of docs/concepts/security.md states.
//!
//! The product's own readers, caches and stores get the largest forms. Every allocation of the
//! process is counted, so a peak between two events is seen too.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a world that cannot be built fails its test, and the costs are for a person to read"
)]

mod commands;
mod connections;
mod cost;
mod deliveries;
mod hub_objects;
mod large_hub;
mod reconciliation;
mod requests;
mod table;

use std::future::Future;
use std::pin::Pin;

use self::cost::{Cost, one_at_a_time};
use self::table::{BUDGETS, Budget, render_table};

/// A measurement, which is run alone.
type Measurement = fn() -> Pin<Box<dyn Future<Output = Cost>>>;

/// The measurement of each row, by the row's kind.
const MEASUREMENTS: [(&str, Measurement); 16] = [
    ("ServiceAccount", || {
        Box::pin(hub_objects::service_accounts())
    }),
    ("Namespace", || Box::pin(hub_objects::namespaces())),
    ("TargetAccess", || Box::pin(hub_objects::accesses())),
    ("TargetAccess, too large", || {
        Box::pin(hub_objects::too_large_accesses())
    }),
    ("TargetAccess, reconciled", || {
        Box::pin(reconciliation::reconciled_accesses())
    }),
    ("Secret or ConfigMap, of a delivery", || {
        Box::pin(deliveries::delivered_objects())
    }),
    ("Kustomization or HelmRelease", || {
        Box::pin(deliveries::flux_objects())
    }),
    ("CertificateSigningRequest", || {
        Box::pin(deliveries::certificate_requests())
    }),
    ("request, largest form", || {
        Box::pin(requests::largest_forms())
    }),
    ("request, forged token", || {
        Box::pin(requests::forged_tokens())
    }),
    ("request, denied", || Box::pin(requests::denied_requests())),
    ("request, new token each", || {
        Box::pin(requests::fresh_tokens())
    }),
    ("request, new access each", || {
        Box::pin(requests::issued_tokens())
    }),
    (
        "connection",
        || Box::pin(connections::largest_connections()),
    ),
    ("`keyferry fleet`: TargetAccess", || {
        Box::pin(commands::fleet_accesses())
    }),
    ("`keyferry who-can`: ServiceAccount", || {
        Box::pin(commands::reach_accounts())
    }),
];

fn budget_of(kind: &str) -> &'static Budget {
    BUDGETS.iter().find(|budget| budget.kind == kind).unwrap()
}

/// Each row costs at most what it states, and states at most four times what it costs.
#[test]
fn each_kind_stays_within_its_budget() {
    let _alone = one_at_a_time();
    assert_eq!(MEASUREMENTS.len(), BUDGETS.len());
    let mut faults = Vec::new();
    for (kind, measure) in MEASUREMENTS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let cost = runtime.block_on(measure());
        println!("{kind}: {cost}");
        faults.extend(
            budget_of(kind)
                .bound
                .faults(&cost)
                .map(|fault| format!("{kind}: {fault}")),
        );
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn the_documented_table_is_the_one_that_is_held() {
    let _alone = one_at_a_time();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/concepts/security.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let table = render_table();
    assert!(
        page.contains(&table),
        "write this table into docs/concepts/security.md:\n{table}"
    );
}
