//! `keyferry offboard`: lists the accesses that end with a target or a tenant, and removes them in
//! an order that orphans nothing.

mod ending_uses;
mod in_file;
mod removal_step;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::ClientError;
use keyferry_client::object_view::{AccessView, ObjectHead, TargetView};
use keyferry_client::objects_of_hub::{list_accesses, target_value, whole_target_values};
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

use self::ending_uses::{print_uses, refuse_flux, refuse_unread};
use self::in_file::FileObjects;
use self::removal_step::{RemovalStep, UNTIL_THEN, left_over};
use super::onboard::{DryRun, Progress, Writing, print, show, write_all};
use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::onboarding::allow_rules::{allowed_in, disallow, rules_by_label};
use crate::onboarding::apply::{Cluster, PlannedObject, path};
use crate::onboarding::change_plan::{ChangePlan, PlannedChange, Removals};
use crate::onboarding::keyferry_namespace;
use crate::onboarding::objects::{applied_again, with_kind};
use crate::onboarding::users::{self, TargetUse};
use crate::{doctor_report, ui};

/// The flags of `keyferry offboard`.
#[derive(Args)]
pub(crate) struct OffboardArgs {
    #[command(subcommand)]
    command: OffboardCommand,
}

#[derive(Subcommand)]
enum OffboardCommand {
    /// Remove a target's TargetCluster.
    ///
    /// With --with-accesses also what leads to it.
    Target(TargetArgs),
    /// Remove a tenant's use of a target.
    ///
    /// Its TargetAccesses, and the rule that names it.
    Tenant(TenantArgs),
}

#[derive(Args)]
struct TargetArgs {
    /// The name of the TargetCluster.
    #[arg(value_name = "NAME")]
    name: String,
    /// Also delete the TargetAccesses that lead to the target.
    #[arg(long)]
    with_accesses: bool,
    /// The target's own entry of the hub is removed, so delete the TargetCluster too.
    #[arg(long)]
    entry_removed: bool,
    #[command(flatten)]
    removal: RemovalArgs,
}

#[derive(Args)]
struct TenantArgs {
    /// The tenant's namespace on the hub.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// The TargetCluster.
    ///
    /// The one that the tenant must no longer use.
    #[arg(long = "target", value_name = "NAME")]
    target_cluster: String,
    #[command(flatten)]
    removal: RemovalArgs,
}

#[derive(Args)]
struct RemovalArgs {
    /// Remove what is shown.
    ///
    /// Otherwise nothing is removed.
    #[arg(long)]
    remove: bool,
    /// Let the apiservers check what is shown, admission policies included.
    ///
    /// Nothing is removed.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "remove")]
    dry_run: Option<DryRun>,
    /// Keyferry's configuration file.
    ///
    /// Where it holds the objects, the lines to remove are shown.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Remove it although Flux objects refer to what is delivered, or may.
    ///
    /// Flux cannot prune at the target afterwards.
    #[arg(long, hide_short_help = true)]
    orphan_flux: bool,
    /// Remove it although TargetAccesses that are too large to be read may lead to the target.
    #[arg(long, hide_short_help = true)]
    ignore_unread_accesses: bool,
    #[command(flatten)]
    hub: HubArgs,
}

impl RemovalArgs {
    fn writing(&self) -> Writing {
        match (self.remove, self.dry_run) {
            (true, _) => Writing::Applied,
            (false, Some(DryRun::Server)) => Writing::DryRun,
            (false, None) => Writing::ShownOnly,
        }
    }
}

/// Lists the accesses that end, and removes them; returns the exit code.
pub(crate) async fn run(args: OffboardArgs) -> ExitCode {
    let mut progress = Progress::default();
    let ended = match args.command {
        OffboardCommand::Target(args) => target(&args, &mut progress).await,
        OffboardCommand::Tenant(args) => tenant(&args, &mut progress).await,
    };
    ended.unwrap_or_else(|error| {
        let code = ui::command_failed(&error);
        progress.report();
        code
    })
}

async fn target(args: &TargetArgs, progress: &mut Progress) -> Result<ExitCode, CommandError> {
    let name = object_name("the name of the TargetCluster", &args.name)?;
    if let Some(file) = FileObjects::named(&args.removal)? {
        return file.target(&name).map(|()| ExitCode::SUCCESS);
    }
    let writing = args.removal.writing();
    let client = connected(&args.removal).await?;
    let existing = existing(&client, &name).await?;
    let roles = roles_of(&client, &name).await?;
    if !roles.is_empty() {
        print(&format!(
            "roles at the cluster of {name}: {}",
            roles.join(", ")
        ))?;
    }
    let uses = users::of_target(&client, &name, None).await?;
    print_uses(&uses, &name)?;
    let live: Vec<&TargetUse> = uses.readable.iter().filter(|one| !one.deleting).collect();
    let unknown = uses
        .unknown(&name)
        .filter(|_| !args.removal.ignore_unread_accesses);
    let next = |live: &[&TargetUse]| {
        let orphan_flux = args.removal.orphan_flux;
        let unknown = unknown.as_deref();
        let step = RemovalStep::next(&roles, live, unknown, orphan_flux, args.entry_removed);
        step.describe(&existing.view, &name)
    };
    let Some(persistence) = writing.persistence() else {
        ui::note("nothing was removed");
        print(&next(&live))?;
        return Ok(ExitCode::SUCCESS);
    };
    refuse_roles(&name, &roles)?;
    refuse_unread(&args.removal, &uses, &name)?;
    refuse_flux(&args.removal, &live)?;
    if !live.is_empty() && !args.with_accesses {
        return Err(CommandError::with_fix(
            format!(
                "TargetCluster {name} is used by {} TargetAccess(es); nothing was removed",
                live.len()
            ),
            "offboard the tenants first, or add --with-accesses",
        ));
    }
    let mut plan = planned_deletions(&live);
    if args.entry_removed {
        plan.changes.extend(deletion(existing.object.clone()));
    }
    print(&format!("== changes on the hub\n{}", plan.describe()))?;
    progress.begin("deleting the TargetAccesses");
    delete_accesses(&client, &live, persistence, progress).await?;
    if !args.entry_removed {
        // Without the TargetCluster nobody could tell any more what the target trusts, and its
        // audience would be free.
        ui::note(&format!(
            "TargetCluster {name} stays until the target's entry is removed"
        ));
        print(&next(&[]))?;
        return Ok(ExitCode::from(doctor_report::UNDETERMINED));
    }
    delete_target(&client, &existing, &name, persistence, progress).await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the TargetClusters that are roles at the cluster of this one.
async fn roles_of(client: &HubClient, name: &ObjectName) -> Result<Vec<String>, ClientError> {
    let targets = whole_target_values(client).await?;
    let targets = targets.iter().map(TargetView::of);
    let roles = targets.filter(|target| target.spec.same_as.as_deref() == Some(name.as_str()));
    Ok(roles.map(|target| target.metadata.name).collect())
}

/// Refuses to remove a target before its roles, which would be without a cluster.
fn refuse_roles(name: &ObjectName, roles: &[String]) -> Result<(), CommandError> {
    if roles.is_empty() {
        return Ok(());
    }
    let count = roles.len();
    Err(CommandError::with_fix(
        format!("TargetCluster {name} has {count} role(s); nothing was removed"),
        format!("offboard them first: {}", roles.join(", ")),
    ))
}

/// Deletes the TargetCluster, and names what only it named.
async fn delete_target(
    client: &HubClient,
    existing: &ExistingTarget,
    name: &ObjectName,
    persistence: Persistence,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    progress.begin("deleting the TargetCluster");
    let place = path(&ObjectHead::of(&existing.object)).unwrap_or_default();
    users::delete(client, &place, &existing.view.metadata.uid, persistence)
        .await
        .map_err(|error| failed(&format!("deleting TargetCluster {name}"), &error))?;
    if persistence == Persistence::DryRun {
        ui::note(&format!(
            "TargetCluster {name} would be deleted (server dry run)"
        ));
        ui::note("nothing was removed; add --remove");
        return Ok(());
    }
    let gone = target_value(client, name).await?.is_none();
    ui::note(&match gone {
        true => format!("TargetCluster {name} is gone"),
        false => format!(
            "TargetCluster {name} is being deleted: no token is issued for it any more, and it \
             goes once the delivered tokens have expired"
        ),
    });
    let others: Result<Vec<TargetView>, ClientError> = whole_target_values(client)
        .await
        .map(|targets| targets.iter().map(TargetView::of).collect());
    // Without a known namespace, the printed commands have a placeholder.
    let namespace = keyferry_namespace::find(client).await.ok();
    let left = left_over(
        &existing.view,
        name,
        namespace.as_ref(),
        others.as_deref().map_err(|error| error as &dyn Display),
    );
    if left.is_empty() {
        return Ok(());
    }
    let when = if gone { "" } else { ", once it is gone" };
    print(&format!("left on the hub{when}:\n- {}", left.join("\n- ")))
}

/// The deletion of an object in a plan.
fn deletion(object: Value) -> Option<PlannedChange> {
    PlannedChange::of(PlannedObject::deletion_of(object), Removals::Pruned).ok()
}

fn planned_deletions(live: &[&TargetUse]) -> ChangePlan {
    let object = |one: &&TargetUse| {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": one.access.name.as_str(), "namespace": one.access.namespace.as_str(),
                "uid": one.uid,
            },
        })
    };
    ChangePlan {
        changes: live.iter().map(object).filter_map(deletion).collect(),
    }
}

async fn tenant(args: &TenantArgs, progress: &mut Progress) -> Result<ExitCode, CommandError> {
    let name = object_name("--target", &args.target_cluster)?;
    let namespace = Namespace::new(args.namespace.as_str())
        .map_err(|error| CommandError::new(format!("the tenant's namespace {error}")))?;
    if let Some(file) = FileObjects::named(&args.removal)? {
        return file.tenant(&name, &namespace).map(|()| ExitCode::SUCCESS);
    }
    let client = connected(&args.removal).await?;
    let existing = existing(&client, &name).await?;
    let uses = users::of_target(&client, &name, Some(&namespace)).await?;
    print_uses(&uses, &name)?;
    let live: Vec<&TargetUse> = uses.readable.iter().filter(|one| !one.deleting).collect();
    refuse_unread(&args.removal, &uses, &name)?;
    refuse_flux(&args.removal, &live)?;
    let mut target = applied_again(&existing.object);
    let accounts = allowed_in(&target, &namespace);
    for account in &accounts {
        disallow(&mut target, account);
    }
    let narrowed = !accounts.is_empty();
    if narrowed {
        show("on the hub, without the tenant", [&target])?;
    }
    let by_label = warn_of_labels(&target);
    if let Some(warning) = &by_label {
        ui::note(&format!("warning: {warning}"));
    }
    let rule = ChangePlan {
        changes: match narrowed {
            true => vec![
                PlannedChange::of(
                    PlannedObject::change_of(target, existing.object.clone()),
                    Removals::Pruned,
                )
                .map_err(|error| CommandError::new(error.to_string()))?,
            ],
            false => Vec::new(),
        },
    };
    let mut all = rule.clone();
    all.changes.extend(planned_deletions(&live).changes);
    print(&format!("== changes on the hub\n{}", all.describe()))?;
    let writing = args.removal.writing();
    let Some(persistence) = writing.persistence() else {
        ui::note("nothing was removed; add --remove");
        return Ok(ExitCode::SUCCESS);
    };
    // The rule first: from then on no rule by name admits the tenant, whatever becomes of the
    // accesses.
    progress.begin("removing the rule from the TargetCluster");
    write_all(&client, Cluster::Hub, &rule, writing, progress).await?;
    progress.begin("deleting the TargetAccesses");
    delete_accesses(&client, &live, persistence, progress).await?;
    if persistence == Persistence::DryRun {
        ui::note("nothing was removed; add --remove");
        return Ok(ExitCode::SUCCESS);
    }
    ui::note(&describe_tenant_next_step(&client, &existing, &name, &namespace).await?);
    by_label.map_or(Ok(ExitCode::SUCCESS), |problem| {
        Err(CommandError::with_fix(
            format!("the tenant's accesses are deleted, but {problem}"),
            "take these labels off the tenant's namespace, or narrow these rules",
        ))
    })
}

/// What is next once a tenant's accesses are deleted. Keyferry's right to mint in the namespace is
/// named for removal only if no access to another target needs it.
async fn describe_tenant_next_step(
    client: &HubClient,
    existing: &ExistingTarget,
    name: &ObjectName,
    namespace: &Namespace,
) -> Result<String, CommandError> {
    // One that is too large to be read names no target here, so the right stays for it.
    let others = list_accesses(client, |access| {
        let AccessView { metadata, spec, .. } = AccessView::of(&access.into_value());
        let is_other = metadata.namespace.as_deref() == Some(namespace.as_str())
            && spec.target_cluster_ref.name != name.as_str();
        is_other.then_some(metadata.name)
    })
    .await?;
    let entry = match existing.view.spec.is_relying_party() {
        true => "remove what the relying party allows the tenant's ServiceAccounts".to_owned(),
        false => format!("write the target's file without the tenant: keyferry trust {name}"),
    };
    let rights = match others.is_empty() {
        true => format!(
            "then remove Keyferry's right to mint there: kubectl delete rolebinding keyferry-minter \
             -n {namespace}"
        ),
        false => format!(
            "RoleBinding keyferry-minter in {namespace} stays: {} still needs it",
            others.join(", ")
        ),
    };
    Ok(format!(
        "next: wait until kubectl get targetaccesses -n {namespace} shows none that leads to \
         {name}, and {entry}\n{rights}"
    ))
}

/// Says which rules may still admit the tenant, because they select namespaces by label.
fn warn_of_labels(target: &Value) -> Option<String> {
    let places = rules_by_label(target);
    (!places.is_empty()).then(|| {
        format!(
            "{} of the TargetCluster admits namespaces by label, this one too if it has the labels",
            places.join(", ")
        )
    })
}

async fn connected(removal: &RemovalArgs) -> Result<HubClient, CommandError> {
    ui::note(&format!(
        "hub: {}",
        removal.hub.access().describe_hub().await?
    ));
    Ok(removal.hub.client().await?)
}

/// A TargetCluster of the hub, with what is read of it.
struct ExistingTarget {
    object: Value,
    view: TargetView,
}

async fn existing(client: &HubClient, name: &ObjectName) -> Result<ExistingTarget, CommandError> {
    let object = target_value(client, name).await?.ok_or_else(|| {
        CommandError::with_fix(
            format!("the hub has no TargetCluster {name}"),
            "list them: kubectl get targetclusters",
        )
    })?;
    Ok(ExistingTarget {
        view: TargetView::of(&object),
        object: with_kind(object, "TargetCluster"),
    })
}

fn object_name(what: &str, text: &str) -> Result<ObjectName, CommandError> {
    ObjectName::new(text).map_err(|error| CommandError::new(format!("reading {what}: {error}")))
}

async fn delete_accesses(
    client: &HubClient,
    live: &[&TargetUse],
    persistence: Persistence,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    for one in live {
        users::delete_access(client, one, persistence)
            .await
            .map_err(|error| failed(&format!("deleting TargetAccess {}", one.access), &error))?;
        let until = one.exposure_until.as_deref().map_or_else(
            || "it delivered no token".to_owned(),
            |until| format!("a delivered token lives until {until}"),
        );
        if persistence == Persistence::DryRun {
            ui::note(&format!(
                "TargetAccess {} would be deleted (server dry run); {until}",
                one.access
            ));
            continue;
        }
        let done = format!("TargetAccess {} deleted", one.access);
        ui::note(&format!("{done}; {until}"));
        progress.applied(done);
    }
    Ok(())
}

fn failed(doing: &str, error: &HubError) -> CommandError {
    CommandError::new(format!("{doing}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_by_label_is_named() {
        let target = |rule: Value| json!({ "spec": { "allow": [{ "namespaces": ["a"] }, rule] } });
        let by_label = target(json!({ "namespaceSelector": { "matchLabels": {} } }));
        let named = warn_of_labels(&by_label).unwrap();
        assert!(named.starts_with("spec.allow[1] "), "{named}");
        assert_eq!(warn_of_labels(&target(json!({}))), None);
    }
}
