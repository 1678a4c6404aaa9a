//! Tests the CRDs on real apiservers of both minor versions: they are accepted, kubectl shows the
//! right columns, and Keyferry's own reader judges every object as the apiserver does.
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

#[path = "crds/accesses.rs"]
mod accesses;
#[path = "crds/case.rs"]
mod case;
#[path = "crds/compared.rs"]
mod compared;
#[path = "crds/installed.rs"]
mod installed;
#[path = "crds/stage.rs"]
mod stage;
#[path = "crds/targets.rs"]
mod targets;
#[path = "crds/urls.rs"]
mod urls;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;

use stage::Stage;

fn main() -> ExitCode {
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
        .test("targets_are_read_alike", compared::targets)
        .test("urls_are_read_alike", compared::urls)
        .test("accesses_are_read_alike", compared::accesses)
        .run()
}
