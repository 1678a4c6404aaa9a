//! Client certificates of callers, and CAs of targets from ClusterTrustBundles, on real hubs.

mod caller;
mod trust_bundle;

use keyferry_integration::runner::{BoxedSuite, Suite};
use keyferry_integration::world::World;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(World::start)
        .at_once(3)
        .test(
            "a_certificate_is_the_account_of_its_rule",
            caller::a_certificate_is_the_account_of_its_rule,
        )
        .test(
            "the_hubs_own_client_ca_is_refused",
            caller::the_hubs_own_client_ca_is_refused,
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
