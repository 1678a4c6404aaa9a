//! Starts, stops and reconfigures Keyferry, and tests faults of single parts while it runs.

mod audit;
mod ca_secrets;
mod configuration;
pub(crate) mod floods;
mod mistakes;
mod termination;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .concurrent_tests(8)
        .test(
            "sigterm_answers_what_was_accepted",
            termination::answers_what_was_accepted,
        )
        .test(
            "sigterm_ends_a_start_that_waits_for_the_hub",
            termination::ends_a_start,
        )
        .test(
            "a_bad_configuration_on_reload_changes_nothing",
            configuration::a_bad_one_changes_nothing,
        )
        .test(
            "a_bad_configuration_at_the_start_is_refused",
            configuration::a_bad_one_does_not_start,
        )
        .test(
            "a_bad_serving_certificate_does_not_start",
            configuration::a_bad_serving_certificate_does_not_start,
        )
        .test(
            "a_bad_ca_makes_only_its_own_target_not_ready",
            ca_secrets::a_bad_one_concerns_its_own_target,
        )
        .test(
            "without_an_audit_record_nothing_is_handed_out",
            audit::a_full_device_stops_hand_outs,
        )
        .test(
            "garbage_tokens_never_reach_the_hub",
            floods::garbage_tokens_never_reach_the_hub,
        )
        .test(
            "a_flood_of_one_address_is_refused_and_known_callers_are_not",
            floods::of_one_address,
        )
        .test(
            "a_flood_of_a_known_caller_fills_no_log",
            floods::of_a_known_caller,
        )
        .boxed()
}
