//! `keyferry reach`: which targets a subject reaches, and as whom.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::ObjectName;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_reach::Subject;
use keyferry_reach::answer::Question;

use super::{SnapshotArgs, print_answers, target_name};
use crate::args::TARGET;

/// The flags of `keyferry reach`.
#[derive(Args)]
pub(crate) struct ReachArgs {
    /// NAMESPACE/NAME for a ServiceAccount of the hub, user:NAME or group:NAME.
    subject: Subject,
    /// The TargetCluster (may be repeated)
    ///
    /// The answers are about it alone.
    #[arg(id = "at", long = "target", value_name = "NAME", value_parser = target_name, help_heading = TARGET)]
    targets: Vec<ObjectName>,
    #[command(flatten)]
    snapshot: SnapshotArgs,
}

/// Prints what the subject reaches; returns the exit code.
pub(crate) async fn run(args: ReachArgs) -> ExitCode {
    let question = Question {
        request: None,
        targets: args.targets.iter().cloned().collect(),
        subject: Some(args.subject.clone()),
        is_thorough: true,
        now: SystemClock::start().now().wall,
    };
    print_answers(&args.snapshot, &question).await
}
