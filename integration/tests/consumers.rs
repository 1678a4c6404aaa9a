//! Tests delivered objects with the code of other consumers: Argo CD's reader of cluster Secrets,
//! and the library of ClusterProfiles.
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "consumers/argo_cd.rs"]
mod argo_cd;
#[path = "consumers/cluster_profile.rs"]
mod cluster_profile;
#[path = "consumers/stage.rs"]
mod stage;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;

use stage::Stage;

fn main() -> ExitCode {
    Suite::new(Stage::start)
        .test(
            "argo_cd_takes_the_bearer_form",
            argo_cd::takes_the_bearer_form,
        )
        .test("argo_cd_takes_the_exec_form", argo_cd::takes_the_exec_form)
        .test(
            "the_inventory_takes_the_cluster_profile",
            cluster_profile::is_taken,
        )
        .run()
}
