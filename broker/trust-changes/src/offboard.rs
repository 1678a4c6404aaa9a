//! `keyferry offboard`: lists the accesses that end with a target or a tenant, and removes them in
//! an order that orphans nothing.

mod in_file;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::objects_of_hub::target_value;
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use keyferry_terminal::command_error::CommandError;
use keyferry_terminal::{HubArgs, ui};
use serde_json::Value;

use self::in_file::FileObjects;
use super::onboard::{DryRun, Progress, Writing, show, write_all};
use crate::onboarding::apply::{Cluster, PlannedObject, path};
use crate::onboarding::objects::{allowed_in, applied_again, disallow};
use crate::onboarding::users::{self, TargetUse, text};

/// The flags of `keyferry offboard`.
#[derive(Args)]
pub struct OffboardArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Remove a target: its TargetCluster, and with --with-accesses what leads to it.
    Target(TargetArgs),
    /// Remove a tenant's use of a target: its TargetAccesses, and the rule that names it.
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
    #[command(flatten)]
    removal: RemovalArgs,
}

#[derive(Args)]
struct TenantArgs {
    /// The tenant's namespace on the hub.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// The TargetCluster: the one that the tenant must no longer use.
    #[arg(long = "target", value_name = "NAME")]
    target_cluster: String,
    #[command(flatten)]
    removal: RemovalArgs,
}

#[derive(Args)]
struct RemovalArgs {
    /// Remove what is shown: without it, nothing is removed.
    #[arg(long)]
    remove: bool,
    /// Let the apiservers check what is shown, admission policies included: nothing is removed.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "remove")]
    dry_run: Option<DryRun>,
    /// Keyferry's configuration file: where it holds the objects, the lines to remove are shown.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Remove it although Flux objects refer to what is delivered, or may: Flux cannot prune at the
    /// target afterwards.
    #[arg(long)]
    orphan_flux: bool,
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
pub async fn run(args: OffboardArgs) -> ExitCode {
    let mut progress = Progress::default();
    let ended = match args.what {
        What::Target(args) => target(&args, &mut progress).await,
        What::Tenant(args) => tenant(&args, &mut progress).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = ui::command_failed(&error);
            progress.report();
            code
        }
    }
}

async fn target(args: &TargetArgs, progress: &mut Progress) -> Result<(), CommandError> {
    let name = object_name("the name of the TargetCluster", &args.name)?;
    if let Some(file) = FileObjects::named(&args.removal)? {
        return file.target(&name);
    }
    let writing = args.removal.writing();
    let client = connected(&args.removal).await?;
    let existing = existing(&client, &name).await?;
    let uses = users::of_target(&client, &name, None).await?;
    print_uses(&uses, &name)?;
    let live: Vec<&TargetUse> = uses.iter().filter(|one| !one.deleting).collect();
    refuse_flux(&args.removal, &live)?;
    if !live.is_empty() && !args.with_accesses && writing != Writing::ShownOnly {
        return Err(CommandError::with_fix(
            format!(
                "TargetCluster {name} is used by {} TargetAccess(es); nothing was removed",
                live.len()
            ),
            "offboard the tenants first, or add --with-accesses",
        ));
    }
    let Some(persistence) = writing.persistence() else {
        ui::note(
            "nothing was removed; remove the hub's entry at the target first, then add --remove",
        );
        return print_rest(&existing, &name);
    };
    progress.begin("deleting the TargetAccesses");
    delete_accesses(&client, &live, persistence, progress).await?;
    progress.begin("deleting the TargetCluster");
    let uid = text(&existing, "/metadata/uid");
    let place = path(&existing).unwrap_or_default();
    users::delete(&client, &place, uid, persistence)
        .await
        .map_err(|error| failed(&format!("deleting TargetCluster {name}"), &error))?;
    if persistence == Persistence::DryRun {
        ui::note(&format!(
            "TargetCluster {name} would be deleted (server dry run)\nnothing was removed; add --remove"
        ));
        return print_rest(&existing, &name);
    }
    match target_value(&client, &name).await? {
        None => ui::note(&format!("TargetCluster {name} is gone")),
        Some(_) => ui::note(&format!(
            "TargetCluster {name} is being deleted: no token is issued for it any more, and it \
             goes once the delivered tokens have expired"
        )),
    }
    print_rest(&existing, &name)
}

async fn tenant(args: &TenantArgs, progress: &mut Progress) -> Result<(), CommandError> {
    let name = object_name("--target", &args.target_cluster)?;
    let namespace = Namespace::new(args.namespace.as_str())
        .map_err(|error| CommandError::new(format!("the tenant's namespace {error}")))?;
    if let Some(file) = FileObjects::named(&args.removal)? {
        return file.tenant(&name, &namespace);
    }
    let client = connected(&args.removal).await?;
    let existing = existing(&client, &name).await?;
    let uses = users::of_target(&client, &name, Some(&namespace)).await?;
    print_uses(&uses, &name)?;
    let live: Vec<&TargetUse> = uses.iter().filter(|one| !one.deleting).collect();
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
    let writing = args.removal.writing();
    let Some(persistence) = writing.persistence() else {
        ui::note("nothing was removed; add --remove");
        return Ok(());
    };
    // The rule first: from then on no rule by name admits the tenant, whatever becomes of the
    // accesses.
    if narrowed {
        progress.begin("removing the rule from the TargetCluster");
        let planned = PlannedObject {
            object: target,
            read: Some(existing),
        };
        write_all(&client, Cluster::Hub, &[planned], writing, progress).await?;
    }
    progress.begin("deleting the TargetAccesses");
    delete_accesses(&client, &live, persistence, progress).await?;
    if persistence == Persistence::DryRun {
        ui::note("nothing was removed; add --remove");
        return Ok(());
    }
    ui::note(&format!(
        "next: once kubectl get targetaccesses -n {namespace} shows none, remove Keyferry's right \
         to mint there: kubectl delete rolebinding keyferry-minter -n {namespace}\nnext: write the \
         target's file without the tenant: keyferry trust {name}"
    ));
    by_label.map_or(Ok(()), |problem| {
        Err(CommandError::with_fix(
            format!("the tenant's accesses are deleted, but {problem}"),
            "take these labels off the tenant's namespace, or narrow these rules",
        ))
    })
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
        removal.hub.access().description().await?
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
fn print_uses(uses: &[TargetUse], target: &ObjectName) -> Result<(), CommandError> {
    let closed = |error| CommandError::new(format!("writing to standard output: {error}"));
    if uses.is_empty() {
        return ui::result(&format!("no TargetAccess leads to {target}")).map_err(closed);
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
    rows.extend(uses.iter().map(row));
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

/// Warns that the target accepts tokens until the hub's entry there is removed. Without a
/// TargetCluster, the AudiencePairing no longer reserves the audience.
const UNTIL_THEN: &str = "Until then it accepts tokens that were issued before, until they expire. \
     It also accepts new ones, which any user of the hub with create serviceaccounts/token can mint \
     for a ServiceAccount that the target's rules name";

/// Names what this command does not remove.
fn print_rest(existing: &Value, name: &ObjectName) -> Result<(), CommandError> {
    let issuer = match text(existing, "/status/issuer") {
        "" => "of the hub".to_owned(),
        issuer => format!("issuer.url {issuer}"),
    };
    let mut rest = format!(
        "left to do at the target: remove the entry with {issuer} from its \
         AuthenticationConfiguration, and the RBAC of the hub's users. {UNTIL_THEN}"
    );
    if let Some(secret) = existing
        .pointer("/spec/certSecretRef/name")
        .and_then(Value::as_str)
    {
        let namespace = match text(existing, "/status/clusterResourceNamespace") {
            "" => "keyferry-system",
            namespace => namespace,
        };
        rest.push_str(&format!(
            "\nleft to do on the hub, once TargetCluster {name} is gone: kubectl delete secret \
             {secret} -n {namespace}"
        ));
    }
    ui::result(&ui::plain(&rest))
        .map_err(|error| CommandError::new(format!("writing to standard output: {error}")))
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

    fn one(flux: Result<Vec<String>, String>) -> TargetUse {
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
        let used = one(Ok(vec!["Kustomization apps".to_owned()]));
        let unknown = one(Err("forbidden".to_owned()));
        let free = one(Ok(Vec::new()));
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
    fn a_rule_by_label_is_named() {
        let target = |rule: Value| serde_json::json!({ "spec": { "allow": [{ "namespaces": ["a"] }, rule] } });
        let by_label = target(serde_json::json!({ "namespaceSelector": { "matchLabels": {} } }));
        let named = rules_by_label(&by_label).unwrap();
        assert!(named.starts_with("spec.allow[1] "), "{named}");
        assert_eq!(rules_by_label(&target(serde_json::json!({}))), None);
    }

    #[test]
    fn a_row_says_what_is_lost() {
        let row = row(&one(Err("forbidden".to_owned())));
        assert_eq!(row[0], "tenant-a/prod");
        assert_eq!(row[2], "FluxConfigMap prod");
        assert_eq!(row[3], "-");
        assert_eq!(row[4], "unknown: forbidden");
    }
}
