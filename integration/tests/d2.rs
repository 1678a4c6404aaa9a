//! Runs the shipped fleet of `examples/d2`: a platform repository, two tenants, two targets, and
//! Flux locked down.
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "d2/admission_policies.rs"]
mod admission_policies;
#[path = "d2/fleet.rs"]
mod fleet;
#[path = "d2/leaving.rs"]
mod leaving;
#[path = "d2/repositories.rs"]
mod repositories;
#[path = "d2/tenants.rs"]
mod tenants;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;

use fleet::D2;

fn main() -> ExitCode {
    Suite::new(D2::start)
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
        .run()
}
