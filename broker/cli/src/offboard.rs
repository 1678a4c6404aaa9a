//! `keyferry offboard`: lists the accesses that end with a target or a tenant, and removes them in
//! an order that orphans nothing.

mod in_file;
mod removal_step;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::objects_of_hub::{list_accesses, target_value, whole_target_values};
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

use self::in_file::FileObjects;
use self::removal_step::{RemovalStep, UNTIL_THEN, is_relying_party, left_over};
use super::onboard::{DryRun, Progress, Writing, print, show, write_all};
use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::onboarding::apply::{Cluster, PlannedObject, path};
use crate::onboarding::change_plan::{ChangePlan, PlannedChange, Removals};
use crate::onboarding::keyferry_namespace;
use crate::onboarding::objects::{allowed_in, applied_again, disallow};
use crate::onboarding::users::{self, TargetUse, TargetUses, text};
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
    let uses = users::of_target(&client, &name, None).await?;
    print_uses(&uses, &name)?;
    let live: Vec<&TargetUse> = uses.readable.iter().filter(|one| !one.deleting).collect();
    let unknown = uses
        .unknown(&name)
        .filter(|_| !args.removal.ignore_unread_accesses);
    let next = |live: &[&TargetUse]| {
        let orphan_flux = args.removal.orphan_flux;
        let step = RemovalStep::next(live, unknown.as_deref(), orphan_flux, args.entry_removed);
        step.describe(&existing, &name)
    };
    let Some(persistence) = writing.persistence() else {
        ui::note("nothing was removed");
        print(&next(&live))?;
        return Ok(ExitCode::SUCCESS);
    };
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
        plan.changes.extend(deletion(existing.clone()));
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

/// Deletes the TargetCluster, and names what only it named.
async fn delete_target(
    client: &HubClient,
    existing: &Value,
    name: &ObjectName,
    persistence: Persistence,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    progress.begin("deleting the TargetCluster");
    let uid = text(existing, "/metadata/uid");
    let place = path(existing).unwrap_or_default();
    users::delete(client, &place, uid, persistence)
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
    let others = whole_target_values(client)
        .await
        .map_err(|error| error.to_string());
    let others = others.as_deref().map_err(String::as_str);
    // Without a known namespace, the printed commands have a placeholder.
    let namespace = keyferry_namespace::find(client).await.ok();
    let left = left_over(existing, name, namespace.as_ref(), others);
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
    let mut target = applied_again(&existing);
    let accounts = allowed_in(&target, &namespace);
    for account in &accounts {
        disallow(&mut target, account);
    }
    let narrowed = !accounts.is_empty();
    if narrowed {
        show("on the hub, without the tenant", [&target])?;
    }
    let by_label = rules_by_label(&target);
    if let Some(warning) = &by_label {
        ui::note(&format!("warning: {warning}"));
    }
    let rule = ChangePlan {
        changes: match narrowed {
            true => vec![
                PlannedChange::of(
                    PlannedObject::change_of(target, existing.clone()),
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
    ui::note(&tenant_step(&client, &existing, &name, &namespace).await?);
    by_label.map_or(Ok(ExitCode::SUCCESS), |problem| {
        Err(CommandError::with_fix(
            format!("the tenant's accesses are deleted, but {problem}"),
            "take these labels off the tenant's namespace, or narrow these rules",
        ))
    })
}

/// What is next once a tenant's accesses are deleted. Keyferry's right to mint in the namespace is
/// named for removal only if no access to another target needs it.
async fn tenant_step(
    client: &HubClient,
    existing: &Value,
    name: &ObjectName,
    namespace: &Namespace,
) -> Result<String, CommandError> {
    // One that is too large to be read names no target here, so the right stays for it.
    let others = list_accesses(client, |access| {
        let access = access.into_value();
        let is_other = text(&access, "/metadata/namespace") == namespace.as_str()
            && text(&access, "/spec/targetClusterRef/name") != name.as_str();
        is_other.then(|| text(&access, "/metadata/name").to_owned())
    })
    .await?;
    let entry = match is_relying_party(existing) {
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
fn rules_by_label(target: &Value) -> Option<String> {
    let rules = target.pointer("/spec/allow").and_then(Value::as_array)?;
    let places: Vec<String> = (0_usize..)
        .zip(rules)
        .filter(|(_, rule)| rule.get("namespaceSelector").is_some())
        .map(|(index, _)| format!("spec.allow[{index}]"))
        .collect();
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

async fn existing(client: &HubClient, name: &ObjectName) -> Result<Value, CommandError> {
    let mut object = target_value(client, name).await?.ok_or_else(|| {
        CommandError::with_fix(
            format!("the hub has no TargetCluster {name}"),
            "list them: kubectl get targetclusters",
        )
    })?;
    object["apiVersion"] = "keyferry.dev/v1alpha1".into();
    object["kind"] = "TargetCluster".into();
    Ok(object)
}

fn object_name(what: &str, text: &str) -> Result<ObjectName, CommandError> {
    ObjectName::new(text).map_err(|error| CommandError::new(format!("reading {what}: {error}")))
}

/// Says who loses what.
fn print_uses(uses: &TargetUses, target: &ObjectName) -> Result<(), CommandError> {
    let closed = |error| CommandError::new(format!("writing to standard output: {error}"));
    let unknown = uses.unknown(target);
    if let Some(unknown) = &unknown {
        ui::note(&format!("warning: {unknown}"));
    }
    if uses.readable.is_empty() {
        return match unknown {
            None => ui::result(&format!("no TargetAccess leads to {target}")).map_err(closed),
            Some(_) => Ok(()),
        };
    }
    let heading = [
        "ACCESS",
        "SERVICEACCOUNT",
        "DELIVERED",
        "TOKEN UNTIL",
        "USED BY",
        "STATE",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(uses.readable.iter().map(row));
    ui::result(&ui::table(&rows)).map_err(closed)
}

fn row(one: &TargetUse) -> Vec<String> {
    let or_none = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let delivered: Vec<String> = one
        .delivered
        .iter()
        .map(|(kind, name)| format!("{kind} {name}"))
        .collect();
    let flux = match &one.flux {
        Ok(objects) => or_none(objects.join(", ")),
        Err(why) => format!("unknown: {why}"),
    };
    vec![
        one.access.to_string(),
        one.service_account.clone(),
        or_none(delivered.join(", ")),
        or_none(one.exposure_until.clone().unwrap_or_default()),
        flux,
        if one.deleting { "draining" } else { "in use" }.to_owned(),
    ]
}

/// An access that is not read may have delivered a token that Flux still needs at the target.
fn refuse_unread(
    removal: &RemovalArgs,
    uses: &TargetUses,
    target: &ObjectName,
) -> Result<(), CommandError> {
    if removal.ignore_unread_accesses || removal.writing() == Writing::ShownOnly {
        return Ok(());
    }
    uses.unknown(target).map_or(Ok(()), |unknown| {
        Err(CommandError::with_fix(
            format!("{unknown}; nothing was removed"),
            "make them smaller or delete them, or add --ignore-unread-accesses",
        ))
    })
}

/// Flux prunes at the target with what is delivered, so its objects have to go first.
fn refuse_flux(removal: &RemovalArgs, live: &[&TargetUse]) -> Result<(), CommandError> {
    if removal.orphan_flux || removal.writing() == Writing::ShownOnly {
        return Ok(());
    }
    for one in live {
        let problem = match &one.flux {
            Ok(objects) if objects.is_empty() => continue,
            Ok(objects) => format!(
                "{} in {} apply by what {} delivers, and could not prune without it",
                objects.join(", "),
                one.access.namespace,
                one.access
            ),
            Err(why) => format!(
                "whether objects of Flux use what {} delivers is unknown: {why}",
                one.access
            ),
        };
        return Err(CommandError::with_fix(
            format!("{problem}; nothing was removed"),
            "delete the objects of Flux first and wait until they are gone, or add --orphan-flux",
        ));
    }
    Ok(())
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
    use clap::Parser;
    use keyferry_api::name::AccessName;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        removal: RemovalArgs,
    }

    fn removal(line: &[&str]) -> RemovalArgs {
        Line::try_parse_from(["offboard"].iter().chain(line))
            .unwrap()
            .removal
    }

    fn target_use(flux: Result<Vec<String>, String>) -> TargetUse {
        TargetUse {
            access: AccessName::parse("tenant-a/prod").unwrap(),
            service_account: "reconciler".to_owned(),
            uid: "u".to_owned(),
            deleting: false,
            delivered: vec![("FluxConfigMap".to_owned(), "prod".to_owned())],
            exposure_until: None,
            flux,
        }
    }

    #[test]
    fn flux_objects_go_first() {
        let used = target_use(Ok(vec!["Kustomization apps".to_owned()]));
        let unknown = target_use(Err("forbidden".to_owned()));
        let free = target_use(Ok(Vec::new()));
        let refused = |flags: &[&str], one: &TargetUse| refuse_flux(&removal(flags), &[one]).err();
        let error = refused(&["--remove"], &used).unwrap();
        assert!(error.problem.contains("Kustomization apps"), "{error}");
        assert!(refused(&["--remove"], &unknown).is_some());
        assert!(refused(&["--remove"], &free).is_none());
        assert!(refused(&["--remove", "--orphan-flux"], &used).is_none());
        assert!(
            refused(&["--dry-run=server"], &used).is_some(),
            "the removal would be refused too"
        );
        assert!(refused(&[], &used).is_none(), "nothing is removed");
    }

    #[test]
    fn nothing_is_removed_while_accesses_are_unread() {
        let target = ObjectName::new("prod").unwrap();
        let uses = |unread: &[&str]| TargetUses {
            readable: Vec::new(),
            unread: unread.iter().map(|&name| name.to_owned()).collect(),
        };
        let refused = |flags: &[&str], names: &[&str]| {
            refuse_unread(&removal(flags), &uses(names), &target).err()
        };
        let error = refused(&["--remove"], &["tenant-a/apps"]).unwrap();
        assert!(error.problem.contains("is unknown") && error.problem.contains("tenant-a/apps"));
        assert!(refused(&["--dry-run=server"], &["tenant-a/apps"]).is_some());
        assert!(refused(&["--remove"], &[]).is_none());
        assert!(
            refused(&[], &["tenant-a/apps"]).is_none(),
            "nothing is removed"
        );
        let ignored = ["--remove", "--ignore-unread-accesses"];
        assert!(refused(&ignored, &["tenant-a/apps"]).is_none());
    }

    #[test]
    fn a_rule_by_label_is_named() {
        let target = |rule: Value| serde_json::json!({ "spec": { "allow": [{ "namespaces": ["a"] }, rule] } });
        let by_label = target(serde_json::json!({ "namespaceSelector": { "matchLabels": {} } }));
        let named = rules_by_label(&by_label).unwrap();
        assert!(named.starts_with("spec.allow[1] "), "{named}");
        assert_eq!(rules_by_label(&target(serde_json::json!({}))), None);
    }

    #[test]
    fn a_row_says_what_is_lost() {
        let row = row(&target_use(Err("forbidden".to_owned())));
        assert_eq!(row[0], "tenant-a/prod");
        assert_eq!(row[2], "FluxConfigMap prod");
        assert_eq!(row[3], "-");
        assert_eq!(row[4], "unknown: forbidden");
    }
}
