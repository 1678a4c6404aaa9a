//! `keyferry doctor`: follows a token's path to a target, hop by hop, and names the first broken
//! one.

mod next;

use std::process::ExitCode;

use clap::Args;
use keyferry_client::doctor::diagnosis::{Identity, Mode, Report, examine};
use keyferry_client::doctor::gather_evidence;
use keyferry_kube_authn::Code;

use crate::args::TARGET;
use crate::args::output_format::{FormatArgs, OutputFormat};
use crate::args::start_args::StartArgs;
use crate::command_error::CommandError;
use crate::doctor_report::{exit_code, table};
use crate::{kuberc, ui};

#[derive(Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    start: StartArgs,
    /// The target's AuthenticationConfiguration.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    auth_config: Option<std::path::PathBuf>,
    /// The target's Kubernetes release, like 1.33 or v1.33.4 [default: what it reports]
    ///
    /// Needed if it does not report it to anonymous clients.
    #[arg(long = "kubernetes", value_name = "VERSION", help_heading = TARGET, hide_short_help = true)]
    target_version: Option<keyferry_kube_authn::Minor>,
    /// A kubeconfig of a user who may create tokenreviews at the target.
    #[arg(long, value_name = "FILE", help_heading = TARGET, hide_short_help = true)]
    target_kubeconfig: Option<std::path::PathBuf>,
    /// Context of --target-kubeconfig [default: its current one]
    #[arg(
        long,
        value_name = "NAME",
        requires = "target_kubeconfig",
        hide_short_help = true
    )]
    target_context: Option<String>,
    /// What the user must be allowed, as VERB/RESOURCE or VERB/RESOURCE.GROUP (may be repeated)
    ///
    /// In --target-namespace, else in all.
    #[arg(long, value_name = "VERB/RESOURCE", help_heading = TARGET)]
    needs: Vec<String>,
    /// Namespace at the target [default: all]
    ///
    /// Where the user must have rights.
    #[arg(long, value_name = "NAMESPACE", help_heading = TARGET)]
    target_namespace: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) async fn run(args: DoctorArgs) -> ExitCode {
    if let Some(note) = kuberc::note() {
        ui::note_with_fix(&note, kuberc::FIX);
    }
    match report(&args).await {
        Ok((report, yaml)) => print(&report, yaml.as_deref(), args.format.output),
        Err(error) => ui::command_misused(&error),
    }
}

/// Returns the report, and the missing RBAC as YAML.
async fn report(args: &DoctorArgs) -> Result<(Report, Option<String>), CommandError> {
    let plan = args.start.plan().await?;
    let start = plan.start.clone();
    let auth_config = args
        .auth_config
        .as_deref()
        .map(crate::local_file::read_small_file)
        .transpose()?;
    let mut modes = vec![Mode::Network];
    modes.extend(auth_config.is_some().then_some(Mode::Configuration));
    modes.extend(
        args.target_kubeconfig
            .is_some()
            .then_some(Mode::TargetKubeconfig),
    );
    let means = keyferry_client::doctor::Means {
        auth_config,
        minor: args.target_version,
        target_kubeconfig: args.target_kubeconfig.clone(),
        target_context: args.target_context.clone(),
        needs: args
            .needs
            .iter()
            .map(|need| crate::args::start_args::need(need, args.target_namespace.as_deref()))
            .collect::<Result<_, _>>()?,
        target_namespace: args.target_namespace.clone(),
    };
    let acts_as = plan.impersonate.as_ref().map(|user| user.name.clone());
    let evidence = gather_evidence(plan, &means).await?;
    let mut report = Report::of(&start, modes, &examine(&evidence));
    report.next = next::commands(&report, args.auth_config.as_deref());
    let user = acts_as.or(match &evidence.target.identity {
        Identity::Known(name) if !name.is_empty() => Some(name.clone()),
        _ => None,
    });
    let lacks = report
        .hops
        .iter()
        .any(|hop| hop.reason == Some(Code::NoRights.into()));
    let yaml = user.filter(|_| lacks).map(|user| {
        next::rbac(
            &user,
            &evidence.target.needs,
            args.target_namespace.as_deref(),
        )
    });
    Ok((report, yaml))
}

fn print(report: &Report, yaml: Option<&str>, output: OutputFormat) -> ExitCode {
    let code = exit_code(report.verdict);
    match output.document() {
        Some(format) => ui::finish_document(report, format, ExitCode::from(code)),
        None => ui::finish_with(&table(report, yaml), code),
    }
}
