//! Client certificates of callers, and CAs of targets from ClusterTrustBundles, on real hubs.

pub(crate) mod caller;
mod pod_certificate;
pub(crate) mod signer;
mod table;
mod trust_bundle;
mod under_load;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .concurrent_tests(3)
        .test(
            "a_certificate_is_the_account_of_its_rule",
            caller::a_certificate_is_the_account_of_its_rule,
        )
        .test(
            "the_hubs_own_client_ca_is_refused",
            caller::the_hubs_own_client_ca_is_refused,
        )
        .test(
            "every_certificate_of_the_table_gets_its_answer",
            table::every_certificate_gets_its_answer,
        )
        .test(
            "rotations_under_load_fail_no_exchange",
            under_load::rotations_fail_no_exchange,
        )
        .test(
            "a_targets_ca_is_in_a_trust_bundle",
            trust_bundle::a_targets_ca_is_in_a_trust_bundle,
        )
        .test(
            "an_old_hub_serves_no_trust_bundle",
            trust_bundle::an_old_hub_serves_no_trust_bundle,
        )
        .boxed()
}

/// Pod certificates, on a hub that authorises and restricts nodes.
pub(crate) fn of_pods() -> BoxedSuite {
    Suite::new(pod_certificate::Stage::start)
        .test(
            "a_pod_certificate_is_a_caller",
            pod_certificate::a_pod_certificate_is_a_caller,
        )
        .boxed()
}
