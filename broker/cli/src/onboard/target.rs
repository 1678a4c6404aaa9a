//! `keyferry onboard target`: from a target's kubeconfig to a federation that a token has proven.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::checked_mint;
use keyferry_client::doctor::Means;
use keyferry_client::object_view::ObjectHead;
use keyferry_client::objects_of_hub::target_value;
use keyferry_core::import::{self, Choice, MAX_IMPORT_BYTES};
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_platform::clock::{Clock, SystemClock};
use serde_json::Value;

use super::guided_args::{GuidedArgs, ProofRequest, Tries};
use super::place::{Deadline, KeyferryObjects, ready_target};
use super::progress::Progress;
use super::proof::incomplete;
use super::role::RoleArgs;
use super::target_side::TargetSide;
use super::tenant::add_tenant;
use super::write::{Writing, write_all};
use crate::args::TARGET;
use crate::args::names::service_account;
use crate::command_error::CommandError;
use crate::onboarding::allow_rules::{all_allowed, allow, allow_exactly, disallow};
use crate::onboarding::apply::{Cluster, PlannedObject};
use crate::onboarding::change_plan::Removals;
use crate::onboarding::objects::{self, Tenant};
use crate::onboarding::target_facts::{self, TargetFacts};
use crate::onboarding::users;
use crate::trust::Occasion;
use crate::{local_file, ui};

#[derive(Args)]
pub(super) struct TargetArgs {
    /// The name of the TargetCluster.
    #[arg(value_name = "NAME")]
    name: String,
    /// A kubeconfig of a user who may create tokenreviews at the target.
    ///
    /// Its address and CA are read from it, and RBAC is applied with it. Its credentials stay on
    /// this machine.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    target_kubeconfig: PathBuf,
    /// Context of --target-kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", help_heading = TARGET, hide_short_help = true)]
    target_context: Option<String>,
    #[command(flatten)]
    pub(super) role: RoleArgs,
    /// The target's audience [default: its address, which no other target has; for a role, the
    /// audience of --same-as with /roles/ROLE]
    #[arg(long, value_name = "TEXT", help_heading = TARGET)]
    audience: Option<String>,
    /// A ServiceAccount of the hub that may use the target (may be repeated)
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service_account)]
    allow: Vec<ServiceAccount>,
    /// A tenant to onboard with the target, as a ServiceAccount of the hub.
    ///
    /// Its token proves the federation.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service_account)]
    tenant: Option<ServiceAccount>,
    /// Tokens for this target are signed by a managed issuer of its own, not by the hub.
    #[arg(long, hide_short_help = true)]
    managed_issuer: bool,
    #[command(flatten)]
    pub(super) guided: GuidedArgs,
}

impl TargetArgs {
    /// The target, with the user of --target-kubeconfig.
    fn target_access(&self) -> HubAccess {
        HubAccess {
            kubeconfig: Some(self.target_kubeconfig.clone()),
            context: self.target_context.clone(),
            ..HubAccess::default()
        }
    }
}

pub(super) async fn run(
    args: &TargetArgs,
    progress: &mut Progress,
) -> Result<ExitCode, CommandError> {
    let name = ObjectName::new(args.name.as_str())
        .map_err(|error| CommandError::new(format!("the name of the TargetCluster {error}")))?;
    args.guided.check()?;
    args.role.check(&args.guided)?;
    let target_access = args.target_access();
    progress.begin("reading the hub and the target");
    let hub = args.guided.hub.access().describe_hub().await?;
    ui::note(&format!("hub: {hub}"));
    let client = args.guided.hub.client().await?;
    let facts = target_facts::read(&target_access).await?;
    ui::note(&described(&facts));
    refuse_collision(args, &client, &facts).await?;
    let keyferry_objects = args.guided.find_keyferry_objects(&client).await?;
    let on_hub = hub_objects(args, &name, &facts, &keyferry_objects, &client).await?;
    let before = file_before(args, &name, &facts, &on_hub, &keyferry_objects, &client).await;
    if let Some(why) = write_on_hub(args, on_hub, &keyferry_objects, &client, progress).await? {
        return Ok(incomplete(why));
    }
    let deadline = args.guided.deadline();
    let judged = match judged_target(args, &name, &keyferry_objects, &client, &deadline, progress)
        .await?
    {
        Judged::Ready(status) => Some(*status),
        Judged::NotWaitedFor => None,
        Judged::Absent => {
            return Ok(incomplete(
                "the target's part is shown once the TargetCluster is on the hub: add --apply, or \
                 apply what is shown and run this command again",
            ));
        }
    };
    let target = TargetSide {
        guided: &args.guided,
        name: &name,
        access: &target_access,
        facts: &facts,
        before,
    };
    let withheld = target
        .show_and_apply(&keyferry_objects, &client, progress)
        .await?;
    if args.guided.write.writing() != Writing::Applied {
        return Ok(incomplete("nothing was written; add --apply"));
    }
    let Some(access) = tried_access(args, &name, &keyferry_objects, &client).await? else {
        return Ok(incomplete(&format!(
            "no TargetAccess leads to {name} yet, so no token was tried; next: keyferry onboard \
             tenant NAMESPACE --service-account NAME --target {name} --apply"
        )));
    };
    let asked = ProofRequest {
        access,
        target: judged,
        means: means(args, &facts),
        deadline,
        // What is not shown cannot be loaded meanwhile: one try shows what the target has.
        tries: if withheld {
            Tries::One
        } else {
            Tries::UntilDeadline
        },
    };
    args.guided
        .prove(asked, &keyferry_objects, &client, progress)
        .await
}

/// Shows the objects of the hub and writes them. Returns why the run ends here, if it does.
async fn write_on_hub(
    args: &TargetArgs,
    on_hub: OnHub,
    place: &KeyferryObjects,
    client: &HubClient,
    progress: &mut Progress,
) -> Result<Option<&'static str>, CommandError> {
    let (write, output) = (args.guided.write, &args.guided.output);
    let plan = write.plan(client, Cluster::Hub, on_hub.wanted).await?;
    output.hub(plan.objects(), on_hub.in_place)?;
    write.agree("on the hub", &plan)?;
    progress.begin("applying the objects of the hub");
    write_all(client, Cluster::Hub, &plan, write.writing(), progress).await?;
    let Some(file) = place.file().filter(|_| !on_hub.for_file.is_empty()) else {
        return Ok(None);
    };
    output.configuration(&file.display().to_string(), &on_hub.for_file)?;
    Ok(Some(
        "the configuration file lacks what is shown; add it, and run this command again",
    ))
}

/// What Keyferry says of the TargetCluster.
enum Judged {
    /// It is Ready, with this status.
    Ready(Box<TargetClusterStatus>),
    /// Nothing was waited for, because nothing was written, or it is in the configuration file.
    NotWaitedFor,
    /// It is not on the hub, because nothing was written.
    Absent,
}

async fn judged_target(
    args: &TargetArgs,
    name: &ObjectName,
    place: &KeyferryObjects,
    client: &HubClient,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<Judged, CommandError> {
    progress.begin("waiting until the TargetCluster is Ready");
    if place.file().is_some() {
        return Ok(Judged::NotWaitedFor);
    }
    if args.guided.write.writing() == Writing::Applied {
        let status = ready_target(client, name, deadline).await?;
        return Ok(Judged::Ready(Box::new(status)));
    }
    Ok(match target_value(client, name).await? {
        Some(_) => Judged::NotWaitedFor,
        None => Judged::Absent,
    })
}

/// What is known about the target besides the network.
fn means(args: &TargetArgs, facts: &TargetFacts) -> Means {
    Means {
        minor: facts.minor,
        target_kubeconfig: Some(args.target_kubeconfig.clone()),
        target_context: args.target_context.clone(),
        ..Means::default()
    }
}

/// Returns the file that this command would have shown before it changes the TargetCluster: if the
/// target has loaded that one, its successor replaces nothing else. `None` if it cannot be known.
async fn file_before(
    args: &TargetArgs,
    name: &ObjectName,
    facts: &TargetFacts,
    on_hub: &OnHub,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Option<String> {
    // The file of a role's base has other rules already.
    if on_hub.in_place || !(on_hub.exists || args.role.is_given()) {
        return None;
    }
    let name = args.role.owner_of_file(name);
    let part = args
        .guided
        .target_part(name, facts.minor, Occasion::Change, place, client);
    Some(part.await.ok()?.file)
}

fn described(facts: &TargetFacts) -> String {
    let release = facts.minor.map_or_else(
        || "a release of Kubernetes that is not known here".to_owned(),
        |minor| format!("Kubernetes {minor}"),
    );
    let issuer = facts
        .own_issuer
        .as_deref()
        .unwrap_or("unknown, because this user may not read it");
    format!("target: {release}; the issuer of its own tokens is {issuer}")
}

/// A target that has the hub's issuer itself refuses the entry, so that is reported before anything
/// is written.
async fn refuse_collision(
    args: &TargetArgs,
    client: &HubClient,
    facts: &TargetFacts,
) -> Result<(), CommandError> {
    // The base of a role is onboarded already.
    if args.managed_issuer || args.role.is_given() || facts.own_issuer.is_none() {
        return Ok(());
    }
    let issuer = checked_mint::issuer_of(client).await;
    if issuer.is_some() && issuer == facts.own_issuer {
        return Err(CommandError::with_fix(
            format!(
                "IssuerCollision: the hub's issuer {} is the target's own, so its apiserver would \
                 refuse the entry; nothing was written",
                issuer.unwrap_or_default()
            ),
            "add --managed-issuer, so that tokens for this target have an issuer of their own; or \
             see keyferry explain IssuerCollision",
        ));
    }
    Ok(())
}

/// The objects of the hub.
struct OnHub {
    /// Those that are written to the hub's API.
    wanted: Vec<PlannedObject>,
    /// Whether the TargetCluster is there.
    exists: bool,
    /// Whether the TargetCluster is there and stays as it is.
    in_place: bool,
    /// Those that belong into the configuration file, and are not there yet.
    for_file: Vec<Value>,
}

async fn hub_objects(
    args: &TargetArgs,
    name: &ObjectName,
    facts: &TargetFacts,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Result<OnHub, CommandError> {
    let described = described_target(args, name, facts, place, client).await?;
    let DescribedTarget {
        mut object,
        secret,
        existing,
        has_managed_issuer,
    } = described;
    let mut tenant = args.tenant.as_ref().map(|account| Tenant {
        account: account.clone(),
        target: name.clone(),
        access: name.clone(),
        deliveries: args.guided.delivery.clone(),
        author: None,
    });
    let access = match &mut tenant {
        Some(tenant) => args.guided.existing_access(tenant, place, client).await?,
        None => None,
    };
    let exists = existing.is_some();
    let mut changed = allow_named(args, &mut object, tenant.as_ref());
    if args.guided.write.removals() == Removals::Pruned && exists {
        changed |= prune_allow(args, name, &mut object, tenant.as_ref(), client).await?;
    }
    let mut wanted: Vec<PlannedObject> = secret.into_iter().map(PlannedObject::from).collect();
    if has_managed_issuer {
        let rights = objects::issuer_rights(name, &place.keyferry)
            .map_err(|error| CommandError::new(format!("the name of the TargetCluster {error}")))?;
        wanted.extend(rights.map(PlannedObject::from));
    }
    let mut for_file = Vec::new();
    if place.file().is_none() {
        wanted.push(PlannedObject {
            read: existing,
            ..object.into()
        });
    } else if !place.file_has_target(name) {
        for_file.push(object);
    }
    if let Some(account) = args.guided.flux_account() {
        wanted.extend(objects::flux_account(account).map(PlannedObject::from));
    }
    if let Some(tenant) = &tenant {
        for_file.extend(add_tenant(tenant, access, place, &mut wanted));
    }
    Ok(OnHub {
        wanted,
        exists,
        in_place: !changed && exists,
        for_file,
    })
}

/// The TargetCluster before its rules are changed.
struct DescribedTarget {
    /// The object to write.
    object: Value,
    /// The Secret with its CA certificates, if it is new and has some.
    secret: Option<Value>,
    /// The object of the hub.
    existing: Option<Value>,
    /// Whether its tokens are signed by an issuer of its own.
    has_managed_issuer: bool,
}

/// Describes the TargetCluster: the existing one, or a new one from the target's kubeconfig.
async fn described_target(
    args: &TargetArgs,
    name: &ObjectName,
    facts: &TargetFacts,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Result<DescribedTarget, CommandError> {
    let mut wanted = imported(args, name)?;
    let mut has_managed_issuer = args.managed_issuer;
    let mut secret = None;
    if let Some(role) = args.role.read(&wanted, place, client).await? {
        has_managed_issuer = role.has_managed_issuer();
        wanted = role.target(name, args.audience.as_deref())?;
    } else {
        let own_issuer = facts.own_issuer.as_deref();
        objects::state_issuers(&mut wanted, args.managed_issuer, own_issuer);
        secret = objects::authority_into_secret(&mut wanted, &place.keyferry);
    }
    let existing = match place.file() {
        Some(_) => None,
        None => target_value(client, name).await?,
    };
    let (object, secret) = match &existing {
        None => (wanted, secret),
        Some(existing) => {
            refuse_another(existing, &wanted)?;
            (objects::applied_again(existing), None)
        }
    };
    Ok(DescribedTarget {
        object,
        secret,
        existing,
        has_managed_issuer,
    })
}

/// Adds rules for what --allow and --tenant name. Returns whether anything was added.
fn allow_named(args: &TargetArgs, target: &mut Value, tenant: Option<&Tenant>) -> bool {
    let mut changed = false;
    for account in &args.allow {
        changed |= allow(target, account, &[]);
    }
    if let Some(tenant) = tenant {
        changed |= allow(target, &tenant.account, &tenant.deliveries);
    }
    changed
}

/// Removes the allow entries that neither --allow nor --tenant names. One that a TargetAccess still
/// uses stays: `offboard tenant` removes it in the order that orphans nothing.
async fn prune_allow(
    args: &TargetArgs,
    name: &ObjectName,
    target: &mut Value,
    tenant: Option<&Tenant>,
    client: &HubClient,
) -> Result<bool, CommandError> {
    let mut changed = false;
    if let Some(tenant) = tenant.filter(|tenant| !args.allow.contains(&tenant.account)) {
        changed |= allow_exactly(target, &tenant.account, &tenant.deliveries);
    }
    let uses = users::of_target(client, name, None).await?;
    if let Some(unknown) = uses.unknown(name) {
        ui::note(&format!("warning: {unknown}"));
    }
    for account in all_allowed(target) {
        let named =
            args.allow.contains(&account) || tenant.is_some_and(|tenant| tenant.account == account);
        if named {
            continue;
        }
        let user = uses.readable.iter().find(|one| {
            one.access.namespace == account.namespace
                && one.service_account == account.name.as_str()
        });
        match user {
            Some(user) => ui::note(&format!(
                "the allow entry of {account} stays, because TargetAccess {} uses it; to remove \
                 both: keyferry offboard tenant {} --target {name}",
                user.access, account.namespace
            )),
            None if uses.has_unread_in(&account.namespace) => ui::note(&format!(
                "the allow entry of {account} stays, because a TargetAccess that is too large to \
                 be read may use it"
            )),
            None => changed |= disallow(target, &account),
        }
    }
    Ok(changed)
}

/// Reads the target's address and CA from its kubeconfig; never its credentials.
fn imported(args: &TargetArgs, name: &ObjectName) -> Result<Value, CommandError> {
    let path = &args.target_kubeconfig;
    let bytes = local_file::read(path, "the target's kubeconfig", MAX_IMPORT_BYTES)?;
    let wrong = |error: &dyn std::fmt::Display| {
        CommandError::new(format!(
            "reading the target's kubeconfig {}: {error}",
            path.display()
        ))
    };
    let choice = Choice {
        context: args.target_context.as_deref(),
        ..Choice::default()
    };
    let mut imported = import::read_import(&bytes, choice).map_err(|error| wrong(&error))?;
    let audience = args.audience.as_deref().unwrap_or(imported.server());
    let audience = Audience::new(audience)
        .map_err(|error| CommandError::new(format!("--audience {error}")))?;
    let now = SystemClock::start().now().wall;
    let target = imported
        .target_cluster(name, &audience, now)
        .map_err(|error| wrong(&error))?;
    for warning in &imported.warnings {
        ui::note(&format!("warning: {warning}"));
    }
    Ok(target)
}

/// Refuses to turn an existing TargetCluster into another target.
fn refuse_another(existing: &Value, wanted: &Value) -> Result<(), CommandError> {
    let differing = objects::differing(existing, wanted);
    if differing.is_empty() {
        return Ok(());
    }
    Err(CommandError::with_fix(
        format!(
            "TargetCluster {} exists and is another target: it differs in spec.{}; nothing was \
             written",
            ObjectHead::of(existing).metadata.name,
            differing.join(", spec.")
        ),
        "choose another name, or give the --audience, --managed-issuer, --same-as and --role that it \
         has",
    ))
}

/// Returns the TargetAccess whose token is tried: the tenant's, or any that leads to the target.
async fn tried_access(
    args: &TargetArgs,
    name: &ObjectName,
    place: &KeyferryObjects,
    client: &HubClient,
) -> Result<Option<AccessName>, CommandError> {
    Ok(match &args.tenant {
        Some(account) => Some(AccessName {
            namespace: account.namespace.clone(),
            name: name.clone(),
        }),
        None if place.file().is_some() => None,
        None => users::of_target(client, name, None)
            .await?
            .readable
            .into_iter()
            .find(|one| !one.deleting)
            .map(|one| one.access),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::{objects, refuse_another};

    #[test]
    fn an_existing_target_keeps_its_identity_or_is_refused() {
        let wanted = json!({
            "metadata": { "name": "prod" },
            "spec": { "address": "https://a", "audience": "https://a" },
        });
        let mut existing = wanted.clone();
        existing["metadata"]["resourceVersion"] = json!("7");
        existing["metadata"]["uid"] = json!("u");
        existing["status"] = json!({ "issuer": "x" });
        assert!(refuse_another(&existing, &wanted).is_ok());
        let again = objects::applied_again(&existing);
        assert_eq!(
            again["metadata"],
            json!({ "name": "prod", "resourceVersion": "7" })
        );
        assert!(again.get("status").is_none());
        existing["spec"]["address"] = json!("https://b");
        let error = refuse_another(&existing, &wanted).unwrap_err();
        assert!(error.problem.contains("spec.address"), "{error}");
    }
}
