//! Fleet inputs of a real hub: each credential reads its own cluster by every scheme and no other,
//! rotations fail no read, and the OpenAPI document holds against the running server.

mod collections;
mod credentials;
mod crowd;
mod file;
mod identity;
mod openapi;
mod rotation;
mod scale;
mod stage;

use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

use self::stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .concurrent_tests(4)
        .test(
            "each_credential_reads_its_own_and_no_other",
            credentials::each_reads_its_own,
        )
        .test(
            "bad_credentials_get_one_answer",
            credentials::bad_ones_get_one_answer,
        )
        .test(
            "a_credential_is_not_a_caller_of_tokens",
            credentials::no_token_for_a_credential,
        )
        .test(
            "bad_certificates_get_the_same_answer",
            credentials::bad_certificates_get_the_same_answer,
        )
        .test("rotations_fail_no_read", rotation::fails_no_read)
        .test(
            "a_rotation_of_certificates_fails_no_read",
            rotation::of_certificates,
        )
        .test("collections_follow_the_hub", collections::follow_the_hub)
        .test(
            "what_cannot_be_sent_whole_is_not_sent",
            collections::never_cut,
        )
        .test(
            "one_tenants_accesses_leave_room_for_others",
            crowd::one_tenants_accesses_leave_room_for_others,
        )
        .test(
            "an_identity_is_immutable_and_unique",
            identity::immutable_and_unique,
        )
        .test(
            "runtime_info_prints_both_config_maps",
            identity::runtime_info,
        )
        .test("a_file_serves_inputs_too", file::serves_inputs_too)
        .test(
            "health_is_public_without_its_cause",
            openapi::health_is_public,
        )
        .boxed()
}

/// The OpenAPI document against the running server, by schemathesis.
pub(crate) fn openapi() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs([Needed::Client(Client::Schemathesis)])
        .test("schemathesis_finds_nothing", openapi::schemathesis)
        .boxed()
}

/// The inputs of 10,000 clusters, which are measured on request alone.
pub(crate) fn at_scale() -> BoxedSuite {
    Suite::new(scale::Fleet::start)
        .exclusive()
        .only_on_request()
        .limit(std::time::Duration::from_secs(1200))
        .test("ten_thousand_clusters", scale::ten_thousand_clusters)
        .boxed()
}
