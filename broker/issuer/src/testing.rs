//! A small world around the embedded hub, which unit tests of several crates share.

pub mod managed_issuers;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{self, DeliveryType, NewCallerLimits, Policy};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::service_account::Uid;
use keyferry_core::authorise::{self, Grant, Requester, Review};
use keyferry_hub::client::HubAccess;
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::kube_hub::KubeHub;
use keyferry_hub::live::{LiveObjects, Watched};
use keyferry_hub::ports::Hub;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::random::SystemRandomness;
use keyferry_testing::{EmbeddedHub, HubOptions};
use tempfile::TempDir;

use crate::audience_guard::AudienceGuard;
use crate::managed_issuer::OwnMint;
use crate::mint::{Mint, MintParts};
use crate::publication::{KeyRecords, Publisher, PublisherParts};
use crate::settings::CallerSettings;

pub use keyferry_hub::testing::{Failing, FakeObjects, MemorySecrets, account_of};
pub use keyferry_platform::testing::FakeClock;

/// How long the mint of a [`SmallWorld`] does without the key journal.
pub const MAX_STALE: Duration = Duration::from_secs(300);

/// The issuer of every test hub.
pub const ISSUER: &str = "https://hub.example.test";

/// A hub with two tenants, a policy for it, and the broker's parts; no listeners and no background
/// tasks.
pub struct SmallWorld {
    /// The embedded hub.
    pub hub: EmbeddedHub,
    /// The clock of all parts.
    pub clock: Arc<FakeClock>,
    /// The calls to the hub.
    pub port: Arc<dyn Hub>,
    /// The publisher of the hub's keys.
    pub publisher: Publisher,
    /// The namespaces and ServiceAccounts as watched.
    pub live: Arc<LiveObjects>,
    /// The policy of [`CONFIGURATION`].
    pub policy: Policy,
    /// The mint, with an empty cache.
    pub mint: Mint,
    /// The metrics of all parts.
    pub metrics: Metrics,
    _folder: TempDir,
}

/// The configuration of a [`SmallWorld`].
pub const CONFIGURATION: &str = "
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
    /// Starts the hub with its two tenants.
    pub async fn start() -> Self {
        Self::start_with(KeyRecords::none()).await
    }

    /// As [`SmallWorld::start`], with a key journal that other replicas may share.
    pub async fn start_with(records: KeyRecords) -> Self {
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
        let client = access.client().await.unwrap();
        let shared: Arc<dyn Clock> = Arc::<FakeClock>::clone(&clock);
        let metrics = Metrics::default();
        let port: Arc<dyn Hub> =
            Arc::new(KubeHub::new(client, Arc::clone(&shared), metrics.clone()));
        let public_url = PublicUrl::new("https://keyferry.example.test").unwrap();
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                access,
                Vec::new(),
                HubCaller::Keyferry,
            )),
            public_url,
            pinned: None,
            activation_delay: activation_delay(),
            records,
            clock: Arc::clone(&shared),
            metrics: Metrics::default(),
        });
        publisher.refresh().await.unwrap();
        publisher.sync_journal().await.unwrap();
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
    pub fn new_mint(&self) -> Mint {
        mint(
            &self.port,
            &self.publisher,
            &self.live,
            &self.clock,
            &self.metrics,
        )
    }

    /// Creates a grant for an access of tenant-a, with an operator as requester.
    pub fn grant(&self, access: &str) -> Grant {
        let name = AccessName::parse(access).unwrap();
        let pair = authorise::authorise_request(
            &self.policy,
            &*self.live,
            &Requester::Operator,
            &name,
            DeliveryType::HTTP,
        )
        .unwrap();
        authorise::grant_token(&self.policy, Requester::Operator, pair, Review::NotAsked).unwrap()
    }

    /// The requirements on callers of this world.
    pub fn callers(&self, max_stale: Duration) -> CallerSettings {
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
pub fn activation_delay() -> Duration {
    keyferry_api::lifetime::activation_delay(Duration::from_secs(60))
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
        activation_delay: activation_delay(),
        max_stale: MAX_STALE,
    })
}
