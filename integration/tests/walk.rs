//! Runs every command once, as a new user would: with objects on the hub, and with a configuration
//! file. Also runs every block of commands in the documents unchanged.

mod blocks;
mod commands;
mod drift;
mod fleet;
mod interrupted;
mod onboarding;
mod onboarding_by_file;
mod onboarding_role;
mod place;

use std::time::Duration;

use keyferry_integration::runner::{BoxedSuite, Suite};
use place::Place;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Place::start)
        .limit(Duration::from_secs(600))
        .test("with_objects_on_the_hub", commands::with_objects_on_the_hub)
        .test(
            "with_a_configuration_file",
            commands::with_a_configuration_file,
        )
        .test(
            "fleet_live_and_from_a_folder",
            fleet::fleet_live_and_from_a_folder,
        )
        .test(
            "targets_are_compared_with_what_they_should_trust",
            drift::targets_are_compared_with_what_they_should_trust,
        )
        .test("onboards_from_nothing", onboarding::onboards_from_nothing)
        .test(
            "onboards_a_managed_issuer",
            onboarding::onboards_a_managed_issuer,
        )
        .test(
            "onboards_a_managed_issuer_by_file",
            onboarding_by_file::onboards_a_managed_issuer_by_file,
        )
        .test("no_command_is_left_out", commands::no_command_is_left_out)
        .test("blocks_of_the_documents", blocks::blocks_of_the_documents)
        .boxed()
}
