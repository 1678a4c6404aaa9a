//! Tests delivered objects with the code of other consumers: Argo CD's reader of cluster Secrets,
//! and the library of ClusterProfiles.

mod argo_cd;
mod cluster_profile;
mod stage;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs([
            Needed::Part(Part::ArgoCd),
            Needed::Part(Part::ClusterInventory),
        ])
        .test(
            "argo_cd_takes_the_bearer_form",
            argo_cd::takes_the_bearer_form,
        )
        .test("argo_cd_takes_the_exec_form", argo_cd::takes_the_exec_form)
        .test(
            "the_inventory_takes_the_cluster_profile",
            cluster_profile::is_taken,
        )
        .boxed()
}
