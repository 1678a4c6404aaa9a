//! Installs Keyferry on real control planes, from the kustomize base with the real kubectl and from
//! the chart with the real Helm. Compares the granted rights as a real apiserver lists them.
#![allow(
    clippy::print_stderr,
    reason = "a test tells the person who waits what it does"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "install/applied.rs"]
mod applied;
#[path = "install/helm.rs"]
mod helm;
#[path = "install/manifests.rs"]
mod manifests;
#[path = "install/monitoring.rs"]
mod monitoring;
#[path = "install/rendered.rs"]
mod rendered;
#[path = "install/rights.rs"]
mod rights;
#[path = "install/running.rs"]
mod running;
#[path = "install/setup.rs"]
mod setup;
#[path = "install/upgrade.rs"]
mod upgrade;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;

use crate::setup::Hubs;

fn main() -> ExitCode {
    Suite::new(Hubs::start)
        .test("the_chart_passes_lint", rendered::the_chart_passes_lint)
        .test("bad_values_are_refused", rendered::bad_values_are_refused)
        .test(
            "base_and_chart_are_the_same_objects",
            rendered::base_and_chart_are_the_same_objects,
        )
        .test(
            "mint_everywhere_is_cluster_wide_minting",
            rendered::mint_everywhere_is_cluster_wide_minting,
        )
        .test("a_tenant_is_bound_alike", rendered::a_tenant_is_bound_alike)
        .test(
            "the_chart_renders_the_shipped_crds",
            rendered::the_chart_renders_the_shipped_crds,
        )
        .test(
            "all_values_are_rendered_and_taken",
            rendered::all_values_are_rendered_and_taken,
        )
        .test(
            "keyferry_takes_the_configurations",
            rendered::keyferry_takes_the_configurations,
        )
        .test(
            "prometheus_reads_the_rules",
            monitoring::prometheus_reads_the_rules,
        )
        .test(
            "admission_policies_are_rendered_for_the_release",
            rendered::admission_policies_are_rendered_for_the_release,
        )
        .test(
            "pods_start_under_restricted_pod_security",
            applied::pods_start_under_restricted_pod_security,
        )
        .test(
            "rights_are_the_golden_ones",
            rights::rights_are_the_golden_ones,
        )
        .test(
            "tenants_get_their_rights_by_aggregation",
            rights::tenants_get_their_rights_by_aggregation,
        )
        .test(
            "keyferry_works_with_these_rights",
            running::keyferry_works_with_these_rights,
        )
        .test(
            "an_upgrade_keeps_the_crds",
            upgrade::an_upgrade_keeps_the_crds,
        )
        .run()
}
