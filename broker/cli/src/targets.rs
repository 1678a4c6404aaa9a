//! `keyferry targets`: lists what a configuration file, or the TargetClusters and TargetAccesses of
//! the hub or of a file, allow. The actual decision also depends on the hub's live ServiceAccounts
//! and namespaces.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::{DeliveryType, Policy};
use keyferry_client::ClientError;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::objects_of_hub::list_of;
use keyferry_client::wanted_objects::Wanted;
use keyferry_core::static_verdict::{StaticVerdict, offered_deliveries};
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use serde::{Deserialize, Serialize};

use crate::args::HubArgs;
use crate::args::objects_argument::ObjectsArgs;
use crate::args::output_format::FormatArgs;
use crate::command_error::CommandError;
use crate::ui;

/// How many namespaces' ServiceAccounts are listed.
const MAX_NAMESPACES: usize = 500;

#[derive(Args)]
pub(super) struct TargetsArgs {
    #[command(flatten)]
    objects: ObjectsArgs,
    /// Namespace on the hub [default: all]
    ///
    /// Only accesses in it are listed.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
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
    deliveries: Vec<&'static str>,
    allowed: &'static str,
}

pub(super) async fn run(args: TargetsArgs) -> ExitCode {
    let source = match args.objects.source() {
        Ok(source) => source,
        Err(error) => return ui::command_failed(&error),
    };
    let policy = match source
        .read_configuration(|| args.hub.client(), Wanted::All)
        .await
    {
        Ok(configuration) => configuration.policy,
        Err(error) => return ui::command_failed(&explained(error)),
    };
    let mut rows: Vec<Row> = rows(&policy)
        .filter(|row| {
            args.namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == row.namespace)
        })
        .collect();
    // The objects of a file say nothing of the hub that they are for.
    if source == ConfigurationSource::Hub
        && let Ok(client) = args.hub.client().await
    {
        note_missing_accounts(&client, &mut rows).await;
    }
    match args.format.output.document() {
        Some(format) => ui::finish_document(&rows, format, ExitCode::SUCCESS),
        None => {
            let head = [
                "NAMESPACE",
                "ACCESS",
                "SERVICEACCOUNT",
                "TARGET",
                "ADDRESS",
                "AUDIENCE",
                "DELIVERIES",
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
                    row.deliveries.join(","),
                    row.allowed.to_owned(),
                ]
            });
            ui::finish(&ui::table(
                &std::iter::once(head).chain(lines).collect::<Vec<_>>(),
            ))
        }
    }
}

/// An object reduced to its name: a tenant decides how long the rest is.
#[derive(Deserialize)]
struct NamedObject {
    metadata: ObjectMetadata,
}

#[derive(Deserialize)]
struct ObjectMetadata {
    name: Option<String>,
}

/// Marks the rows whose ServiceAccount does not exist. What the user may not list stays as it is.
async fn note_missing_accounts(client: &HubClient, rows: &mut [Row]) {
    let namespaces: BTreeSet<String> = rows
        .iter()
        .filter(|row| row.allowed != StaticVerdict::NotAllowed.as_str())
        .map(|row| row.namespace.clone())
        .take(MAX_NAMESPACES)
        .collect();
    for namespace in namespaces {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let doing = "listing the ServiceAccounts of a namespace";
        let name = |account: NamedObject| account.metadata.name;
        let Ok(names) = list_of(client, &path, doing, name).await else {
            continue;
        };
        let names: BTreeSet<String> = names.into_iter().collect();
        let missing = |row: &&mut Row| {
            row.namespace == namespace
                && row.allowed != StaticVerdict::NotAllowed.as_str()
                && row.allowed != StaticVerdict::NoSuchTarget.as_str()
                && !names.contains(row.service_account.as_str())
        };
        for row in rows.iter_mut().filter(missing) {
            row.allowed = "no such ServiceAccount";
        }
    }
}

/// Says which right a user lacks who may see only the accesses of a namespace.
fn explained(error: ClientError) -> CommandError {
    let missing = matches!(
        error,
        ClientError::HubCall {
            error: HubError::Forbidden(_),
            ..
        }
    );
    let error = CommandError::from(error);
    if missing {
        return CommandError::with_fix(
            error.problem,
            "ask the hub's admin for list on targetclusters and targetaccesses of keyferry.dev \
             (ClusterRole keyferry-platform-admin has both); kubectl get targetaccesses -n \
             NAMESPACE shows your own",
        );
    }
    error
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
            deliveries: offered_deliveries(access)
                .map(DeliveryType::as_str)
                .collect(),
            allowed: StaticVerdict::of(policy, access).as_str(),
        }
    })
}
