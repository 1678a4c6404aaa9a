//! The forms of `keyferry trust --format`, read by the code of the distributions that they are for.
//!
//! `integration/clients/distributions` has one small Go program for each distribution. It reads a
//! form as the distribution does and prints what kube-apiserver gets. A test follows the path of
//! `--authentication-config` through the mounts to the file that the instructions name. Then it
//! misspells a field, which the same code must refuse.
//!
//! K3s and RKE2 are missing: the Go module proxy serves no version of their modules.

mod apiserver;
mod form;
mod kubeadm;
mod stage;
mod talos;

use keyferry_integration::parts::{Distribution, Part};
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs(Distribution::ALL.map(|one| Needed::Part(Part::Distribution(one))))
        .test("kubeadm_takes_both_versions", kubeadm::takes_both_versions)
        .test(
            "kind_takes_the_form_for_both_versions_of_kubeadm",
            kubeadm::kind_takes_it,
        )
        .test("cluster_api_takes_the_form", kubeadm::cluster_api_takes_it)
        .test(
            "talos_takes_the_document_beside_the_new_ones",
            talos::takes_the_document,
        )
        .test(
            "talos_takes_the_patch_of_its_first_document",
            talos::takes_the_patch,
        )
        .test(
            "talos_takes_each_form_for_one_kind_of_configuration",
            talos::forms_are_not_interchangeable,
        )
        .boxed()
}
