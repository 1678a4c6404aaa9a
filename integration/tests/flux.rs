//! Tests Flux itself: the real kustomize-controller applies a tenant's Kustomization on the hub to
//! a real target.

mod by_config_map;
mod by_role;
mod by_secret;
mod client_certificate;
mod key_rotation;
mod lock_down;
mod new_authority;
mod onboarding;
mod other_sources;
pub(crate) mod sidecar;
pub(crate) mod stage;
mod tree;

use std::time::Duration;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs([
            Needed::Part(Part::SourceController),
            Needed::Part(Part::KustomizeController),
        ])
        // Every step waits for Flux's next round, which takes ten seconds and more.
        .limit(Duration::from_secs(400))
        .test(
            "a_new_token_and_a_targets_new_ca_cost_no_reconcile",
            new_authority::and_a_new_token_cost_no_reconcile,
        )
        .test(
            "a_kubeconfig_in_a_secret_leads_to_the_target_and_deletion_prunes",
            by_secret::leads_to_the_target_and_deletion_prunes,
        )
        .test(
            "a_generic_config_map_leads_to_the_target_and_deletion_prunes",
            by_config_map::leads_to_the_target_and_deletion_prunes,
        )
        .test(
            "a_config_map_of_a_role_applies_what_the_role_may",
            by_role::applies_what_the_role_may,
        )
        .test(
            "a_config_map_of_a_deleted_target_still_prunes",
            by_config_map::of_a_deleted_target_still_prunes,
        )
        .test(
            "onboarding_reaches_the_first_reconcile_beside_flux_alone",
            onboarding::reaches_the_first_reconcile_beside_flux_alone,
        )
        .test(
            "a_locked_down_flux_acts_as_the_targets_service_account",
            lock_down::acts_as_the_targets_service_account,
        )
        .test(
            "other_sources_cannot_name_the_proxys_path",
            other_sources::cannot_name_the_proxys_path,
        )
        .test(
            "a_client_certificate_reads_charts_through_the_hub",
            client_certificate::reads_charts_through_the_hub,
        )
        .test(
            "beside_kustomize_controller_one_account_has_all_rights",
            sidecar::one_account_has_all_rights,
        )
        .test(
            "the_tree_of_an_access_shows_each_step",
            tree::shows_each_step_to_an_admin_and_to_a_tenant,
        )
        .test(
            "a_token_of_the_hub_is_inspected",
            tree::a_token_of_the_hub_is_inspected_with_its_published_keys,
        )
        .test_alone(
            "a_config_map_with_anothers_address_gets_nowhere",
            by_config_map::with_anothers_address_gets_nowhere,
        )
        .boxed()
}

/// A rotation of the hub's key under `configMapRef`, which takes minutes of waiting.
pub(crate) fn key_rotation() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs([
            Needed::Part(Part::SourceController),
            Needed::Part(Part::KustomizeController),
        ])
        .limit(Duration::from_secs(600))
        .only_on_request()
        .test(
            "a_rotation_costs_a_bounded_time",
            key_rotation::costs_a_bounded_time,
        )
        .boxed()
}
