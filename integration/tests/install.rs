//! Installs Keyferry on real control planes, from the kustomize base with the real kubectl and from
//! the chart with the real Helm. Compares the granted rights as a real apiserver lists them.

mod applied;
mod before_cni;
mod components;
mod helm;
mod kind_page;
pub(crate) mod manifests;
mod monitoring;
pub(crate) mod overlay;
mod process;
mod rendered;
mod rights;
mod running;
pub(crate) mod setup;
mod tls_secrets;
mod upgrade;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use setup::Hubs;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Hubs::start)
        .needs([
            Needed::Part(Part::Helm),
            Needed::Part(Part::PrometheusRules),
        ])
        .test("the_chart_passes_lint", rendered::the_chart_passes_lint)
        .test("bad_values_are_refused", rendered::bad_values_are_refused)
        .test(
            "base_and_chart_are_the_same_objects",
            rendered::base_and_chart_are_the_same_objects,
        )
        .test(
            "the_certificate_approver_is_the_same_objects",
            components::the_certificate_approver_is_the_same_objects,
        )
        .test("every_folder_renders", components::every_folder_renders)
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
            "the_approvers_rights_are_the_golden_ones",
            rights::the_approvers_rights_are_the_golden_ones,
        )
        .test(
            "tenants_get_their_rights_by_aggregation",
            rights::tenants_get_their_rights_by_aggregation,
        )
        .test(
            "keyferry_works_with_these_rights",
            running::keyferry_works_with_these_rights,
        )
        // Another replica of Keyferry would answer for it.
        .test_alone(
            "before_a_cni_a_caller_gets_a_token",
            before_cni::before_a_cni_a_caller_gets_a_token,
        )
        .test(
            "the_chart_serves_with_tls_from_secrets",
            tls_secrets::with_the_chart,
        )
        // Another replica would write its own CA into the statuses.
        .test_alone(
            "the_components_serve_with_tls_from_secrets",
            tls_secrets::with_the_components,
        )
        .test(
            "the_page_of_two_kind_clusters_ends_proven",
            kind_page::ends_proven,
        )
        .test(
            "an_upgrade_keeps_the_crds",
            upgrade::an_upgrade_keeps_the_crds,
        )
        .boxed()
}
