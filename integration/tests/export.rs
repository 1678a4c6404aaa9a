//! Tests `keyferry export`: it writes the hub's documents as files, which a plain web server serves
//! to a real target.
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "export/rights.rs"]
mod rights;
#[path = "export/setup.rs"]
mod setup;
#[path = "export/static_server.rs"]
mod static_server;
#[path = "export/target.rs"]
mod target;
#[path = "export/watch.rs"]
mod watch;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;

use setup::ExportingHub;

fn main() -> ExitCode {
    Suite::new(ExportingHub::start)
        .at_once(4)
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
        .run()
}
