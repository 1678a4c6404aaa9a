//! Runs the shipped fleet of `examples/d2`: Flux Operator, signed artifacts in a registry, fleet
//! inputs, two tenants on two targets each.

mod admission_policies;
mod artifacts;
mod clusters;
mod fleet;
mod keyless;
mod signatures;
mod tenants;

use fleet::D2;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(D2::start)
        // Its parts take minutes to build.
        .only_on_request()
        .needs([
            Needed::Part(Part::SourceController),
            Needed::Part(Part::KustomizeController),
            Needed::Part(Part::HelmController),
            Needed::Part(Part::FluxOperator),
            Needed::Part(Part::Registry),
            Needed::Part(Part::Cosign),
            Needed::Part(Part::KeylessSigner),
            Needed::Part(Part::Helm),
        ])
        .test(
            "signed_artifacts_run_on_both_targets_for_two_tenants",
            tenants::run_on_both_targets,
        )
        .test(
            "flux_has_the_lock_down_of_the_flux_instance",
            tenants::flux_is_locked_down,
        )
        .test(
            "a_promotion_moves_a_tag_and_production_follows",
            tenants::production_follows_its_tag,
        )
        .test(
            "unsigned_and_wrongly_signed_artifacts_do_not_run",
            signatures::do_not_run,
        )
        .test(
            "charts_follow_the_inputs_of_their_cluster",
            clusters::charts_follow_the_inputs,
        )
        .test(
            "no_cluster_reads_anothers_inputs_by_any_scheme",
            clusters::none_reads_anothers,
        )
        .test(
            "runtime_info_is_what_the_command_prints",
            clusters::runtime_info_is_printed,
        )
        .test(
            "sources_of_tenants_are_signed_and_on_the_allowlist",
            admission_policies::sources_are_on_the_allowlist,
        )
        .test(
            "kustomizations_and_releases_of_tenants_lead_to_targets",
            admission_policies::objects_lead_to_targets,
        )
        .test_alone(
            "keyless_signatures_decide_by_identity_and_trusted_root",
            keyless::decides_by_identity_and_trusted_root,
        )
        .test_alone("a_tenant_comes_by_one_commit", tenants::comes_by_one_commit)
        .test_alone(
            "without_the_allowlist_all_sources_are_refused",
            admission_policies::no_allowlist_no_source,
        )
        .boxed()
}
