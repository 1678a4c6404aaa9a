//! `keyferry revoke`: revokes a key of the hub at once and for ever. It makes the targets forget
//! the key, and waits until delivered objects with its tokens are rewritten. The command succeeds
//! only if it observed all of that.

mod delivered;
mod target;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use keyferry_api::config::{
    CertificateSource, Configuration, ObjectSource, Policy, TargetCluster, TokenIssuer,
};
use keyferry_api::lifetime;
use keyferry_api::name::ObjectName;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::key_records::KeyRecordsClient;
use keyferry_client::objects_of_hub::{all_accesses, all_objects};
use keyferry_client::target_key_refresh::TargetRefresh;
use keyferry_client::wanted_objects::Wanted;
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::CertificateSecrets;
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_keys::key_journal::KeyRecord;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::target_connection::TargetAddress;

use self::delivered::Delivered;
pub(crate) use self::target::WitnessError;
use self::target::{Obstacle, TargetCase, Witness};
use crate::args::address_args::AddressArgs;
use crate::args::{HubArgs, KeyferryArgs};
use crate::command_error::CommandError;
use crate::ui;

/// How often targets and statuses are checked. A cached key set can be replaced within its last 30
/// s.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How long replicas take to notice the revocation. Until then, a token under way may still be
/// written.
const FOLLOWED: Duration = Duration::from_secs(15);
/// Extra time beyond `maxAge` for a target, which caches its decisions for 10 s.
const BEYOND_MAX_AGE: Duration = Duration::from_secs(60);
/// Extra time for deliveries beyond the activation delay of a new key.
const BEYOND_ACTIVATION: Duration = Duration::from_secs(60);
/// How often progress is printed.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// The flags of `keyferry revoke`.
#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The key, as `keyferry keys` names it.
    // A kid is often base64url, which may begin with a hyphen.
    #[arg(long, allow_hyphen_values = true)]
    kid: String,
    #[command(flatten)]
    keyferry: KeyferryArgs,
    /// Keyferry's configuration file.
    ///
    /// Its targets are forced to reload their keys. Without it, and where it says `objects:
    /// CustomResources`, those of the hub's objects are.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A token that the key signed, as proof (may be repeated)
    ///
    /// Its target must accept it before and refuse it afterwards. Give one for each target.
    #[arg(long, value_name = "FILE")]
    witness: Vec<PathBuf>,
    /// Do not ask first.
    ///
    /// The key is revoked at once.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    addresses: AddressArgs,
    #[command(flatten)]
    hub: HubArgs,
}

/// An expected effect of the revocation that was not observed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NotProven {
    /// The name of the target or object.
    name: String,
    why: String,
    fix: String,
}

/// Everything that a revocation affects.
struct Reach {
    configuration: Configuration,
    targets: Vec<TargetCase>,
    /// Targets whose tokens are signed by managed issuers.
    other_issuers: BTreeSet<ObjectName>,
    /// The hub with the accesses' statuses, if the objects are on the hub.
    hub: Option<HubClient>,
    delivered: Delivered,
}

/// Revokes the key and makes targets reload their keys; returns the exit code, which is 0 only if
/// each target was seen to refuse the key.
pub(crate) async fn run(args: RevokeArgs) -> ExitCode {
    match revoke(&args).await {
        Ok(code) => code,
        Err(error) => ui::command_failed(&error),
    }
}

async fn revoke(args: &RevokeArgs) -> Result<ExitCode, CommandError> {
    ui::note(&format!("hub: {}", args.hub.access().describe_hub().await?));
    let clock = SystemClock::start();
    let client = KeyRecordsClient::connect(&args.hub.access(), args.keyferry.namespace()?).await?;
    let mut reach = match configuration(args).await {
        Ok(configuration) => Ok(reach(args, configuration, &clock).await?),
        // A key must be revocable even where the targets are unknown.
        Err(error) if args.config.is_none() => Err(error),
        Err(error) => return Err(unchanged(error)),
    };
    if args.config.is_none() && reach.is_ok() {
        ui::note(
            "the targets are the TargetClusters of the hub; give --config for those of a file",
        );
    }
    let known = client.read_journal().await?;
    let already = known.revoked.contains_key(&args.kid);
    if known.keys.contains_key(&args.kid) || already {
        for case in reach.iter_mut().flat_map(|reach| &mut reach.targets) {
            case.try_before(already).await?;
        }
    }
    if !already && let Some(key) = known.keys.get(&args.kid) {
        if known.keys.len() == 1 {
            ui::note(
                "it is the only key: no token is issued until another key of the hub is active",
            );
        }
        ui::note_block(&plan(&args.kid, key, reach.as_ref().ok()));
        agree(args.yes)?;
    }
    let journal = client.revoke_key(&args.kid, clock.now().wall).await?;
    ui::note(&format!(
        "revoked {:?}: every replica stops publishing it within 10 s, and issues no token signed \
         with it",
        args.kid
    ));
    match &mut reach {
        Ok(reach) => {
            reach.await_proofs(&journal.issuer, &clock).await;
            Ok(reach.report(&args.keyferry.keyferry_namespace))
        }
        Err(error) => {
            let not_proven = NotProven {
                name: "targets".to_owned(),
                why: format!("no target was asked: {error}"),
                fix: format!(
                    "run it again with --config FILE, the server's configuration, or {}; or, at \
                     each target, {}",
                    rights(),
                    target::RELOAD
                ),
            };
            Ok(report(&[], &[], &[not_proven]))
        }
    }
}

/// Describes what the revocation ends.
fn plan(kid: &str, key: &KeyRecord, reach: Option<&Reach>) -> String {
    let mut lines = vec![
        "== changes on the hub".to_owned(),
        format!(
            "- key {kid:?}, published since {}: for ever, with every token that it signed",
            key.published_at
        ),
    ];
    if let Some(reach) = reach {
        let names: Vec<&str> = reach
            .targets
            .iter()
            .map(|case| case.name.as_str())
            .collect();
        let named = match names.is_empty() {
            true => "no target is known".to_owned(),
            false => format!(
                "{} target(s) reload their keys: {}",
                names.len(),
                names.join(", ")
            ),
        };
        lines.push(format!("  {named}"));
        lines.push(format!(
            "  {} delivered object(s) with its tokens are rewritten",
            reach.delivered.stale()
        ));
    }
    lines.join("\n")
}

/// Fails unless the user agrees: a revoked key stays revoked.
fn agree(yes: bool) -> Result<(), CommandError> {
    if yes {
        return Ok(());
    }
    match ui::ask("revoke this key for ever?") {
        Some(true) => Ok(()),
        Some(false) => Err(CommandError::new(
            "the revocation was not confirmed; nothing was revoked",
        )),
        None => Err(CommandError::with_fix(
            "the key that is shown with - would be revoked for ever, and there is no terminal to \
             ask at; nothing was revoked",
            "read the lines, then add --yes",
        )),
    }
}

fn unchanged(error: CommandError) -> CommandError {
    CommandError {
        problem: format!("{error}; nothing was revoked"),
        ..error
    }
}

/// Reads the settings of the server and its objects.
async fn configuration(args: &RevokeArgs) -> Result<Configuration, CommandError> {
    let source = ConfigurationSource::file_or_hub(args.config.clone());
    Ok(source
        .read_configuration(|| args.hub.client(), Wanted::All)
        .await?)
}

/// Collects the targets and deliveries from the configuration, and from the hub's objects if the
/// configuration uses them.
async fn reach(
    args: &RevokeArgs,
    configuration: Configuration,
    clock: &SystemClock,
) -> Result<Reach, CommandError> {
    let now = clock.now().wall;
    let hub = args
        .hub
        .client()
        .await
        .map_err(|error| unchanged(error.into()))?;
    let secrets = KubeCertificateSecrets::new(
        hub.clone(),
        configuration.server.cluster_resource_namespace.clone(),
    );
    let on_hub = configuration.server.objects == ObjectSource::CustomResources;
    let mut collected = CollectedTargets {
        secrets,
        guard: args.addresses.guard(args.hub.access()),
        now,
        cases: Vec::new(),
        other_issuers: BTreeSet::new(),
    };
    let mut delivered = Delivered::of(&args.kid);
    // Decides which target a witness is sent to: of two targets with one audience, only to the one
    // that the policy gives the audience to.
    let mut policy = configuration.policy.clone();
    if on_hub {
        let mut objects = all_objects(&configuration.server, &hub)
            .await
            .map_err(|error| unchanged(CommandError::from(error).or_fix(rights())))?;
        policy = objects
            .assemble(&configuration.server.cluster_resource_namespace)
            .policy;
        // A target outside the policy, which is being deleted or was late for its audience, may
        // still trust the key.
        for name in objects.targets.keys() {
            collected
                .add(name, objects.target_spec(name).as_ref())
                .await;
        }
        let accesses: Vec<_> = objects
            .accesses
            .iter()
            .map(|(name, access)| (name.clone(), access.clone()))
            .collect();
        delivered.observe(&accesses, &collected.other_issuers, now);
    } else {
        for (name, target) in &policy.targets {
            collected.add(name, Some(target)).await;
        }
    }
    let mut targets = collected.cases;
    let until = now
        .saturating_add(target_patience(&configuration) + BEYOND_MAX_AGE)
        .unwrap_or(Timestamp::MAX);
    assign_witnesses(args, &policy, until, &mut targets)?;
    Ok(Reach {
        configuration,
        targets,
        other_issuers: collected.other_issuers,
        hub: on_hub.then_some(hub),
        delivered,
    })
}

/// The targets that may trust the key.
struct CollectedTargets {
    secrets: KubeCertificateSecrets,
    guard: AddressGuard,
    now: Timestamp,
    cases: Vec<TargetCase>,
    /// Targets whose tokens are signed by managed issuers.
    other_issuers: BTreeSet<ObjectName>,
}

impl CollectedTargets {
    /// Adds a target. `None` if its TargetCluster has mistakes.
    async fn add(&mut self, name: &ObjectName, target: Option<&TargetCluster>) {
        let (audience, refresh) = match target {
            None => (None, Err(Obstacle::Mistakes)),
            Some(target) if target.issuer != TokenIssuer::Hub => {
                self.other_issuers.insert(name.clone());
                return;
            }
            Some(target) if !target.is_cluster() => {
                (Some(target.audience.clone()), Err(Obstacle::NoCluster))
            }
            Some(target) => {
                let asked = probed(target, &self.secrets, self.now)
                    .await
                    .map(|target| TargetRefresh::new(target, self.guard.clone()));
                let refresh = asked.ok_or(Obstacle::Certificate);
                (Some(target.audience.clone()), refresh)
            }
        };
        let case = TargetCase::new(name.to_string(), audience, refresh);
        self.cases.push(case);
    }
}

/// Gives each witness to the target of its audience.
///
/// # Errors
/// A witness cannot be used, or no target has its audience.
fn assign_witnesses(
    args: &RevokeArgs,
    policy: &Policy,
    until: Timestamp,
    targets: &mut [TargetCase],
) -> Result<(), CommandError> {
    for path in &args.witness {
        let witness = Witness::read(path, &args.kid)?;
        witness.outlives(until)?;
        let owner = |case: &&mut TargetCase| {
            let mut in_policy = policy.targets.keys();
            let audience = case.audience.as_ref();
            in_policy.any(|name| name.as_str() == case.name)
                && audience.is_some_and(|audience| witness.is_for(audience))
        };
        let Some(case) = targets.iter_mut().find(owner) else {
            return Err(WitnessError::NoTarget(path.clone()).into());
        };
        case.witness = Some(witness);
    }
    Ok(())
}

fn rights() -> &'static str {
    "use a kubeconfig that may list targetclusters and targetaccesses in all namespaces"
}

fn target_patience(configuration: &Configuration) -> Duration {
    configuration.server.max_age + BEYOND_MAX_AGE
}

impl Reach {
    /// Continues until everything is proven or the time is over.
    async fn await_proofs(&mut self, issuer: &keyferry_api::issuer::Issuer, clock: &SystemClock) {
        let max_age = self.configuration.server.max_age;
        let for_targets = target_patience(&self.configuration);
        let for_deliveries = if self.hub.is_some() {
            lifetime::activation_delay(max_age) + BEYOND_ACTIVATION
        } else {
            Duration::ZERO
        };
        let (targets, stale) = (self.targets.len(), self.delivered.stale());
        let longest = for_targets.max(for_deliveries).as_secs();
        ui::note(&format!(
            "making {targets} target(s) reload their keys and waiting for {stale} delivered \
             object(s); this takes up to {longest} s"
        ));
        let from = clock.now().mono;
        let mut reported = Duration::ZERO;
        loop {
            let passed = clock.now().mono.saturating_sub(from);
            let undecided = || {
                self.targets
                    .iter()
                    .filter(|case| !case.is_decided())
                    .map(|case| case.name.clone())
                    .collect::<Vec<_>>()
            };
            let waits_for_targets = passed < for_targets && !undecided().is_empty();
            // By then, tokens that were under way at the revocation have been written.
            let waits_for_deliveries =
                passed < for_deliveries && (self.delivered.stale() > 0 || passed < FOLLOWED);
            if !waits_for_targets && !waits_for_deliveries {
                return;
            }
            if passed.saturating_sub(reported) >= PROGRESS_EVERY {
                reported = passed;
                let names = undecided();
                let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                ui::note(&format!(
                    "{} s: waiting for {} target(s) [{shown}{}] and {} delivered object(s)",
                    passed.as_secs(),
                    names.len(),
                    if names.len() > 5 { ", …" } else { "" },
                    self.delivered.stale()
                ));
            }
            if waits_for_targets {
                self.ask_targets(
                    issuer,
                    clock.now().wall,
                    passed > max_age + FOLLOWED,
                    passed,
                )
                .await;
            }
            self.ask_hub(clock.now().wall).await;
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    async fn ask_targets(
        &mut self,
        issuer: &keyferry_api::issuer::Issuer,
        now: Timestamp,
        late: bool,
        passed: Duration,
    ) {
        let open: Vec<&mut TargetCase> = self
            .targets
            .iter_mut()
            .filter(|case| !case.is_decided())
            .collect();
        let asked = open.into_iter().map(async |case| {
            case.force_refresh(issuer, now, late).await;
            if case.refuses_witness() {
                ui::note(&format!(
                    "{}: refuses the witness after {} s",
                    case.name,
                    passed.as_secs()
                ));
            }
        });
        futures::future::join_all(asked).await;
    }

    async fn ask_hub(&mut self, now: Timestamp) {
        let Some(hub) = &self.hub else { return };
        match all_accesses(hub).await {
            Ok(accesses) => {
                for line in self.delivered.observe(&accesses, &self.other_issuers, now) {
                    ui::note(&line);
                }
            }
            // Earlier observations stay: a failed read proves no rewrite.
            Err(error) => ui::note(&format!("{error}; trying again")),
        }
    }

    fn report(&self, namespace: &str) -> ExitCode {
        let mut not_proven = Vec::new();
        if self.targets.is_empty() {
            let why = "no target was asked: no TargetCluster trusts the hub's keys";
            let fix = format!(
                "give the --config that the server runs with; at targets that Keyferry does not \
                 know, {}",
                target::RELOAD
            );
            not_proven.push(NotProven {
                name: "targets".to_owned(),
                why: why.to_owned(),
                fix,
            });
        }
        let mut targets = Vec::new();
        for case in &self.targets {
            let result = match case.outcome() {
                Ok(proven) => proven.to_owned(),
                Err(problem) => {
                    let result = format!("NOT PROVEN: {}", problem.why);
                    not_proven.push(problem);
                    result
                }
            };
            targets.push(vec![case.name.clone(), result]);
        }
        not_proven.extend(
            self.delivered
                .not_proven(&format!("kubectl get lease keyferry -n {namespace}")),
        );
        report(&targets, &self.delivered.rows(), &not_proven)
    }
}

/// Prints the results. Anything that was not observed gives exit code 1.
fn report(targets: &[Vec<String>], objects: &[Vec<String>], not_proven: &[NotProven]) -> ExitCode {
    let table = |head: &[&str], rows: &[Vec<String>]| {
        let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
        ui::table(
            &std::iter::once(head)
                .chain(rows.iter().cloned())
                .collect::<Vec<_>>(),
        )
    };
    let mut text = Vec::new();
    if !targets.is_empty() {
        text.push(table(&["TARGET", "RESULT"], targets));
    }
    if !objects.is_empty() {
        text.push(table(&["OBJECT", "ACCESS", "RESULT"], objects));
    }
    let printed = if text.is_empty() {
        ExitCode::SUCCESS
    } else {
        ui::finish(&text.join("\n\n"))
    };
    for NotProven { name, why, fix } in not_proven {
        ui::note_with_fix(&format!("NOT PROVEN: {name}: {why}"), fix);
    }
    if not_proven.is_empty() {
        printed
    } else {
        ExitCode::FAILURE
    }
}

/// Returns how to contact the target, or `None` if its CA is unavailable.
async fn probed(
    target: &TargetCluster,
    secrets: &KubeCertificateSecrets,
    now: Timestamp,
) -> Option<TargetAddress> {
    let ca_pem = match &target.certificate {
        CertificateSource::System => None,
        CertificateSource::Inline(pem) => Some(pem.clone().into_bytes()),
        CertificateSource::Secret(name) => Some(secrets.certificate(name).await.ok()?.pem?),
        CertificateSource::TrustBundle(name) => Some(secrets.trust_bundle(name).await.ok()?),
    };
    let ca_pem = match ca_pem {
        Some(pem) => Some(CaBundle::from_pem(&pem, now).ok()?.to_pem().into()),
        None => None,
    };
    Some(TargetAddress::of_target(target, ca_pem))
}
