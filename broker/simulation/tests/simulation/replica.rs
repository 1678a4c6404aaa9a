//! One process: the product's own parts, wired as `serve` wires them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{self, NewCallerLimits, ObjectSource, Policy, ReducedObject};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::lifetime;
use keyferry_api::name::Namespace;
use keyferry_api::service_account::Uid;
use keyferry_controller::context::Context;
use keyferry_controller::delivery::{CredentialSources, Deliveries};
use keyferry_controller::delivery_queue::run_delivery_queue;
use keyferry_controller::key_refresh::run_key_refresh;
use keyferry_controller::leader_election::run_leader_election;
use keyferry_controller::tasks::{run_key_canary, run_managed_key_refresh, run_policy_assembly};
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::leadership::{LeadershipReader, LeadershipWriter};
use keyferry_hub::lease::LeaderLease;
use keyferry_hub::live::{LiveObjects, Watched};
use keyferry_hub::object_store::{Collection, Faults, ObjectStore};
use keyferry_hub::ports::{Hub, IssuerDocuments};
use keyferry_hub::targets::{Readiness, TargetReader, TargetState, TargetWriter};
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::key_records::run_key_journal_sync;
use keyferry_issuer::managed_issuer::{
    KeySetMaintainer, KeySetMaintainerParts, LocalSigner, ManagedIssuers, OwnMint,
};
use keyferry_issuer::mint::{Mint, MintParts};
use keyferry_issuer::publication::{KeyRecords, Publisher, PublisherParts};
use keyferry_issuer::settings::CallerSettings;
use keyferry_issuer::testing::account_of;
use keyferry_keys::managed_issuer::RotationPolicy;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::{PolicyReader, PolicyWriter};
use keyferry_platform::random::Random;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_platform::testing::SilentTargets;
use keyferry_server::authenticate::Authenticator;
use keyferry_server::broker::{Broker, BrokerParts};
use keyferry_server::delegate::Delegations;
use tokio::task::JoinSet;

use crate::draw::{SeededRandomness, draw};
use crate::mistake::Mistake;
use crate::objects::{self, ACCOUNTS};
use crate::oracle::{self, ReplicaView};
use crate::ports::{AuditLog, HubPort};
use crate::world::{Link, ReplicaClock, World};

/// The `max-age` of the published documents.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);
/// `maxStaleAuthorization`.
pub(crate) const MAX_STALE: Duration = Duration::from_secs(60);

const ALL_WATCHES: [Watched; 4] = [
    Watched::ServiceAccounts,
    Watched::Namespaces,
    Watched::TargetClusters,
    Watched::TargetAccesses,
];

/// A running process.
pub(crate) struct Replica {
    pub(crate) link: Arc<Link>,
    pub(crate) broker: Arc<Broker>,
    tasks: JoinSet<()>,
}

/// What the parts of a process share.
struct Parts {
    link: Arc<Link>,
    port: HubPort,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Metrics,
    live: Arc<LiveObjects>,
    store: Arc<ObjectStore>,
    faults: Faults,
    policy: PolicyReader,
    publisher: Publisher,
    managed: ManagedIssuers,
    targets: TargetReader,
    leadership: LeadershipReader,
    mint: Mint,
}

impl Replica {
    /// Starts a process.
    pub(crate) fn start(world: &Arc<World>, replica: usize, process: u64) -> Self {
        let link = Arc::new(Link::new(world, replica, process));
        let clock = replica_clock(world, replica);
        let port = HubPort(Arc::clone(&link));
        let seed = draw(world.seed, "process", process * 10 + replica as u64);
        let random: Arc<dyn Random> = Arc::new(SeededRandomness::new(seed));
        let mut tasks = JoinSet::new();
        let (policy_writer, target_writer) = (
            PolicyWriter::new(Policy::default()),
            TargetWriter::default(),
        );
        let leadership = LeadershipWriter::default();
        let publisher = create_publisher(world, &port, &clock, &random);
        let live = Arc::new(LiveObjects::for_source(ObjectSource::CustomResources));
        let managed = ManagedIssuers::default();
        let parts = Parts {
            store: Arc::new(ObjectStore::new(
                config::read(&objects::configuration()).unwrap().server,
            )),
            faults: Faults::default(),
            policy: policy_writer.reader(),
            targets: target_writer.reader(),
            leadership: leadership.reader(),
            metrics: Metrics::default(),
            mint: create_mint(world, &port, &clock, &random, &publisher, &live, &managed),
            link: Arc::clone(&link),
            port,
            clock,
            random,
            live,
            publisher,
            managed,
        };
        world.oracle.lock().views[replica] = Some(ReplicaView {
            published: parts.publisher.reader(),
            managed: parts.managed.clone(),
            leadership: leadership.reader(),
            clock: Arc::clone(&parts.clock),
        });
        parts.start_key_tasks(&mut tasks, leadership);
        parts.start_policy_tasks(&mut tasks, policy_writer, target_writer);
        let broker = Arc::new(parts.create_broker());
        Self {
            link,
            broker,
            tasks,
        }
    }

    /// Kills the process, with all that it has started.
    pub(crate) fn kill(mut self) {
        self.link.kill();
        self.tasks.abort_all();
        self.link
            .world
            .oracle
            .lock()
            .forget_replica(self.link.replica);
    }
}

fn replica_clock(world: &World, replica: usize) -> Arc<dyn Clock> {
    let clock = ReplicaClock::new(world, replica);
    let is_slow = world.has_mistake(Mistake::LeaderClockSlow) && replica == 0;
    Arc::new(clock.with_rate(if is_slow { 33 } else { 100 }))
}

fn activation_delay(world: &World) -> Duration {
    if world.has_mistake(Mistake::NoActivationDelay) {
        Duration::ZERO
    } else {
        lifetime::activation_delay(MAX_AGE)
    }
}

fn create_publisher(
    world: &World,
    port: &HubPort,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Publisher {
    let store = KeyRecordStore::new(Arc::new(port.clone()), Arc::clone(random));
    Publisher::new(PublisherParts {
        source: Arc::new(port.clone()) as Arc<dyn IssuerDocuments>,
        public_url: public_url(),
        pinned: None,
        activation_delay: activation_delay(world),
        records: if world.has_mistake(Mistake::JournalNotShared) && port.0.replica == 2 {
            KeyRecords::none()
        } else {
            KeyRecords::shared(store)
        },
        clock: Arc::clone(clock),
        metrics: Metrics::default(),
    })
}

fn public_url() -> PublicUrl {
    PublicUrl::new("https://keyferry.example.test").unwrap()
}

fn create_mint(
    world: &World,
    port: &HubPort,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
    publisher: &Publisher,
    live: &Arc<LiveObjects>,
    managed: &ManagedIssuers,
) -> Mint {
    let hub: Arc<dyn Hub> = Arc::new(port.clone());
    let canary = account_of("keyferry-system", "keyferry-canary");
    let signer = LocalSigner::new(managed.clone(), Arc::clone(clock), Arc::clone(random));
    Mint::new(MintParts {
        guard: AudienceGuard::new(
            Arc::clone(&hub),
            Arc::clone(clock),
            Arc::clone(live),
            publisher.clone(),
            canary,
        ),
        hub,
        publisher: publisher.clone(),
        own: OwnMint::new(managed.clone(), Arc::new(signer)),
        clock: Arc::clone(clock),
        random: Arc::clone(random),
        metrics: Metrics::default(),
        activation_delay: activation_delay(world),
        max_stale: MAX_STALE,
    })
}

impl Parts {
    fn shared_world(&self) -> &Arc<World> {
        &self.link.world
    }

    /// Starts what follows the keys and the Lease.
    fn start_key_tasks(&self, tasks: &mut JoinSet<()>, leadership: LeadershipWriter) {
        tasks.spawn(run_key_journal_sync(self.publisher.clone()));
        tasks.spawn(run_key_refresh(
            self.publisher.clone(),
            Arc::clone(&self.clock),
            self.metrics.clone(),
            ReloadSignal::never(),
        ));
        let lease = LeaderLease::new(
            Arc::new(self.port.clone()),
            Namespace::new("keyferry-system").unwrap(),
            format!("replica-{}-{}", self.link.replica, self.link.process),
        );
        if self.shared_world().has_mistake(Mistake::LeaderIgnoresLease) {
            leadership.set(Some(Duration::from_secs(1_000_000)));
            self.publisher.set_leadership(true);
            tasks.spawn(async move {
                let _kept = leadership;
                std::future::pending().await
            });
        } else {
            tasks.spawn(run_leader_election(
                lease,
                self.publisher.clone(),
                leadership,
                Arc::clone(&self.clock),
                self.metrics.clone(),
            ));
        }
        let maintainer = KeySetMaintainer::new(KeySetMaintainerParts {
            store: Arc::new(self.port.clone()),
            issuers: self.managed.clone(),
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
            public_url: public_url(),
            rotation: RotationPolicy {
                active_after: lifetime::activation_delay(MAX_AGE),
                every: Duration::from_secs(30 * 24 * 3600),
            },
            may_write: Arc::new(AtomicBool::new(true)),
        });
        let (first_check, _) = tokio::sync::watch::channel(false);
        tasks.spawn(run_managed_key_refresh(
            maintainer,
            self.policy.clone(),
            first_check,
            ReloadSignal::never(),
        ));
    }

    /// Starts what follows the hub's objects.
    fn start_policy_tasks(
        &self,
        tasks: &mut JoinSet<()>,
        policy: PolicyWriter,
        targets: TargetWriter,
    ) {
        tasks.spawn(run_policy_assembly(
            Arc::clone(&self.store),
            policy,
            self.faults.clone(),
        ));
        tasks.spawn(run_watches(
            Arc::clone(&self.link),
            Arc::clone(&self.clock),
            Arc::clone(&self.live),
            Arc::clone(&self.store),
            self.policy.clone(),
            targets,
        ));
        let hub: Arc<dyn Hub> = Arc::new(self.port.clone());
        tasks.spawn(run_key_canary(AudienceGuard::new(
            hub,
            Arc::clone(&self.clock),
            Arc::clone(&self.live),
            self.publisher.clone(),
            account_of("keyferry-system", "keyferry-canary"),
        )));
        let context = Arc::new(self.create_context());
        let credentials = CredentialSources {
            mint: self.mint.clone(),
            client_keys: Arc::new(SystemClientKeys),
            facts: Arc::new(self.port.clone()),
            audit: Arc::new(AuditLog(Arc::clone(&self.link))),
            activation_delay: activation_delay(self.shared_world()),
        };
        let deliveries = Arc::new(Deliveries::new(Arc::clone(&context), credentials));
        tasks.spawn(run_delivery_queue(context, deliveries, MAX_STALE));
    }

    fn create_context(&self) -> Context {
        let author_policy = AdmissionPolicyWriter::for_author_policy();
        author_policy.set_state(Standing::Active);
        let clock: Arc<dyn Clock> = if self.shared_world().has_mistake(Mistake::LeaderTermOutlived)
        {
            let clock = ReplicaClock::new(self.shared_world(), self.link.replica);
            Arc::new(clock.with_lag(Duration::from_secs(45)))
        } else {
            Arc::clone(&self.clock)
        };
        Context {
            policy: self.policy.clone(),
            store: Arc::clone(&self.store),
            faults: self.faults.clone(),
            live: Arc::clone(&self.live),
            published: self.publisher.reader(),
            targets: self.targets.clone(),
            author_policy: author_policy.reader(),
            objects: Arc::new(self.port.clone()),
            probe: Arc::new(SilentTargets),
            leadership: self.leadership.clone(),
            clock,
            random: Arc::clone(&self.random),
            metrics: self.metrics.clone(),
        }
    }

    fn create_broker(&self) -> Broker {
        let hub: Arc<dyn Hub> = Arc::new(self.port.clone());
        let max_stale = MAX_STALE;
        let callers = CallerSettings {
            audience: Audience::new("keyferry.dev").unwrap(),
            require_pod_bound: false,
            max_stale,
            new_callers: NewCallerLimits {
                per_address: None,
                per_namespace: None,
            },
        };
        Broker::new(BrokerParts {
            policy: self.policy.clone(),
            live: Arc::clone(&self.live),
            published: self.publisher.reader(),
            targets: self.targets.clone(),
            authenticator: Authenticator::new(
                Arc::clone(&hub),
                self.publisher.clone(),
                Arc::clone(&self.clock),
                self.metrics.clone(),
                [7; 32],
                callers.clone(),
            ),
            external: None,
            delegations: Delegations::new(
                hub,
                Arc::clone(&self.clock),
                self.metrics.clone(),
                max_stale,
            ),
            mint: self.mint.clone(),
            audit: Arc::new(AuditLog(Arc::clone(&self.link))),
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
            metrics: self.metrics.clone(),
            callers,
        })
    }
}

/// Brings the hub's objects to the process's own stores, as its watches do: in order, late, and not
/// at all while the hub is out of reach.
async fn run_watches(
    link: Arc<Link>,
    clock: Arc<dyn Clock>,
    live: Arc<LiveObjects>,
    store: Arc<ObjectStore>,
    policy: PolicyReader,
    targets: TargetWriter,
) {
    let world = Arc::clone(&link.world);
    let mut known_versions: [BTreeMap<String, String>; 2] = Default::default();
    let (mut accounts_version, mut objects_version, mut is_listed) = (0, 0, false);
    loop {
        // What is read here arrives after the pause: that is how late a watch is.
        let read_at = world.now();
        let reads = world.is_reachable(link.replica);
        let written = world.objects_version.load(Ordering::Relaxed);
        let objects = (written != objects_version)
            .then(|| ["/targetclusters/", "/targetaccesses/"].map(|kind| world.objects.all(kind)));
        let (accounts, version) = {
            let hub = world.hub.lock();
            (hub.accounts.clone(), hub.accounts_version)
        };
        link.wait(Duration::from_millis(100 + link.draw("watch") % 1_900))
            .await;
        oracle::observe(&world);
        if !reads || !world.is_reachable(link.replica) {
            for watched in ALL_WATCHES {
                live.watch_failed(watched, clock.now());
            }
        } else if is_listed && world.has_mistake(Mistake::WatchBlind) {
            note_health(&live);
        } else {
            if version != accounts_version {
                accounts_version = version;
                note_accounts(&live, &accounts);
            }
            let kinds = [Collection::TargetClusters, Collection::TargetAccesses];
            for (index, kind) in kinds.into_iter().enumerate() {
                if let Some(objects) = &objects {
                    note_objects(&store, kind, &objects[index], &mut known_versions[index]);
                }
            }
            objects_version = written;
            // The state of a watch that works is the same after each answer.
            note_health(&live);
            is_listed = true;
        }
        if is_listed && reads && world.is_reachable(link.replica) {
            world
                .oracle
                .lock()
                .note_watched(link.replica, read_at, world.now());
        }
        note_targets(&targets, &policy.current());
    }
}

fn note_health(live: &LiveObjects) {
    for watched in ALL_WATCHES {
        live.watch_listed(watched);
    }
}

/// Stores the objects that have changed.
fn note_objects(
    store: &ObjectStore,
    kind: Collection,
    objects: &[serde_json::Value],
    known_versions: &mut BTreeMap<String, String>,
) {
    let text = |object: &serde_json::Value, field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let versions: BTreeMap<String, String> = objects
        .iter()
        .map(|object| (text(object, "uid"), text(object, "resourceVersion")))
        .collect();
    if !versions.keys().eq(known_versions.keys()) {
        store.list(kind, objects);
    } else {
        for object in objects {
            if known_versions.get(&text(object, "uid")) != versions.get(&text(object, "uid")) {
                store.store_object(kind, &ReducedObject::of(object));
            }
        }
    }
    *known_versions = versions;
}

fn note_accounts(live: &LiveObjects, accounts: &BTreeMap<(String, String), String>) {
    let of_account = |((namespace, name), uid): (&(String, String), &String)| {
        (account_of(namespace, name), Uid::new(uid.clone()).unwrap())
    };
    live.replace_service_accounts(accounts.iter().map(of_account).collect());
    let namespaces =
        ACCOUNTS.map(|(namespace, _)| (Namespace::new(namespace).unwrap(), BTreeMap::new()));
    live.replace_namespaces(HashMap::from(namespaces));
}

/// Every target is ready: its CA certificates are the client's own.
fn note_targets(targets: &TargetWriter, policy: &Policy) {
    let state = |target: &config::TargetCluster| {
        let state = TargetState {
            generation: target.generation,
            readiness: Readiness::Ready(None),
            client_certificate: false,
        };
        (target.name.clone(), state)
    };
    targets.replace(policy.targets.values().map(state).collect());
}
