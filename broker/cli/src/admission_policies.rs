//! `keyferry admission-policies`: prints the hub's admission policies for one hub, and checks that
//! they work there.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::Overrides;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::admission_policies::{AdmissionPolicies, PoliciesError, PolicyFinding, Trial};
use keyferry_core::admission_policy::{HubSite, MintableAudiences};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;

use crate::args::output_format::ManifestFormatArgs;
use crate::args::{HUB, HubArgs};
use crate::command_error::CommandError;
use crate::ui;

#[derive(Args)]
pub(super) struct AdmissionPoliciesArgs {
    /// Only check, and exit.
    ///
    /// The policies on the hub are compared with the shipped ones and tried by dry runs.
    #[arg(long, conflicts_with = "_output")]
    check: bool,
    /// Keyferry's configuration file.
    ///
    /// For its callerAudience, canary and namespace, else their defaults.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keyferry's own namespace on the hub.
    #[arg(long, value_name = "NAMESPACE", default_value = "keyferry-system", conflicts_with = "config", help_heading = HUB)]
    keyferry_namespace: String,
    /// Let Keyferry mint only for the audiences of the hub's TargetClusters.
    ///
    /// Run it again after each new TargetCluster, which gets no token before that.
    #[arg(long, conflicts_with = "check")]
    only_used_audiences: bool,
    /// An audience of the hub's own (may be repeated) [default: the hub is asked]
    #[arg(long = "hub-audience", value_name = "AUDIENCE", hide_short_help = true)]
    hub_audiences: Vec<String>,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    _format: ManifestFormatArgs,
}

pub(super) async fn run(args: AdmissionPoliciesArgs) -> ExitCode {
    let (site, canary) = match site(&args) {
        Ok(site) => site,
        Err(error) => return ui::command_failed(&error),
    };
    let policies = match AdmissionPolicies::connect(
        &args.hub.access(),
        site,
        canary,
        SystemClock::start().now().wall,
    )
    .await
    {
        Ok(policies) => policies,
        Err(error) => return ui::command_failed(&error.into()),
    };
    if args.check {
        let findings = policies.check_policies().await;
        if policies.mints_every_audience().await == Some(true) {
            ui::note_block(
                "Keyferry's account may mint for every audience, so who steals it gets tokens \
                 for a Vault or a cloud too\nfix: apply what keyferry admission-policies \
                 --only-used-audiences prints, now and after each new TargetCluster",
            );
        }
        return check(&findings);
    }
    let mintable = match args.only_used_audiences {
        false => Ok(MintableAudiences::Every),
        true => policies.used_audiences().await,
    };
    let plan = match mintable {
        Ok(mintable) => policies.plan_changes(&mintable).await,
        Err(error) => Err(error),
    };
    match plan {
        Ok(plan) => {
            let audiences: Vec<&str> = policies
                .hub_audiences()
                .iter()
                .map(String::as_str)
                .collect();
            ui::note(&format!(
                "the hub's own audiences: {}",
                audiences.join(", ")
            ));
            if let Some(wait) = plan.incomplete_for {
                ui::note(
                    "left out for now: the bindings of keyferry-pairing. An apiserver that does not know the kind AudiencePairing yet would refuse every \
                     TokenRequest.",
                );
                ui::note(&format!(
                    "fix: apply this, and run the same command again in {} s",
                    wait.as_secs().max(1)
                ));
            }
            ui::finish(plan.manifests.trim_end())
        }
        Err(error) => ui::command_failed(&error.into()),
    }
}

impl From<PoliciesError> for CommandError {
    fn from(error: PoliciesError) -> Self {
        let problem = error.to_string();
        match error {
            PoliciesError::Client(error) => error.into(),
            PoliciesError::Audiences(_, cause) => Self::of_hub_call(
                problem,
                &cause,
                "install Keyferry's ServiceAccounts first (examples/install/base), or give each \
                 audience by --hub-audience",
            ),
            PoliciesError::Issuer(cause) | PoliciesError::Read(_, cause) => {
                Self::of_hub_call(problem, &cause, "run it as a cluster-admin of the hub")
            }
            PoliciesError::Targets(_) | PoliciesError::Definition(_) | PoliciesError::Fill(_) => {
                Self::new(problem)
            }
        }
    }
}

fn site(args: &AdmissionPoliciesArgs) -> Result<(HubSite, ServiceAccount), CommandError> {
    let shipped = HubSite::of_shipped_manifests();
    let (namespace, canary, caller_audience) = match &args.config {
        Some(path) => {
            let server = config_file::read_config_file(path, Overrides::of_a_reader())?.server;
            (
                server.cluster_resource_namespace,
                server.canary_service_account,
                server.caller_audience.to_string(),
            )
        }
        None => {
            let namespace = Namespace::new(args.keyferry_namespace.as_str());
            let namespace = namespace.map_err(|error| {
                CommandError::new(format!(
                    "reading --keyferry-namespace {:?}: {error}",
                    args.keyferry_namespace
                ))
            })?;
            (
                namespace,
                ObjectName::new(shipped.canary.as_str())
                    .map_err(|error| CommandError::new(error.to_string()))?,
                shipped.caller_audience,
            )
        }
    };
    let site = HubSite {
        username: format!("system:serviceaccount:{namespace}:keyferry"),
        namespace: namespace.to_string(),
        canary: canary.to_string(),
        caller_audience,
        hub_audiences: args.hub_audiences.iter().cloned().collect(),
    };
    Ok((
        site,
        ServiceAccount {
            namespace,
            name: canary,
        },
    ))
}

fn check(findings: &[PolicyFinding]) -> ExitCode {
    let mut rows = vec![vec![
        "POLICY".to_owned(),
        "ON THE HUB".to_owned(),
        "TRIED".to_owned(),
    ]];
    for finding in findings {
        let shipped = match &finding.shipped {
            Ok(()) => "as shipped".to_owned(),
            Err(gap) => format!("NO: {}", ui::plain(&gap.to_string())),
        };
        let tried = match &finding.trial {
            Trial::Refuses(what) => format!("refuses {what}"),
            Trial::LetsThrough(what) => format!("NO: the hub would grant {what}"),
            Trial::Failed(error) => format!("NOT PROVEN: {}", ui::plain(error)),
            Trial::NotTried(why) => format!("not tried: {why}"),
        };
        rows.push(vec![finding.name.to_owned(), shipped, tried]);
    }
    if ui::result(&ui::table(&rows)).is_err() {
        return ExitCode::FAILURE;
    }
    let wrong: Vec<&str> = findings
        .iter()
        .filter(|finding| !finding.is_well())
        .map(|finding| finding.name)
        .collect();
    if wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    let hint =
        "apply what keyferry admission-policies prints; a new policy takes some seconds to count";
    ui::fail(
        &format!("not as they should be: {}", wrong.join(", ")),
        Some(hint),
    )
}
