//! Runs the shipped fleet of `examples/git-fleet`: a platform repository, two tenants, two targets, and
//! Flux locked down.

mod admission_policies;
mod fleet;
mod leaving;
mod repositories;
mod tenants;

use fleet::GitFleet;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(GitFleet::start)
        .needs([
            Needed::Part(Part::SourceController),
            Needed::Part(Part::KustomizeController),
        ])
        .test(
            "each_tenant_is_on_its_own_target",
            tenants::each_tenant_is_on_its_own_target,
        )
        .test(
            "the_platform_repository_holds_all_of_the_hub",
            tenants::the_platform_repository_holds_all_of_the_hub,
        )
        .test(
            "doctor_and_can_i_say_of_the_fleet_what_flux_says",
            tenants::doctor_and_can_i_say_what_flux_says,
        )
        .test(
            "a_tenant_comes_and_goes_and_its_target_ends_clean",
            leaving::a_tenant_comes_and_goes,
        )
        .test(
            "sources_of_tenants_are_their_own",
            admission_policies::sources_of_tenants_are_their_own,
        )
        .test(
            "kustomizations_of_tenants_lead_to_their_target",
            admission_policies::kustomizations_of_tenants_lead_to_their_target,
        )
        .test(
            "no_source_of_another_namespace_and_no_remote_base",
            admission_policies::no_source_of_another_namespace_and_no_remote_base,
        )
        .boxed()
}
