//! Makes a release from two clean clones with `.ci/release`, signs it with `.ci/sign`, and checks
//! every file of it as a user would. The binary is a debug build, which takes less time.

mod artifacts;
mod components;
mod refusals;
mod signatures;
mod signing;
mod stage;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .needs([Needed::Part(Part::Helm), Needed::Part(Part::Cosign)])
        // It compiles the program, and beside a build the tests that measure time fail.
        .exclusive()
        .only_on_request()
        .test(
            "checksums_cover_every_file",
            artifacts::checksums_cover_every_file,
        )
        .test(
            "the_binary_is_static_and_names_its_commit",
            artifacts::the_binary_is_static_and_names_its_commit,
        )
        .test(
            "krew_installs_the_archive",
            artifacts::krew_installs_the_archive,
        )
        .test(
            "the_chart_renders_as_its_folder",
            artifacts::the_chart_renders_as_its_folder,
        )
        .test(
            "the_image_has_its_binary",
            artifacts::the_image_has_its_binary,
        )
        .test(
            "the_crds_are_those_of_the_repository",
            artifacts::the_crds_are_those_of_the_repository,
        )
        .test(
            "each_sbom_lists_the_crates_of_its_binary",
            components::each_sbom_lists_the_crates_of_its_binary,
        )
        .test(
            "vex_statements_are_about_both_binaries",
            components::vex_statements_are_about_both_binaries,
        )
        .test(
            "provenance_names_files_and_commit",
            components::provenance_names_files_and_commit,
        )
        .test(
            "a_changed_byte_is_refused",
            signatures::a_changed_byte_is_refused,
        )
        .test(
            "the_provenance_is_signed_for_the_archive",
            signatures::the_provenance_is_signed_for_the_archive,
        )
        .test(
            "only_equal_builds_of_two_paths_are_signed",
            signing::only_equal_builds_of_two_paths_are_signed,
        )
        .test(
            "what_cannot_be_released_is_refused",
            refusals::what_cannot_be_released_is_refused,
        )
        .boxed()
}
