//! Tests `keyferry export`: it writes the hub's documents as files, which a plain web server serves
//! to a real target.

mod rights;
mod setup;
mod static_server;
mod target;
mod watch;

use keyferry_integration::runner::{BoxedSuite, Suite};
use setup::ExportingHub;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(ExportingHub::start)
        .concurrent_tests(4)
        .test(
            "a_target_accepts_a_hub_token_by_exported_files",
            target::accepts_a_hub_token_by_exported_files,
        )
        .test(
            "two_paths_of_the_hub_are_all_that_it_needs",
            rights::two_paths_are_all,
        )
        .test(
            "watch_writes_what_changes_and_keeps_files_through_failures",
            watch::keeps_files_through_failures,
        )
        .test("mistakes_are_told", rights::mistakes_are_told)
        .boxed()
}
