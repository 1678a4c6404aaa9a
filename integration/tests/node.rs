//! Pods on a real node: what only a kubelet and a container runtime show. The node is built from Go
//! modules, so the machine needs root, cgroups and util-linux.

mod attacker;
mod beside_flux;
mod image;
mod installation;
mod installed;
mod left;
mod memory;
mod network_policy;
mod pod;
mod pod_certificate;
mod policies;
mod rolling;
mod setup;
mod workload;

use std::time::Duration;

use image::Builds;
use keyferry_integration::parts::{NodePart, Part};
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use setup::Cluster;

pub(crate) fn suite() -> BoxedSuite {
    on_request(Suite::new(Cluster::start))
        .test(
            "a_pod_gets_a_token_from_the_kubelet",
            pod::a_pod_gets_a_token_from_the_kubelet,
        )
        .test(
            "a_mounted_certificate_is_a_caller",
            pod_certificate::a_mounted_certificate_is_a_caller,
        )
        .test(
            "the_machine_keeps_its_settings",
            pod::the_machine_keeps_its_settings,
        )
        .boxed()
}

/// From an installation to its removal, with images built for it.
pub(crate) fn installed() -> BoxedSuite {
    on_request(Suite::new(Cluster::with_images))
        .test_alone("by_the_chart", installed::by_the_chart)
        .test_alone("by_the_base", installed::by_the_base)
        .test_alone(
            "one_pod_has_flux_and_keyferry",
            beside_flux::one_pod_has_flux_and_keyferry,
        )
        .needs([Part::SourceController, Part::KustomizeController].map(Needed::Part))
        .boxed()
}

/// Builds the image again from nothing, which takes minutes.
pub(crate) fn image_digest() -> BoxedSuite {
    Suite::new(Builds::start)
        .only_on_request()
        .exclusive()
        .limit(Duration::from_secs(1500))
        .test(
            "two_builds_have_one_digest",
            image::two_builds_have_one_digest,
        )
        .boxed()
}

fn on_request(suite: Suite<Cluster>) -> Suite<Cluster> {
    suite
        .needs(NodePart::ALL.map(|part| Needed::Part(Part::Node(part))))
        .needs([Needed::Part(Part::Helm)])
        .concurrent_tests(1)
        .only_on_request()
        .limit(Duration::from_secs(1500))
}
