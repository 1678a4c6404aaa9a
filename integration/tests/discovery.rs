//! Tests the published documents of one hub's issuer over real TLS connections, whatever the hub
//! behind them does. docs/development/conformance.md names the test for each rule of an endpoint
//! that every verifier can use.

mod certificates;
mod cold;
mod http_rules;
mod key_sets;
mod replicas;
pub(crate) mod setup;
mod sound;
mod upstream;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .concurrent_tests(8)
        .test("documents_are_sound", sound::documents_are_sound)
        .test(
            "every_protocol_gets_the_same",
            http_rules::every_protocol_gets_the_same,
        )
        .test(
            "no_header_changes_a_byte",
            http_rules::no_header_changes_a_byte,
        )
        .test("refusals_and_methods", http_rules::refusals_and_methods)
        .test(
            "no_request_reaches_the_hub",
            http_rules::no_request_reaches_the_hub,
        )
        .test(
            "clients_that_hold_on_keep_nobody_out",
            http_rules::clients_that_hold_on_keep_nobody_out,
        )
        .test(
            "framing_that_could_be_read_in_two_ways_is_refused",
            http_rules::framing_that_could_be_read_in_two_ways_is_refused,
        )
        .test(
            "only_discovery_speaks_tls_1_2_where_told",
            http_rules::only_discovery_speaks_tls_1_2_where_told,
        )
        .test(
            "replicas_and_restarts_agree",
            replicas::replicas_and_restarts_agree,
        )
        .test(
            "certificates_change_while_serving",
            certificates::change_while_serving,
        )
        .test("before_the_first_reading", cold::before_the_first_reading)
        .test(
            "a_broken_metadata_document_leaves_the_last_good_bytes",
            |world| upstream::broken(world, setup::METADATA),
        )
        .test(
            "a_broken_key_set_document_leaves_the_last_good_bytes",
            |world| upstream::broken(world, setup::KEYS),
        )
        .test(
            "a_bad_key_set_is_not_published",
            key_sets::a_bad_one_is_not_published,
        )
        .test(
            "odd_keys_are_left_out_and_new_ones_taken_in",
            key_sets::odd_keys_are_left_out_and_new_ones_taken_in,
        )
        .boxed()
}
