//! What the controller makes of TargetClusters and TargetAccesses on a real hub: objects that lead to real targets.
#![allow(clippy::disallowed_methods, reason = "a test waits by the clock of the machine, as the real parts do")]

#[path = "deliveries/written.rs"]
mod written;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;
use keyferry_integration::world::on_hub::OnHub;

fn main() -> ExitCode {
    Suite::new(OnHub::start)
        .test("a_declared_access_gets_its_secret_and_the_secret_leads_to_the_target", written::a_secret_leads_to_the_target)
        .run()
}
