//! `keyferry onboard tenant`: lets a ServiceAccount of a tenant's namespace use a target, and
//! proves that it can.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::objects_of_hub::target_value;
use keyferry_doctor::Means;
use keyferry_hub::client::HubClient;
use keyferry_terminal::command_error::CommandError;
use keyferry_terminal::ui;

use super::guided_args::GuidedArgs;
use super::place::{KeyferryObjects, ready_target};
use super::progress::Progress;
use super::target::incomplete;
use super::tenant_flags::author;
use super::write::{Writing, write_all};
use crate::onboarding::apply::{Cluster, PlannedObject};
use crate::onboarding::objects::{Author, Tenant, allow, applied_again};
use crate::onboarding::target_facts::listed_release;

#[derive(Args)]
pub(super) struct TenantArgs {
    /// The tenant's namespace on the hub.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// A ServiceAccount of the hub: the tenant's, which acts at the target.
    #[arg(long, value_name = "NAME")]
    service_account: String,
    /// The TargetCluster: the one that the tenant is to use.
    #[arg(long = "target", value_name = "NAME")]
    target_cluster: String,
    /// The name of the TargetAccess: without it, that of the target.
    #[arg(long, value_name = "NAME")]
    access: Option<String>,
    /// The user or group that writes the TargetAccess from now on, as a user name, group:NAME or
    /// system:serviceaccount:NAMESPACE:NAME: a Role gives it the rights that the admission policy
    /// keyferry-author demands.
    #[arg(long, value_name = "USER", value_parser = author)]
    author: Option<Author>,
    #[command(flatten)]
    guided: GuidedArgs,
}

pub(super) async fn run(
    args: &TenantArgs,
    progress: &mut Progress,
) -> Result<ExitCode, CommandError> {
    let tenant = tenant(args)?;
    let access = tenant.access_name();
    progress.begin("reading the hub");
    let hub = args.guided.hub.access().description().await?;
    ui::note(&format!("hub: {hub}"));
    let client = args.guided.hub.client().await?;
    let place = args.guided.place(&client).await?;
    let changed = changed_target(&tenant, &place, &client).await?;
    let mut written: Vec<PlannedObject> = changed.iter().cloned().collect();
    let mut for_file = Vec::new();
    for object in tenant.objects(&place.keyferry) {
        let in_file = place.file().is_some() && object["kind"] == "TargetAccess";
        if !in_file {
            written.push(object.into());
        } else if !place.file_has_access(&access) {
            for_file.push(object);
        }
    }
    let output = &args.guided.output;
    output.hub(&written, changed.is_none())?;
    let writing = args.guided.write.writing();
    progress.begin("applying the objects of the hub");
    write_all(&client, Cluster::Hub, &written, writing, progress).await?;
    if let Some(file) = place.file().filter(|_| !for_file.is_empty()) {
        output.configuration(&file.display().to_string(), &for_file)?;
        return Ok(incomplete(&format!(
            "the configuration file lacks what is shown; add it, allow {} in its TargetCluster, \
             and run this command again",
            tenant.account
        )));
    }
    if writing != Writing::Applied {
        return Ok(incomplete("nothing was written; add --apply"));
    }

    progress.begin("waiting until the TargetCluster is Ready");
    let target = match place.file() {
        Some(_) => None,
        None => Some(ready_target(&client, &tenant.target).await?),
    };
    if changed.is_some() {
        progress.begin("reading what the target needs");
        show_new_file(args, &tenant, &place, &client).await?;
    }
    args.guided
        .prove(access, target, Means::default(), &place, &client, progress)
        .await
}

fn tenant(args: &TenantArgs) -> Result<Tenant, CommandError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        CommandError::new(format!("reading {what}: {error}"))
    };
    let object_name =
        |what: &str, text: &str| ObjectName::new(text).map_err(|error| wrong(what, &error));
    let target = object_name("--target", &args.target_cluster)?;
    Ok(Tenant {
        account: ServiceAccount {
            namespace: Namespace::new(args.namespace.as_str())
                .map_err(|error| wrong("the tenant's namespace", &error))?,
            name: object_name("--service-account", &args.service_account)?,
        },
        access: match &args.access {
            Some(name) => object_name("--access", name)?,
            None => target.clone(),
        },
        target,
        deliveries: args.guided.delivery.clone(),
        author: args.author.clone(),
    })
}

/// Returns the TargetCluster with a rule for the tenant, if it has none yet.
async fn changed_target(
    tenant: &Tenant,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Result<Option<PlannedObject>, CommandError> {
    if let Some(file) = place.file() {
        if place.file_has_target(&tenant.target) {
            return Ok(None);
        }
        return Err(CommandError::with_fix(
            format!("{} has no TargetCluster {}", file.display(), tenant.target),
            "onboard it first: keyferry onboard target",
        ));
    }
    let Some(existing) = target_value(client, &tenant.target).await? else {
        return Err(CommandError::with_fix(
            format!("the hub has no TargetCluster {}", tenant.target),
            "onboard it first: keyferry onboard target",
        ));
    };
    let mut target = applied_again(&existing);
    let changed = allow(&mut target, &tenant.account, &tenant.deliveries);
    Ok(changed.then_some(PlannedObject {
        object: target,
        read: Some(existing),
    }))
}

/// The target's file admits ServiceAccounts by name, so a new one needs a new file.
async fn show_new_file(
    args: &TenantArgs,
    tenant: &Tenant,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Result<(), CommandError> {
    let source = args.guided.source();
    let hub = args.guided.hub.access();
    let guard = args.guided.addresses.guard(hub.clone());
    let release = listed_release(&hub, &source, &tenant.target, &guard).await;
    let part = args
        .guided
        .target_part(&tenant.target, release, place, client)
        .await?;
    ui::note(&format!(
        "the target's file must name {}: write the new one there",
        tenant.account
    ));
    let address = target_value(client, &tenant.target)
        .await?
        .and_then(|object| Some(object.pointer("/spec/address")?.as_str()?.to_owned()))
        .unwrap_or_default();
    args.guided.output.target(&part, &address)
}
