//! Fakes that unit tests share: a clock, and a small world around the embedded hub.

mod objects;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_core::audience::Audience;
use keyferry_core::authorise::{self, Grant, Requester, Review};
use keyferry_core::config::{self, DeliveryType, NewCallerLimits, Policy};
use keyferry_core::issuer::PublicUrl;
use keyferry_core::moment::Moment;
use keyferry_core::name::{AccessName, Namespace, ObjectName};
use keyferry_core::service_account::{ServiceAccount, Uid};
use tempfile::TempDir;

use crate::audience_guard::AudienceGuard;
use crate::clock::Clock;
use crate::embedded::{EmbeddedHub, HubOptions};
use crate::kube::client::{HubAccess, HubClient};
use crate::kube::hub::KubeHub;
use crate::kube::issuer_documents::KubeIssuerDocuments;
use crate::live::{LiveObjects, Watched};
use crate::managed_issuer::OwnMint;
use crate::metrics::Metrics;
use crate::mint::{Mint, MintParts};
use crate::ports::{Hub, HubError, SecretData, SecretStore, StoredSecret};
use crate::publication::{KeyRecords, Publisher, PublisherParts};
use crate::random::SystemRandomness;
use crate::settings::CallerSettings;

pub(crate) use self::objects::{Failing, FakeObjects};

/// The issuer of every test hub.
pub(crate) const ISSUER: &str = "https://hub.example.test";

/// A wall clock and a monotonic clock that a test advances.
#[derive(Debug)]
pub(crate) struct FakeClock(Mutex<Moment>);

impl FakeClock {
    pub(crate) fn start() -> Arc<Self> {
        let wall = Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH);
        Arc::new(Self(Mutex::new(Moment {
            wall,
            mono: Duration::from_secs(1000),
        })))
    }

    /// Advances both clocks.
    pub(crate) fn advance(&self, span: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.wall = now.wall.saturating_add(span).unwrap_or(Timestamp::MAX);
        now.mono += span;
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Moment {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hub with two tenants, a policy for it, and the broker's parts; no listeners and no background
/// tasks.
pub(crate) struct SmallWorld {
    pub(crate) hub: EmbeddedHub,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) port: Arc<dyn Hub>,
    pub(crate) publisher: Publisher,
    pub(crate) live: Arc<LiveObjects>,
    pub(crate) policy: Policy,
    pub(crate) mint: Mint,
    pub(crate) metrics: Metrics,
    _folder: TempDir,
}

/// The configuration of a [`SmallWorld`].
pub(crate) const CONFIGURATION: &str = "
apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.test
discovery: {tls: {certFile: unused, keyFile: unused}}
api: {tls: {certFile: unused, keyFile: unused}}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: {name: prod}
spec:
  address: https://prod.example.test
  audience: https://prod.example.test
  allow: [{namespaces: [tenant-a], serviceAccounts: [reconciler, deployer]}]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: prod, namespace: tenant-a}
spec: {targetClusterRef: {name: prod}, serviceAccountName: reconciler, callers: [deployer]}
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: {name: deploy, namespace: tenant-a}
spec: {targetClusterRef: {name: prod}, serviceAccountName: deployer}
";

#[allow(
    clippy::unwrap_used,
    reason = "a test world that cannot be built fails its test"
)]
impl SmallWorld {
    pub(crate) async fn start() -> Self {
        let clock = FakeClock::start();
        let hub_clock = Arc::clone(&clock);
        let options = HubOptions {
            issuer: Some(ISSUER.to_owned()),
            clock: Arc::new(move || hub_clock.now().wall),
            ..HubOptions::default()
        };
        let hub = EmbeddedHub::start(options).await.unwrap();
        let live = Arc::new(LiveObjects::default());
        for (namespace, account) in [
            ("keyferry-system", "keyferry-canary"),
            ("tenant-a", "reconciler"),
            ("tenant-a", "deployer"),
        ] {
            hub.add_namespace(namespace, &[]);
            let uid = hub.add_service_account(namespace, account);
            live.set_namespace(
                Namespace::new(namespace).unwrap(),
                Some(std::collections::BTreeMap::new()),
            );
            live.set_service_account(account_of(namespace, account), Some(Uid::new(uid).unwrap()));
        }
        live.watch_listed(Watched::ServiceAccounts);
        live.watch_listed(Watched::Namespaces);
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(
            &kubeconfig,
            secrecy::ExposeSecret::expose_secret(&hub.kubeconfig()),
        )
        .unwrap();
        let access = HubAccess {
            kubeconfig: Some(kubeconfig),
            ..HubAccess::default()
        };
        let client = HubClient::new(access.config().await.unwrap()).unwrap();
        let shared: Arc<dyn Clock> = Arc::<FakeClock>::clone(&clock);
        let port: Arc<dyn Hub> = Arc::new(KubeHub::new(client, Arc::clone(&shared)));
        let public_url = PublicUrl::new("https://keyferry.example.test").unwrap();
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(access, Vec::new())),
            public_url,
            pinned: None,
            settle: settle(),
            records: KeyRecords::none(),
            clock: Arc::clone(&shared),
            metrics: Metrics::default(),
        });
        publisher.refresh().await.unwrap();
        let metrics = Metrics::default();
        let mint = mint(&port, &publisher, &live, &clock, &metrics);
        let policy = config::read(CONFIGURATION).unwrap().policy;
        Self {
            hub,
            clock,
            port,
            publisher,
            live,
            policy,
            mint,
            metrics,
            _folder: folder,
        }
    }

    /// Creates a mint with an empty cache, like that of a process that has just started.
    pub(crate) fn new_mint(&self) -> Mint {
        mint(
            &self.port,
            &self.publisher,
            &self.live,
            &self.clock,
            &self.metrics,
        )
    }

    /// Creates a grant for an access of tenant-a, with an operator as requester.
    pub(crate) fn grant(&self, access: &str) -> Grant {
        let name = AccessName::parse(access).unwrap();
        let pair = authorise::pair(
            &self.policy,
            &*self.live,
            &Requester::Operator,
            &name,
            DeliveryType::HTTP,
        )
        .unwrap();
        authorise::grant(&self.policy, Requester::Operator, pair, Review::NotAsked).unwrap()
    }

    /// The requirements on callers of this world.
    pub(crate) fn callers(&self, max_stale: Duration) -> CallerSettings {
        CallerSettings {
            audience: Audience::new("keyferry.dev").unwrap(),
            require_pod_bound: false,
            max_stale,
            new_callers: NewCallerLimits {
                per_address: None,
                per_namespace: None,
            },
        }
    }
}

/// The activation delay of keys in a [`SmallWorld`].
pub(crate) fn settle() -> Duration {
    keyferry_core::lifetime::settle(Duration::from_secs(60))
}

fn mint(
    port: &Arc<dyn Hub>,
    publisher: &Publisher,
    live: &Arc<LiveObjects>,
    clock: &Arc<FakeClock>,
    metrics: &Metrics,
) -> Mint {
    let shared = || Arc::<FakeClock>::clone(clock);
    let canary = account_of("keyferry-system", "keyferry-canary");
    let guard = AudienceGuard::new(
        Arc::clone(port),
        shared(),
        Arc::clone(live),
        publisher.clone(),
        canary,
    );
    Mint::new(MintParts {
        hub: Arc::clone(port),
        publisher: publisher.clone(),
        own: OwnMint::none(),
        guard,
        clock: shared(),
        random: Arc::new(SystemRandomness::default()),
        metrics: metrics.clone(),
        settle: settle(),
    })
}

/// Creates a ServiceAccount from its namespace and name.
#[allow(clippy::unwrap_used, reason = "tests write good names")]
pub(crate) fn account_of(namespace: &str, name: &str) -> ServiceAccount {
    ServiceAccount::from_username(&format!("system:serviceaccount:{namespace}:{name}")).unwrap()
}

/// The Secrets with their versions.
type Shelf = std::collections::BTreeMap<ObjectName, (u64, SecretData)>;

/// Secrets in memory, with the compare-and-swap of the API.
#[derive(Default)]
pub(crate) struct MemorySecrets {
    secrets: Mutex<Shelf>,
    away: std::sync::atomic::AtomicBool,
}

impl MemorySecrets {
    /// Sets whether the store is unreachable.
    pub(crate) fn be_away(&self, away: bool) {
        self.away.store(away, std::sync::atomic::Ordering::Relaxed);
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, Shelf>, HubError> {
        if self.away.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(HubError::Unreachable("away".to_owned()));
        }
        Ok(self.secrets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SecretStore for MemorySecrets {
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>> {
        Box::pin(async move {
            let found = self.lock()?.get(name).map(|(version, data)| StoredSecret {
                version: version.to_string(),
                data: data.clone(),
            });
            // Lets other tasks write between a read and the write that depends on it.
            tokio::task::yield_now().await;
            Ok(found)
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let mut secrets = self.lock()?;
            if secrets.contains_key(name) {
                return Err(HubError::Conflict("there is one".to_owned()));
            }
            secrets.insert(name.clone(), (1, data.clone()));
            Ok(())
        })
    }

    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let mut secrets = self.lock()?;
            let (present, kept) = secrets
                .get_mut(name)
                .ok_or_else(|| HubError::NotFound("none".to_owned()))?;
            if present.to_string() != version {
                return Err(HubError::Conflict("another version".to_owned()));
            }
            (*present, *kept) = (*present + 1, data.clone());
            Ok(())
        })
    }
}
