//! `keyferry targets`: lists what a configuration file, or the TargetClusters and TargetAccesses of
//! the hub or of a file, allow. The actual decision also depends on the hub's live ServiceAccounts
//! and namespaces.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::Policy;
use keyferry_client::configuration_source::Wanted;
use keyferry_core::static_verdict::StaticVerdict;
use serde::Serialize;

use keyferry_terminal::output_format::OutputFormat;
use keyferry_terminal::{HubArgs, objects_argument, ui};

#[derive(Args)]
pub(super) struct TargetsArgs {
    /// Keyferry's configuration file: without it, and where it says `objects: CustomResources`, the
    /// objects of the hub are listed.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Objects from a file, or - for standard input: the hub's TargetClusters and TargetAccesses
    /// as `kubectl get targetclusters,targetaccesses -A -o yaml` prints them, instead of the hub.
    #[arg(short, long, visible_alias = "objects", value_name = "PATH")]
    filename: Option<PathBuf>,
    /// Namespace on the hub: only accesses in it.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    access: String,
    service_account: String,
    target: String,
    address: String,
    audience: String,
    allowed: &'static str,
}

pub(super) async fn run(args: TargetsArgs) -> ExitCode {
    let source = match objects_argument::source(args.config.as_ref(), args.filename.as_deref()) {
        Ok(source) => source,
        Err(error) => return ui::command_failed(&error),
    };
    let policy = match source.read(|| args.hub.client(), Wanted::All).await {
        Ok(configuration) => configuration.policy,
        Err(error) => return ui::command_failed(&error.into()),
    };
    let rows: Vec<Row> = rows(&policy)
        .filter(|row| {
            args.namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == row.namespace)
        })
        .collect();
    match args.output {
        OutputFormat::Json => ui::finish_json(&rows, ExitCode::SUCCESS),
        OutputFormat::Text => {
            let head = [
                "NAMESPACE",
                "ACCESS",
                "SERVICEACCOUNT",
                "TARGET",
                "ADDRESS",
                "AUDIENCE",
                "ALLOWED",
            ]
            .map(str::to_owned)
            .to_vec();
            let lines = rows.into_iter().map(|row| {
                vec![
                    row.namespace,
                    row.access,
                    row.service_account,
                    row.target,
                    row.address,
                    row.audience,
                    row.allowed.to_owned(),
                ]
            });
            ui::finish(&ui::table(
                &std::iter::once(head).chain(lines).collect::<Vec<_>>(),
            ))
        }
    }
}

fn rows(policy: &Policy) -> impl Iterator<Item = Row> {
    policy.accesses.values().map(|access| {
        let target = policy.targets.get(&access.target);
        Row {
            namespace: access.name.namespace.to_string(),
            access: access.name.name.to_string(),
            service_account: access.service_account.to_string(),
            target: access.target.to_string(),
            address: target
                .map(|target| match target.is_cluster() {
                    true => target.address.clone(),
                    false => "none (kind: Audience)".to_owned(),
                })
                .unwrap_or_default(),
            audience: target
                .map(|target| target.audience.to_string())
                .unwrap_or_default(),
            allowed: StaticVerdict::of(policy, access).as_str(),
        }
    })
}
