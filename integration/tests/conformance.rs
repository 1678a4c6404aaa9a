//! Tests the requirements of docs/development/conformance.md on a discovery endpoint that no other
//! suite covers. The table there names the test of every check.

mod certificate_chain;
mod flood;
mod jwks_uri;
mod many_keys;
mod metrics;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

use crate::discovery::setup;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .concurrent_tests(4)
        .test(
            "more_than_a_hundred_keys_are_an_alarm",
            many_keys::are_an_alarm,
        )
        .test(
            "a_certificate_chain_is_served_whole",
            certificate_chain::is_served_whole,
        )
        .test(
            "metrics_show_what_targets_hold",
            metrics::show_what_targets_hold,
        )
        .test(
            "the_hubs_jwks_uri_is_never_followed",
            jwks_uri::is_never_followed,
        )
        .test_alone(
            "a_flood_of_unknown_kids_at_targets",
            flood::of_unknown_kids_at_targets,
        )
        .boxed()
}
