//! Tests the CRDs on real apiservers of both minor versions: they are accepted, kubectl shows the
//! right columns, and Keyferry's own reader judges every object as the apiserver does.

mod case;
mod compared;
mod installed;
mod stage;

use keyferry_integration::runner::{BoxedSuite, Suite};
use stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .test(
            "they_are_established_and_structural",
            installed::established,
        )
        .test("the_command_prints_what_is_installed", installed::printed)
        .test(
            "kubectl_knows_short_names_category_and_columns",
            installed::kubectl,
        )
        .test("an_audience_never_changes", installed::audience)
        .test("kind_and_hub_never_change", installed::kind_and_hub)
        .test("targets_are_read_alike", compared::targets)
        .test("urls_are_read_alike", compared::urls)
        .test("accesses_are_read_alike", compared::accesses)
        .boxed()
}
