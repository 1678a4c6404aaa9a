//! Pods on a real node: what only a kubelet and a container runtime show. The node is built from Go
//! modules, so the machine needs root, cgroups and util-linux.

mod attacker;
mod image;
mod installed;
mod pod;
mod rolling;
mod setup;
mod workload;

use std::time::Duration;

use keyferry_integration::parts::{NodePart, Part};
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use setup::Cluster;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Cluster::start)
        .needs(NodePart::ALL.map(|part| Needed::Part(Part::Node(part))))
        .needs([Needed::Part(Part::Helm)])
        .at_once(1)
        .limit(Duration::from_secs(1500))
        .test(
            "a_pod_gets_a_token_from_the_kubelet",
            pod::a_pod_gets_a_token_from_the_kubelet,
        )
        .test(
            "the_machine_keeps_its_settings",
            pod::the_machine_keeps_its_settings,
        )
        .test(
            "two_builds_have_one_digest",
            image::two_builds_have_one_digest,
        )
        .test_alone("installed_by_the_chart", installed::by_the_chart)
        .test_alone("installed_by_the_base", installed::by_the_base)
        .boxed()
}
