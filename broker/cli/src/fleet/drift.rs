//! Compares the trust that each target should have with what it has: the file, the file that it has
//! loaded, the keys that it has read, and what it does with tokens.

mod kubeconfigs;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use keyferry_api::config::{
    Configuration, DeliveryType, NamespaceRule, TargetAccess, TargetCluster, TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::ClientError;
use keyferry_client::configuration_source::{ConfigurationSource, settings_in};
use keyferry_client::direct::Direct;
use keyferry_client::doctor::published::published;
use keyferry_client::objects_of_hub::namespace_labels;
use keyferry_client::target_trust::{LoadedTrust, TargetReader, TargetTrustError};
use keyferry_client::token_proof::{AudienceOwners, ProofOrder, prove_tokens};
use keyferry_fleet::facts::{Comparison, TrustFacts};
use keyferry_fleet::gap::{Gap, TARGETS};
use keyferry_fleet::snapshot::{ReadTarget, Snapshot};
use keyferry_hub::client::HubClient;
use keyferry_kube_authn::config::load_configuration;
use keyferry_kube_authn::lint::{Published, PublishedDocuments};
use keyferry_kube_authn::{Minor, Release};
use keyferry_platform::address_guard::AddressGuard;

use self::kubeconfigs::read_target_folder;
use super::{FleetArgs, sources};
use crate::args::address_args::AddressArgs;
use crate::command_error::CommandError;
use crate::trust::{DesiredTrust, KnownHub};

/// How many targets are asked at the same time.
const MAX_CONCURRENT_TARGETS: usize = 16;

/// How the live side of targets is read.
#[derive(Args)]
pub(super) struct LiveArgs {
    /// A folder with kubeconfigs of targets: NAME, NAME.yaml or NAME.kubeconfig.
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
    pub(super) fn of_files(configuration: Option<Configuration>) -> Self {
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
    ) -> Result<DesiredTrust, Comparison> {
        let spec = read.spec.as_ref().filter(|_| !read.is_contradicted);
        let spec = spec.ok_or_else(|| not_desired("its TargetCluster has mistakes"))?;
        let labels = match (&self.labels, selects_namespaces(spec)) {
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
            policy.targets.insert(name.clone(), spec.clone());
        }
        let known = KnownHub {
            configuration,
            status,
            namespaces: Ok(labels),
        };
        DesiredTrust::of_target(name, &known).map_err(|error| not_desired(&error.to_string()))
    }
}

fn not_desired(why: &str) -> Comparison {
    Comparison::not_compared(format!("what it should be is not known: {why}"))
}

fn selects_namespaces(spec: &TargetCluster) -> bool {
    let mut rules = spec.allow.iter();
    rules.any(|rule| matches!(rule.namespaces, NamespaceRule::Selected(_)))
}

/// Compares the files of a folder with what they should be. Nothing is asked.
pub(super) fn compare_files(snapshot: &mut Snapshot) {
    let desires = Desires::of_files(None);
    let not_asked =
        || Comparison::not_compared("the target was not asked: give --target-kubeconfigs");
    let rows = snapshot.target_files.iter().filter_map(|(name, files)| {
        let text = files.authentication.as_deref()?;
        let desired = desires.desired_trust(name, snapshot.targets.get(name)?);
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
    let kubeconfigs = read_target_folder(folder, snapshot)?;
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
            true => Some(TokenRun::prepare(args, snapshot, reads_hub, now).await?),
            false => None,
        },
        kubeconfigs,
        desires,
        snapshot,
    };
    let is_compared = |read: &ReadTarget| !read.view.spec.is_relying_party() && !read.view.spec.hub;
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
    let client = HubClient::new(args.hub.access().config().await?)?;
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
            Some(self.desires.desired_trust(name, read).ok()?.documents())
        });
        let places: BTreeSet<_> = desired.map(place_of).collect();
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
        let desired = self.desires.desired_trust(name, read);
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
        let keys = desired
            .ok()
            .and_then(|desired| documents.get(&place_of(desired.documents())));
        let trust = TrustFacts {
            file: match rows::is_printed(desired, loaded, minor) && file.is_none() {
                true => Comparison::Matches,
                false => rows::file_row(desired, file, minor),
            },
            loaded_file: rows::loaded_row(desired, file, loaded, minor),
            keys: rows::keys_row(keys, loaded, minor),
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
        let issuer = desired.map(DesiredTrust::issuer).unwrap_or_default();
        let loaded = reader.read_loaded_trust(issuer).await;
        let loaded = loaded.map_err(|error| not_shown("the loaded file and the keys", &error));
        let behaviour = match &self.tokens {
            None => Comparison::not_compared("no token was sent: give --prove"),
            Some(tokens) => {
                let guard = self.guard.clone().with_own(reader.address());
                tokens.try_tokens(name, self.snapshot, &guard, gaps).await
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
    direct: Direct,
    /// Which target accepts what; `None` if a target may be missing.
    owners: Option<AudienceOwners>,
}

impl TokenRun {
    /// Collects the audiences of all targets. A folder may be old, so the hub is read too.
    async fn prepare(
        args: &FleetArgs,
        snapshot: &Snapshot,
        is_of_hub: bool,
        now: Timestamp,
    ) -> Result<Self, CommandError> {
        let mut all = vec![snapshot.clone()];
        if args.snapshot.is_some() && !is_of_hub {
            all.push(sources::read_hub(&args.hub, None, now).await?);
        }
        let is_whole = |read: &Snapshot| read.is_whole(TARGETS) && read.tenant.is_none();
        let owners = all.iter().all(is_whole).then(|| audience_owners(&all));
        let source = ConfigurationSource::file_or_hub(args.config.clone());
        let hub = args.hub.access();
        Ok(Self {
            direct: Direct { source, hub },
            owners,
        })
    }

    async fn try_tokens(
        &self,
        name: &ObjectName,
        snapshot: &Snapshot,
        guard: &AddressGuard,
        gaps: &mut Vec<Gap>,
    ) -> Comparison {
        let unknown = |why: String, gaps: &mut Vec<Gap>| {
            let fix = "see keyferry doctor for an access to this target";
            gaps.push(Gap::of_asked_target(name, "the behaviour", &why, fix));
            Comparison::not_compared(why)
        };
        let Some(owners) = &self.owners else {
            let why = "not all TargetClusters were read, so another target could accept the token";
            return unknown(why.to_owned(), gaps);
        };
        let spec = snapshot
            .targets
            .get(name)
            .and_then(|read| read.spec.as_ref());
        let accesses = snapshot
            .accesses
            .values()
            .filter_map(|read| read.spec.as_ref());
        let of_target = accesses.filter(|access| access.target == *name && !access.suspend);
        // A token of these is issued for the request alone.
        let on_request = [DeliveryType::HTTP, DeliveryType::Exec];
        let is_followed = |access: &&TargetAccess| !on_request.iter().any(|it| access.offers(*it));
        let (Some(spec), Some(access)) = (spec, of_target.min_by_key(is_followed)) else {
            return Comparison::not_compared("no access of it can give a token");
        };
        let order = ProofOrder {
            target: name,
            address: &spec.address,
            access: &access.name,
            account: &ServiceAccount {
                namespace: access.name.namespace.clone(),
                name: access.service_account.clone(),
            },
        };
        let proof = prove_tokens(&order, owners, &self.direct, guard).await;
        match proof.differences.is_empty() && !proof.unknown.is_empty() {
            true => unknown(proof.unknown.join("; "), gaps),
            false => Comparison::of_differences(proof.differences),
        }
    }
}

/// What targets accept by their objects, and by the files that are known.
fn audience_owners(all: &[Snapshot]) -> AudienceOwners {
    let mut owners = AudienceOwners::default();
    for snapshot in all {
        for (name, read) in &snapshot.targets {
            owners.add_audience(name, &read.view.spec.audience);
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
