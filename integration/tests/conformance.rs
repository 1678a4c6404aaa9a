//! Tests the requirements of docs/conformance.md on a discovery endpoint that no other suite
//! covers. The table there names the test of every check.
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]
#![allow(
    clippy::print_stderr,
    reason = "a test tells the person who waits what it measured"
)]

#[path = "conformance/certificate_chain.rs"]
mod certificate_chain;
#[path = "conformance/flood.rs"]
mod flood;
#[path = "conformance/jwks_uri.rs"]
mod jwks_uri;
#[path = "conformance/many_keys.rs"]
mod many_keys;
#[path = "conformance/metrics.rs"]
mod metrics;
#[path = "discovery/setup.rs"]
mod setup;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;
use keyferry_integration::world::World;

fn main() -> ExitCode {
    Suite::new(World::start)
        .at_once(4)
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
        .run()
}
