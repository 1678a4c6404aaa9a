//! `keyferry approve-certificates`: approves Keyferry's requests for client certificates, under an
//! account of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use keyferry_api::config::Overrides;
use keyferry_client::certificate_approver::{
    ApprovalDecision, ApproverError, CertificateApprover, next_interval,
};
use keyferry_hub::client::HubClient;
use keyferry_platform::clock::SystemClock;
use keyferry_platform::config_file;

use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::ui;

#[derive(Args)]
pub(super) struct ApproveCertificatesArgs {
    /// Keyferry's configuration file.
    ///
    /// For its namespace and its rules.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// User name of Keyferry's account on the hub.
    ///
    /// Requests of other users are ignored.
    #[arg(
        long,
        value_name = "USER",
        default_value = "system:serviceaccount:keyferry-system:keyferry",
        hide_short_help = true
    )]
    requester: String,
    /// Do it once, and exit.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(args: ApproveCertificatesArgs) -> ExitCode {
    match decide(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ui::command_failed(&error),
    }
}

async fn decide(args: &ApproveCertificatesArgs) -> Result<(), CommandError> {
    let configuration = config_file::read_config_file(&args.config, Overrides::of_a_reader())?;
    // The Pod's own account, as for serve: a person approves with kubectl.
    let config = args.hub.named().config().await;
    let client = config.and_then(HubClient::new)?;
    let clock = Arc::new(SystemClock::start());
    let requester = args.requester.clone();
    let mut approver = CertificateApprover::new(client, configuration.server, requester, clock);
    approver.check_policies().await.map_err(refused)?;
    let mut interval = None;
    loop {
        let decided = match approver.decide_pending().await {
            Ok(decisions) => {
                decisions.iter().for_each(print);
                !decisions.is_empty()
            }
            Err(error) if args.once => return Err(refused(error)),
            Err(error) => {
                ui::note(&format!("{error}; no request is approved meanwhile"));
                false
            }
        };
        if args.once {
            return Ok(());
        }
        let pause = next_interval(interval, decided);
        interval = Some(pause);
        tokio::time::sleep(pause).await;
    }
}

fn refused(error: ApproverError) -> CommandError {
    match &error {
        ApproverError::Unprotected(..) => CommandError::with_fix(
            error.to_string(),
            "apply what keyferry admission-policies prints, as cluster-admin",
        ),
        ApproverError::Hub(_, cause) => CommandError::of_hub_call(
            error.to_string(),
            cause,
            "bind the ClusterRole keyferry-certificate-approver to this account",
        ),
    }
}

fn print(decision: &ApprovalDecision) {
    let name = &decision.name;
    match &decision.left {
        None => ui::note(&format!("CertificateSigningRequest {name} was approved")),
        Some(why) => ui::note(&format!(
            "CertificateSigningRequest {name} is left to a user: {why}"
        )),
    }
}
