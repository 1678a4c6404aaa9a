//! `keyferry onboard`: sets up a target or a tenant in one guided run. Everything is shown
//! before it is applied, and a federation counts as working only once a token was tried.

mod guided_args;
mod output;
mod place;
mod progress;
mod proof;
mod role;
mod target;
mod target_side;
mod tenant;
mod tenant_flags;
mod token_signer;
mod write;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::ui;

pub(crate) use self::progress::Progress;
pub(crate) use self::write::{DryRun, Writing, print, show, write_all};

/// The flags of `keyferry onboard`.
#[derive(Args)]
pub(crate) struct OnboardArgs {
    #[command(subcommand)]
    command: OnboardCommand,
}

#[derive(Subcommand)]
enum OnboardCommand {
    /// Onboard a target, from its kubeconfig to a proven federation.
    ///
    /// A token proves it.
    Target(Box<target::TargetArgs>),
    /// Let a ServiceAccount of a namespace use a target, and prove that it can.
    Tenant(Box<tenant::TenantArgs>),
}

/// Shows, applies and proves what a target or a tenant needs; returns the exit code.
pub(crate) async fn run(args: OnboardArgs) -> ExitCode {
    let mut progress = Progress::default();
    let ended = match args.command {
        OnboardCommand::Target(args) => target::run(&args, &mut progress).await,
        OnboardCommand::Tenant(args) => tenant::run(&args, &mut progress).await,
    };
    let code = ended.unwrap_or_else(|error| {
        let code = ui::command_failed(&error);
        progress.report();
        code
    });
    progress.report_left();
    code
}
