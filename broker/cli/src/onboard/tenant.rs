//! `keyferry onboard tenant`: lets a ServiceAccount of a tenant's namespace use a target, and
//! proves that it can.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::doctor::Means;
use keyferry_client::object_view::TargetView;
use keyferry_client::objects_of_hub::target_value;
use keyferry_hub::client::HubClient;
use serde_json::Value;

use super::guided_args::{GuidedArgs, ProofRequest, Tries};
use super::place::{KeyferryObjects, ready_target};
use super::progress::Progress;
use super::proof::incomplete;
use super::tenant_flags::author;
use super::write::{Writing, write_all};
use crate::command_error::CommandError;
use crate::onboarding::allow_rules::{allow, allow_exactly};
use crate::onboarding::apply::{Cluster, PlannedObject};
use crate::onboarding::change_plan::Removals;
use crate::onboarding::objects::{Author, Tenant, applied_again, flux_account};
use crate::onboarding::target_facts::listed_release;
use crate::trust::Occasion;
use crate::ui;

#[derive(Args)]
pub(super) struct TenantArgs {
    /// The tenant's namespace on the hub.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// A ServiceAccount of the hub.
    ///
    /// The tenant's, which acts at the target.
    #[arg(long, value_name = "NAME")]
    service_account: String,
    /// The TargetCluster.
    ///
    /// The one that the tenant is to use.
    #[arg(long = "target", value_name = "NAME")]
    target_cluster: String,
    /// The name of the TargetAccess [default: that of the target]
    #[arg(long, value_name = "NAME")]
    access: Option<String>,
    /// The user or group that writes the TargetAccess from now on.
    ///
    /// A user name, group:NAME or system:serviceaccount:NAMESPACE:NAME. A Role gives it the rights
    /// that the admission policy keyferry-author demands.
    #[arg(long, value_name = "USER", value_parser = author, hide_short_help = true)]
    author: Option<Author>,
    #[command(flatten)]
    guided: GuidedArgs,
}

pub(super) async fn run(
    args: &TenantArgs,
    progress: &mut Progress,
) -> Result<ExitCode, CommandError> {
    let mut tenant = tenant(args)?;
    let access = tenant.access_name();
    args.guided.check()?;
    progress.begin("reading the hub");
    let hub = args.guided.hub.access().describe_hub().await?;
    ui::note(&format!("hub: {hub}"));
    let client = args.guided.hub.client().await?;
    let keyferry_objects = args.guided.find_keyferry_objects(&client).await?;
    let write = args.guided.write;
    let existing = args
        .guided
        .existing_access(&mut tenant, &keyferry_objects, &client)
        .await?;
    let changed = changed_target(&tenant, &keyferry_objects, write.removals(), &client).await?;
    let mut wanted: Vec<PlannedObject> = changed.iter().cloned().collect();
    if let Some(account) = args.guided.flux_account() {
        wanted.extend(flux_account(account).map(PlannedObject::from));
    }
    let for_file = add_tenant(&tenant, existing, &keyferry_objects, &mut wanted);
    let plan = write.plan(&client, Cluster::Hub, wanted).await?;
    let output = &args.guided.output;
    output.hub(plan.objects(), changed.is_none())?;
    write.agree("on the hub", &plan)?;
    let writing = write.writing();
    progress.begin("applying the objects of the hub");
    write_all(&client, Cluster::Hub, &plan, writing, progress).await?;
    if let (Some(file), Some(access)) = (keyferry_objects.file(), for_file) {
        output.configuration(&file.display().to_string(), &[access])?;
        return Ok(incomplete(&format!(
            "the configuration file lacks what is shown; add it, allow {} in its TargetCluster, \
             and run this command again",
            tenant.account
        )));
    }
    if writing != Writing::Applied {
        return Ok(incomplete("nothing was written; add --apply"));
    }

    let deadline = args.guided.deadline();
    progress.begin("waiting until the TargetCluster is Ready");
    let target = match keyferry_objects.file() {
        Some(_) => None,
        None => Some(ready_target(&client, &tenant.target, &deadline).await?),
    };
    if changed.is_some() || args.guided.asks_for_target_part() {
        progress.begin("reading what the target needs");
        show_new_file(args, &tenant, &keyferry_objects, &client, progress).await?;
    }
    let means = Means::default();
    let asked = ProofRequest {
        access,
        target,
        means,
        deadline,
        tries: Tries::UntilDeadline,
    };
    args.guided
        .prove(asked, &keyferry_objects, &client, progress)
        .await
}

/// Plans the objects of a tenant that are not planned yet. Returns the TargetAccess if it is to be
/// added to the configuration file.
pub(super) fn add_tenant(
    tenant: &Tenant,
    existing: Option<Value>,
    place: &KeyferryObjects,
    wanted: &mut Vec<PlannedObject>,
) -> Option<Value> {
    for object in tenant.prerequisites(&place.keyferry) {
        if !wanted.iter().any(|planned| planned.object == object) {
            wanted.push(object.into());
        }
    }
    let access = tenant.target_access();
    if place.file().is_some() {
        return (!place.file_has_access(&tenant.access_name())).then_some(access);
    }
    wanted.push(PlannedObject {
        read: existing,
        ..access.into()
    });
    None
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
    removals: Removals,
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
    let changed = match removals {
        Removals::Kept => allow(&mut target, &tenant.account, &tenant.deliveries),
        Removals::Pruned => allow_exactly(&mut target, &tenant.account, &tenant.deliveries),
    };
    Ok(changed.then(|| PlannedObject::change_of(target, existing)))
}

/// The target's file admits ServiceAccounts by name, so a new one needs a new file.
async fn show_new_file(
    args: &TenantArgs,
    tenant: &Tenant,
    place: &KeyferryObjects,
    client: &HubClient,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    let source = args.guided.source();
    let hub = args.guided.hub.access();
    let guard = args.guided.addresses.guard(hub.clone());
    let release = listed_release(&hub, &source, &tenant.target, &guard).await;
    let part = args
        .guided
        .target_part(&tenant.target, release, Occasion::Change, place, client)
        .await?;
    ui::note(&format!(
        "the target's file must name {}: write the new one there",
        tenant.account
    ));
    if args.guided.merge.is_none() {
        ui::note(
            "warning: whether the target's file has entries of others is undetermined, because this \
             command has no kubeconfig of the target: if it has, add --merge FILE with that file",
        );
    }
    let address = target_value(client, &tenant.target)
        .await?
        .map(|object| TargetView::of(&object).spec.address)
        .unwrap_or_default();
    progress.leave(format!(
        "on every control plane node of the target: the new file that is shown, which names {}",
        tenant.account
    ));
    if !part.rbac.is_empty() {
        progress.leave(format!(
            "at the target ({address}): apply the RBAC that is shown; this command has no \
             kubeconfig of the target"
        ));
    }
    args.guided.output.target(&part, &address, true)
}
