//! Compares the trust that each target should have with what it has: the file, the file that it has
//! loaded, the keys that it has read, and what it does with tokens.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use keyferry_api::config::{Configuration, NamespaceRule, Policy, TargetCluster, TokenIssuer};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::ClientError;
use keyferry_client::doctor::published::published;
use keyferry_client::objects_of_hub::namespace_labels;
use keyferry_client::stated_settings::settings_in;
use keyferry_client::target_trust::{LoadedTrust, TargetReader, TargetTrustError};
use keyferry_client::token_proof::{AudienceOwners, ProofOrder, prove_tokens};
use keyferry_core::static_verdict::StaticVerdict;
use keyferry_fleet::facts::{Comparison, TrustFacts};
use keyferry_fleet::gap::{Gap, TARGETS};
use keyferry_fleet::snapshot::{ReadTarget, Snapshot};
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::lint::{Published, PublishedDocuments};
use keyferry_kube_authn::{Minor, Release};
use keyferry_platform::address_guard::AddressGuard;

use super::{FleetArgs, sources};
use crate::args::address_args::AddressArgs;
use crate::command_error::CommandError;
use crate::target_folder::read_target_folder;
use crate::trust::{DesiredTrust, KnownHub};

/// How many targets are asked at the same time.
const MAX_CONCURRENT_TARGETS: usize = 16;

/// How the live side of targets is read.
#[derive(Args)]
pub(super) struct LiveArgs {
    /// A folder with one kubeconfig per target, named after it.
    ///
    /// Each target with one is asked, in 5 s, for the file and the keys that it has loaded, which are
    /// compared with what they should be. NAME.authentication.yaml is the file of a target, in the
    /// place of targets/NAME/authentication.yaml of a snapshot. No target is asked without this flag.
    #[arg(long, value_name = "DIR", conflicts_with = "namespace")]
    pub(super) target_kubeconfigs: Option<PathBuf>,
    /// Also send tokens to these targets, which they must accept or refuse.
    ///
    /// To each the token of one access, the same with a forged signature, and one for an audience that
    /// no target has. They are issued on the hub with your own rights. No target gets a token that
    /// another one accepts.
    #[arg(long, requires = "target_kubeconfigs")]
    pub(super) prove: bool,
    #[command(flatten)]
    addresses: AddressArgs,
}

/// What a desired trust is computed from, beside the object of its target.
pub(super) struct Desires {
    /// The server's configuration file, if it has the objects.
    configuration: Option<Configuration>,
    /// The labels of the hub's namespaces, or that what depends on them is not compared.
    labels: Result<BTreeMap<Namespace, BTreeMap<String, String>>, Comparison>,
}

impl Desires {
    /// Desires that objects alone state, or a configuration file.
    pub(super) fn of_files(mut configuration: Option<Configuration>) -> Self {
        if let Some(configuration) = &mut configuration {
            configuration.policy.accesses.clear();
        }
        Self {
            configuration,
            labels: Err(not_desired(
                "allow selects namespaces by labels, which no file has",
            )),
        }
    }

    /// Returns the trust that a target should have, or why that is not known.
    fn desired_trust(
        &self,
        name: &ObjectName,
        read: &ReadTarget,
        snapshot: &Snapshot,
    ) -> Result<DesiredTrust, Comparison> {
        let spec = read.spec.as_ref().filter(|_| !read.is_contradicted);
        let spec = spec.ok_or_else(|| not_desired("its TargetCluster has mistakes"))?;
        if let Some(role) = &spec.role {
            let base = &role.same_as;
            let why = format!("its rules are in the file of target {base}, and are compared there");
            return Err(Comparison::not_compared(why));
        }
        let roles: Vec<&TargetCluster> = roles_of(name, snapshot).collect();
        let selects = selects_namespaces(spec) || roles.iter().any(|it| selects_namespaces(it));
        let labels = match (&self.labels, selects) {
            (Err(unknown), true) => return Err(unknown.clone()),
            (Err(_), false) => BTreeMap::new(),
            (Ok(labels), _) => labels.clone(),
        };
        let status = read.view.current_status().cloned();
        let configuration = match &self.configuration {
            Some(configuration) => Some(configuration.clone()),
            None => settings_in(&read.view),
        };
        let mut configuration = configuration
            .ok_or_else(|| not_desired("its TargetCluster has no status about its current spec"))?;
        let (server, policy) = (&mut configuration.server, &mut configuration.policy);
        if let Some(status) = &status {
            let issuer = status
                .issuer
                .as_deref()
                .filter(|_| spec.issuer == TokenIssuer::Hub);
            server.hub_issuer = issuer.and_then(|issuer| Issuer::new(issuer).ok());
            policy.own_namespace = Some(server.cluster_resource_namespace.clone());
            let own = [spec].into_iter().chain(roles).cloned();
            policy.targets.extend(own.map(|it| (it.name.clone(), it)));
        }
        let known = KnownHub {
            configuration,
            status,
            unread_roles: None,
            namespaces: Ok(labels),
        };
        DesiredTrust::of_target(name, &known).map_err(|error| not_desired(&error.to_string()))
    }
}

fn not_desired(why: &str) -> Comparison {
    Comparison::not_compared(format!("what it should be is not known: {why}"))
}

/// The roles at the cluster of a target.
fn roles_of<'a>(
    name: &'a ObjectName,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a TargetCluster> {
    let targets = snapshot
        .targets
        .values()
        .filter(|read| !read.is_contradicted);
    targets
        .filter_map(|read| read.spec.as_ref())
        .filter(move |spec| spec.role.as_ref().is_some_and(|it| it.same_as == *name))
}

fn selects_namespaces(spec: &TargetCluster) -> bool {
    let mut rules = spec.allow.iter();
    rules.any(|rule| matches!(rule.namespaces, NamespaceRule::Selected(_)))
}

/// Reads the folder of a snapshot, and compares the targets' files in it with what they should be.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn read_compared_folder(folder: &Path) -> Result<Snapshot, CommandError> {
    let mut snapshot = sources::read_folder(folder)?;
    compare_files(&mut snapshot);
    Ok(snapshot)
}

/// Compares the files of a folder with what they should be. Nothing is asked.
fn compare_files(snapshot: &mut Snapshot) {
    let desires = Desires::of_files(None);
    let not_asked =
        || Comparison::not_compared("the target was not asked: give --target-kubeconfigs");
    let rows = snapshot.target_files.iter().filter_map(|(name, files)| {
        let text = files.authentication.as_deref()?;
        let desired = desires.desired_trust(name, snapshot.targets.get(name)?, snapshot);
        let trust = TrustFacts {
            file: rows::file_row(desired.as_ref(), Some(text), stated_minor(snapshot, name)),
            loaded_file: not_asked(),
            keys: not_asked(),
            behaviour: not_asked(),
        };
        Some((name.clone(), trust))
    });
    snapshot.trust = rows.collect();
}

/// Asks the targets of the folder of kubeconfigs, and compares all targets with what they should be.
///
/// # Errors
/// The folder cannot be read, or the hub cannot be read for `--prove`.
pub(super) async fn compare_live(
    args: &FleetArgs,
    folder: &Path,
    snapshot: &mut Snapshot,
    mut desires: Desires,
    now: Timestamp,
) -> Result<(), CommandError> {
    let files = read_target_folder(folder, |name| snapshot.targets.contains_key(name))?;
    for (target, text) in files.authentication {
        let known = snapshot.target_files.entry(target).or_default();
        known.authentication = Some(text);
    }
    let reads_hub = args.snapshot.is_none() && desires.configuration.is_none();
    let mut specs = snapshot
        .targets
        .values()
        .filter_map(|read| read.spec.as_ref());
    if reads_hub && specs.any(selects_namespaces) {
        let labels = labels_of_hub(args).await;
        desires.labels = labels.map_err(|error| not_desired(&error.to_string()));
    }
    let live = LiveRun {
        guard: match reads_hub || args.live.prove {
            true => args.live.addresses.guard(args.hub.access()),
            false => args.live.addresses.guard_without_hub(),
        },
        tokens: match args.live.prove {
            true => Some(TokenRun::prepare(args, snapshot, &desires, now).await?),
            false => None,
        },
        kubeconfigs: files.kubeconfigs,
        desires,
        snapshot,
    };
    let is_compared = |read: &ReadTarget| {
        let spec = &read.view.spec;
        !spec.is_relying_party() && !spec.hub && spec.same_as.is_none()
    };
    let names = snapshot
        .targets
        .iter()
        .filter(|(_, read)| is_compared(read));
    let documents = live.published_keys().await;
    let compared: Vec<(ObjectName, TrustFacts, Vec<Gap>)> = futures::stream::iter(names)
        .map(|(name, read)| live.compare_target(name, read, &documents))
        .buffered(MAX_CONCURRENT_TARGETS)
        .collect()
        .await;
    for (name, trust, gaps) in compared {
        snapshot.trust.insert(name, trust);
        snapshot.gaps.extend(gaps);
    }
    Ok(())
}

async fn labels_of_hub(
    args: &FleetArgs,
) -> Result<BTreeMap<Namespace, BTreeMap<String, String>>, ClientError> {
    let client = args.hub.access().client().await?;
    namespace_labels(&client).await
}

/// The release that a folder states for a target, else the newest known one.
fn stated_minor(snapshot: &Snapshot, name: &ObjectName) -> Minor {
    let files = snapshot.target_files.get(name);
    let stated = files.and_then(|files| files.release.as_deref()?.parse::<Release>().ok());
    stated.unwrap_or(Release::NEWEST).nearest_minor()
}

/// One comparison of all targets.
struct LiveRun<'a> {
    snapshot: &'a Snapshot,
    kubeconfigs: BTreeMap<ObjectName, PathBuf>,
    desires: Desires,
    guard: AddressGuard,
    /// For `--prove`.
    tokens: Option<TokenRun>,
}

impl LiveRun<'_> {
    /// Reads what the issuers publish, each place once.
    async fn published_keys(&self) -> BTreeMap<(String, Option<String>), Published> {
        let desired = self.kubeconfigs.keys().filter_map(|name| {
            let read = self.snapshot.targets.get(name)?;
            let desired = self.desires.desired_trust(name, read, self.snapshot);
            desired.ok()
        });
        let mut places = BTreeSet::new();
        for desired in desired {
            places.extend(desired.issuers().map(|(_, documents)| place_of(documents)));
        }
        futures::stream::iter(places)
            .map(|place: (String, Option<String>)| async {
                let documents = PublishedDocuments {
                    discovery_url: place.0.clone(),
                    certificate_authority: place.1.clone(),
                };
                let read = published(&[Some(documents)], &self.guard).await;
                (place, read.into_iter().next().unwrap_or_default())
            })
            .buffer_unordered(MAX_CONCURRENT_TARGETS)
            .collect()
            .await
    }

    async fn compare_target(
        &self,
        name: &ObjectName,
        read: &ReadTarget,
        documents: &BTreeMap<(String, Option<String>), Published>,
    ) -> (ObjectName, TrustFacts, Vec<Gap>) {
        let desired = self.desires.desired_trust(name, read, self.snapshot);
        let desired = desired.as_ref();
        let mut gaps = Vec::new();
        let (loaded, behaviour) = match self.kubeconfigs.get(name) {
            Some(path) => self.ask_target(name, path, desired, &mut gaps).await,
            None => {
                let none = Comparison::not_compared("it has no file in the folder of kubeconfigs");
                (Err(none.clone()), none)
            }
        };
        let loaded = loaded.as_ref();
        let shown = loaded.ok().and_then(|loaded| loaded.minor);
        let minor = shown.unwrap_or_else(|| stated_minor(self.snapshot, name));
        let files = self.snapshot.target_files.get(name);
        let file = files.and_then(|files| files.authentication.as_deref());
        let published = |place| documents.get(&place_of(place));
        let keys = rows::keys_row(desired, published, loaded, minor);
        let has_keys = |loaded: &LoadedTrust| loaded.key_sets.values().any(|it| !it.is_empty());
        let is_read = loaded.is_ok_and(has_keys);
        if let (Comparison::NotCompared { why }, true) = (&keys, is_read) {
            let fix = "check that the published documents can be read from this machine";
            gaps.push(Gap::of_asked_target(name, "the keys", why, fix));
        }
        let trust = TrustFacts {
            file: match rows::is_printed(desired, loaded, minor) && file.is_none() {
                true => Comparison::Matches,
                false => rows::file_row(desired, file, minor),
            },
            loaded_file: rows::loaded_row(desired, file, loaded, minor),
            keys,
            behaviour,
        };
        (name.clone(), trust, gaps)
    }

    /// Reads what a target has loaded, and tries tokens.
    async fn ask_target(
        &self,
        name: &ObjectName,
        kubeconfig: &Path,
        desired: Result<&DesiredTrust, &Comparison>,
        gaps: &mut Vec<Gap>,
    ) -> (Result<LoadedTrust, Comparison>, Comparison) {
        let mut not_shown = |hides: &str, error: &TargetTrustError| {
            let why = error.to_string();
            gaps.push(Gap::of_asked_target(name, hides, &why, error.fix()));
            Comparison::not_compared(why)
        };
        let reader = match TargetReader::open(kubeconfig).await {
            Ok(reader) => reader,
            Err(error) => {
                let why = not_shown("everything", &error);
                return (Err(why.clone()), why);
            }
        };
        // Metrics without an issuer still show the file.
        let issuers = desired.into_iter().flat_map(DesiredTrust::issuers);
        let loaded = reader
            .read_loaded_trust(issuers.map(|(issuer, _)| issuer))
            .await;
        let loaded = loaded.map_err(|error| not_shown("the loaded file and the keys", &error));
        let behaviour = match &self.tokens {
            None => Comparison::not_compared("no token was sent: give --prove"),
            Some(tokens) => {
                let guard = self.guard.clone().with_own(reader.address());
                tokens.try_tokens(name, desired, &guard, gaps).await
            }
        };
        (loaded, behaviour)
    }
}

fn place_of(documents: PublishedDocuments) -> (String, Option<String>) {
    (documents.discovery_url, documents.certificate_authority)
}

/// What `--prove` needs.
struct TokenRun {
    hub: HubAccess,
    /// What the hub, or the configuration file, allows now. A folder says nothing of where a token goes.
    policy: Policy,
    /// The namespace of the targets' CA certificates.
    namespace: Option<Namespace>,
    /// Which target accepts what; `None` if a target may be missing.
    owners: Option<AudienceOwners>,
}

impl TokenRun {
    async fn prepare(
        args: &FleetArgs,
        snapshot: &Snapshot,
        desires: &Desires,
        now: Timestamp,
    ) -> Result<Self, CommandError> {
        let mut all = vec![snapshot.clone()];
        if args.snapshot.is_some() {
            all.push(sources::read_hub(&args.hub, None, now).await?);
        }
        let is_whole = |read: &Snapshot| read.is_whole(TARGETS) && read.tenant.is_none();
        let policy = all.last().map(Snapshot::policy).unwrap_or_default();
        let configured = desires.configuration.as_ref();
        let configured = configured.map(|it| it.server.cluster_resource_namespace.clone());
        Ok(Self {
            hub: args.hub.access(),
            namespace: configured.or_else(|| policy.own_namespace.clone()),
            policy,
            owners: all.iter().all(is_whole).then(|| audience_owners(&all)),
        })
    }

    async fn try_tokens(
        &self,
        name: &ObjectName,
        desired: Result<&DesiredTrust, &Comparison>,
        guard: &AddressGuard,
        gaps: &mut Vec<Gap>,
    ) -> Comparison {
        let desired = match desired {
            Ok(desired) => desired,
            Err(unknown) => return unknown.clone(),
        };
        let target = self.policy.targets.get(name);
        let target = target.filter(|target| target.issuer == TokenIssuer::Hub);
        let mut accesses = self.policy.accesses.values().filter(|access| {
            let is_allowed = StaticVerdict::of(&self.policy, access) != StaticVerdict::NotAllowed;
            access.target == *name && !access.suspend && is_allowed
        });
        let (Some(target), Some(access)) = (target, accesses.next()) else {
            return Comparison::not_compared("no access to it has a token that the hub issues");
        };
        let account = ServiceAccount {
            namespace: access.name.namespace.clone(),
            name: access.service_account.clone(),
        };
        let unknown = match (&self.owners, &self.namespace) {
            (Some(owners), Some(namespace)) => {
                let order = ProofOrder {
                    target,
                    namespace,
                    user: &desired.user_of(&account),
                    account: &account,
                };
                let proof = prove_tokens(&order, owners, &self.hub, guard).await;
                if proof.unknown.is_empty() || !proof.differences.is_empty() {
                    return Comparison::of_differences(proof.differences);
                }
                proof.unknown.join("; ")
            }
            _ => "not all TargetClusters were read, so another target could accept the token"
                .to_owned(),
        };
        let fix = "see keyferry doctor for an access to this target";
        gaps.push(Gap::of_asked_target(name, "the behaviour", &unknown, fix));
        Comparison::not_compared(unknown)
    }
}

/// What targets accept by their objects, and by the files that are known.
fn audience_owners(all: &[Snapshot]) -> AudienceOwners {
    let mut owners = AudienceOwners::default();
    for snapshot in all {
        for (name, read) in &snapshot.targets {
            let spec = &read.view.spec;
            owners.add_audience(name, &spec.audience);
            // The cluster of a role accepts its tokens whatever TargetCluster sends them there.
            let base = spec.same_as.as_deref();
            if let Some(base) = base.and_then(|base| ObjectName::new(base).ok()) {
                owners.add_audience(&base, &spec.audience);
            }
        }
        for (name, files) in &snapshot.target_files {
            let text = files.authentication.as_deref().unwrap_or_default();
            let loaded = load_configuration(text.as_bytes(), stated_minor(snapshot, name));
            let entries = loaded
                .map(|loaded| loaded.configuration.jwt)
                .unwrap_or_default();
            for audience in entries.iter().flat_map(|entry| &entry.issuer.audiences) {
                owners.add_audience(name, audience);
            }
        }
    }
    owners
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests;
