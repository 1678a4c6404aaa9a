//! `keyferry doctor`: the way of a token to a target, hop by hop, and the first broken one.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use keyferry_trust::doctor::{Mode, Report, Status, Verdict, examine};

use super::target_way::{StartArg, WayArgs};
use super::{TARGET, ui};
use crate::client::doctor::gather;

#[derive(Args)]
pub(super) struct DoctorArgs {
    /// What to start from: access/NAME, secret/NAME, kustomization/NAME or helmrelease/NAME; without it, the flags alone.
    #[arg(value_name = "KIND/NAME")]
    start: Option<StartArg>,
    /// Namespace on the hub: of what is started from.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    way: WayArgs,
    /// The target's AuthenticationConfiguration.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    auth_config: Option<std::path::PathBuf>,
    /// The target's Kubernetes release, like 1.33 or v1.33.4: where it does not say it to the anonymous.
    #[arg(long = "kubernetes", value_name = "VERSION", help_heading = TARGET)]
    target_version: Option<keyferry_trust::Minor>,
    /// A kubeconfig of somebody who may create tokenreviews at the target.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    target_kubeconfig: Option<std::path::PathBuf>,
    /// What the user must be allowed, as VERB/RESOURCE or VERB/RESOURCE.GROUP; in --target-namespace, else in all.
    #[arg(long, value_name = "VERB/RESOURCE", help_heading = TARGET)]
    needs: Vec<String>,
    /// Namespace at the target: where the user must have rights.
    #[arg(long, value_name = "NAMESPACE", help_heading = TARGET)]
    target_namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each hop.
    Table,
    /// A JSON object.
    Json,
}

/// The exit code where it is not known whether, or where, the way is broken.
const UNDETERMINED: u8 = 3;

pub(super) async fn run(args: DoctorArgs) -> ExitCode {
    match report(&args).await {
        Ok(report) => print(&report, args.output),
        Err(problem) => {
            ui::fail(&problem, None);
            ExitCode::from(2)
        }
    }
}

async fn report(args: &DoctorArgs) -> Result<Report, String> {
    let plan = args.way.plan(args.start.as_ref(), args.namespace.as_deref()).await?;
    let start = plan.start.clone();
    let auth_config = args.auth_config.as_deref().map(super::target_way::file).transpose()?;
    let mut modes = vec![Mode::Network];
    modes.extend(auth_config.is_some().then_some(Mode::Configuration));
    modes.extend(args.target_kubeconfig.is_some().then_some(Mode::TargetKubeconfig));
    let means = crate::client::doctor::Means {
        auth_config,
        minor: args.target_version,
        target_kubeconfig: args.target_kubeconfig.clone(),
        needs: args.needs.iter().map(|need| super::target_way::need(need, args.target_namespace.as_deref())).collect::<Result<_, _>>()?,
        target_namespace: args.target_namespace.clone(),
    };
    let evidence = gather(plan, &means).await.map_err(|error| error.to_string())?;
    Ok(Report::of(&start, modes, &examine(&evidence)))
}

fn print(report: &Report, output: Output) -> ExitCode {
    let text = if output == Output::Json { serde_json::to_string_pretty(report).unwrap_or_default() } else { table(report) };
    if ui::result(&text).is_err() {
        return ExitCode::FAILURE;
    }
    match report.verdict {
        Verdict::Well => ExitCode::SUCCESS,
        Verdict::Broken => ExitCode::FAILURE,
        Verdict::Undetermined => ExitCode::from(UNDETERMINED),
    }
}

fn table(report: &Report) -> String {
    let word = |status| match status {
        Status::Well => "ok",
        Status::Warning => "warning",
        Status::Broken => "BROKEN",
        Status::Undetermined => "undetermined",
        Status::NotAsked => "-",
    };
    let rows: Vec<Vec<String>> = report
        .hops
        .iter()
        .map(|hop| {
            vec![
                format!("{:?}", hop.hop),
                word(hop.status).to_owned(),
                hop.reason.map_or("", |reason| reason.name()).to_owned(),
                hop.detail.clone(),
            ]
        })
        .collect();
    let end = match (&report.broken, report.verdict) {
        (Some(hop), _) => {
            let (reason, mend) = (hop.reason.map_or("", |reason| reason.name()), hop.mend.unwrap_or_default());
            format!("the first broken hop is {:?}: {reason}: {}\nto mend it: {mend}", hop.hop, hop.detail)
        }
        (None, Verdict::Well) => "every hop holds".to_owned(),
        (None, _) => {
            let mends: Vec<&str> = report.hops.iter().filter(|hop| hop.status == Status::Broken).filter_map(|hop| hop.mend).collect();
            format!("undetermined: the hops above say what is missing {}", mends.join("; ")).trim_end().to_owned()
        }
    };
    format!("{}\n\n{end}", ui::table(&rows))
}
