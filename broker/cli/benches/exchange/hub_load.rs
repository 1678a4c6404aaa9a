//! Counts how often Keyferry calls the hub, on simulated time. A self caller and a delegated caller
//! each send a request every five seconds.
//!
//! The parts are the broker's own. Time, the hub's responses and the audit log are replaced, so
//! that a day takes a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{self, DeliveryType, NewCallerLimits, Policy};
use keyferry_api::lifetime;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::authorise;
use keyferry_core::caller::PresentedToken;
use keyferry_core::request_id::RequestId;
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::live::{LiveObjects, Watched};
use keyferry_hub::ports::Hub;
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::managed_issuer::OwnMint;
use keyferry_issuer::mint::{Mint, MintParts};
use keyferry_issuer::publication::{KeyRecords, Publisher, PublisherParts};
use keyferry_issuer::settings::CallerSettings;
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use keyferry_server::authenticate::Authenticator;
use keyferry_server::broker::{Broker, BrokerParts, Credential, Request};
use keyferry_server::delegate::Delegations;
use keyferry_testing::HubOptions;
use secrecy::{ExposeSecret, SecretString};

use super::simulated_hub::{CountingHub, NoLog, SimulatedClock};
use crate::harness::Outcome;
use crate::harness::policy::{self, CALLER_AUDIENCE};
use crate::harness::stage::Ground;

/// The simulated time.
const HOURS: u64 = 24;
const ASKS_EVERY: u64 = 5;
/// How often the server checks for tokens to renew.
const RENEWS_EVERY: u64 = 2;

/// The calls to the hub that one caller caused.
pub struct HubLoad {
    /// The kind of caller.
    pub caller: &'static str,
    /// The lifetime of its tokens.
    pub lifetime: &'static str,
    /// That lifetime in seconds.
    pub lifetime_seconds: u64,
    /// Simulated hours.
    pub hours: u64,
    /// The requests that the caller sent.
    pub asked: u64,
    /// TokenReviews.
    pub token_reviews: u64,
    /// SubjectAccessReviews.
    pub access_reviews: u64,
    /// TokenRequests for the caller.
    pub token_requests: u64,
    /// TokenRequests and TokenReviews of the canary.
    pub canary: u64,
}

/// Simulates each caller on its own broker in one thread, so that no task runs ahead of simulated
/// time.
pub async fn measure() -> Outcome<Vec<HubLoad>> {
    tokio::task::spawn_blocking(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(simulate_all())
    })
    .await?
}

async fn simulate_all() -> Outcome<Vec<HubLoad>> {
    let mut loads = Vec::new();
    for (lifetime, seconds) in [("1h", 3600), ("20m", 1200)] {
        loads.push(simulate("the ServiceAccount itself", "reconciler", lifetime, seconds).await?);
        loads.push(simulate("delegated caller", "robot", lifetime, seconds).await?);
    }
    Ok(loads)
}

async fn simulate(
    caller: &'static str,
    account: &str,
    lifetime: &'static str,
    lifetime_seconds: u64,
) -> Outcome<HubLoad> {
    let clock = Arc::new(SimulatedClock::start());
    let hub_clock = Arc::clone(&clock);
    let options = HubOptions {
        clock: Arc::new(move || hub_clock.now().wall),
        ..HubOptions::default()
    };
    let ground = Ground::prepare(options).await?;
    let world = World::new(ground, Arc::clone(&clock), lifetime).await?;
    // A caller token for a day and more. The kubelet would renew its token, and each new one would
    // be reviewed once more.
    let token = world.hub.ground.hub.token(
        "tenant-a",
        account,
        CALLER_AUDIENCE,
        Duration::from_secs((HOURS + 1) * 3600),
    )?;
    let (mut asked, live, mint) = (0, Arc::clone(&world.live), world.mint.clone());
    for second in 0..HOURS * 3600 {
        clock.set(second);
        if second % RENEWS_EVERY == 0 {
            let policy = world.policy.reader().current();
            mint.renew_due(|grant| authorise::still_holds(&policy, &*live, grant).is_ok());
            // A renewal runs in separate tasks that wait only for each other, so it is complete
            // after some yields.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        if second % ASKS_EVERY == 0 {
            world
                .broker
                .issue_credential(&request(&token)?)
                .await
                .map_err(|refusal| format!("refused: {:?}", refusal.reason))?;
            asked += 1;
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let hub = &world.hub;
    Ok(HubLoad {
        caller,
        lifetime,
        lifetime_seconds,
        hours: HOURS,
        asked,
        token_reviews: count(&hub.token_reviews),
        access_reviews: count(&hub.access_reviews),
        token_requests: count(&hub.token_requests),
        canary: count(&hub.canary),
    })
}

fn request(token: &SecretString) -> Outcome<Request<'_>> {
    Ok(Request {
        route: "exchange",
        credential: Credential::Token(PresentedToken::new(token.expose_secret())),
        access: AccessName::parse("tenant-a/prod")?,
        min_ttl: None,
        scope: None,
        needs_cluster: false,
        deliveries: &[DeliveryType::HTTP],
        request_id: RequestId::default(),
        source: Source::default(),
    })
}

/// The broker's parts around a simulated clock and a counting hub.
struct World {
    hub: Arc<CountingHub>,
    broker: Broker,
    mint: Mint,
    live: Arc<LiveObjects>,
    policy: PolicyWriter,
}

impl World {
    async fn new(ground: Ground, clock: Arc<SimulatedClock>, lifetime: &str) -> Outcome<Self> {
        let configuration = configuration(&ground, lifetime)?;
        let live = Arc::new(LiveObjects::default());
        fill(&ground, &live)?;
        let activation_delay = lifetime::activation_delay(configuration.server.max_age);
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                ground.hub_access(),
                Vec::new(),
                HubCaller::Keyferry,
            )),
            public_url: configuration.server.public_url.clone(),
            pinned: None,
            activation_delay,
            records: KeyRecords::none(),
            clock: clock.clone(),
            metrics: Metrics::default(),
        });
        publisher.refresh().await?;
        let targets = TargetWriter::default();
        targets.replace(ready(&configuration.policy));
        let policy = PolicyWriter::new(configuration.policy);
        let hub = Arc::new(CountingHub::new(ground, Arc::clone(&clock)));
        let (asked, clock): (Arc<dyn Hub>, Arc<dyn Clock>) = (hub.clone(), clock);
        let (metrics, random) = (Metrics::default(), Arc::new(SystemRandomness::default()));
        let canary = account("keyferry-system", "keyferry-canary")?;
        let published = publisher.reader();
        let guard = AudienceGuard::new(
            Arc::clone(&asked),
            Arc::clone(&clock),
            Arc::clone(&live),
            publisher.clone(),
            canary,
        );
        let mint = Mint::new(MintParts {
            hub: Arc::clone(&asked),
            publisher: publisher.clone(),
            own: OwnMint::none(),
            guard,
            clock: Arc::clone(&clock),
            random: random.clone(),
            metrics: metrics.clone(),
            activation_delay,
            max_stale: configuration.server.max_stale_authorization,
        });
        let max_stale = configuration.server.max_stale_authorization;
        let callers = CallerSettings {
            audience: Audience::new(CALLER_AUDIENCE)?,
            require_pod_bound: false,
            max_stale,
            new_callers: NewCallerLimits {
                per_address: None,
                per_namespace: None,
            },
        };
        let broker = Broker::new(BrokerParts {
            policy: policy.reader(),
            live: Arc::clone(&live),
            published,
            targets: targets.reader(),
            authenticator: Authenticator::new(
                Arc::clone(&asked),
                publisher,
                Arc::clone(&clock),
                metrics.clone(),
                [7; 32],
                callers.clone(),
            ),
            external: None,
            delegations: Delegations::new(asked, Arc::clone(&clock), metrics.clone(), max_stale),
            mint: mint.clone(),
            audit: Arc::new(NoLog),
            clock,
            random,
            metrics,
            callers,
        });
        Ok(Self {
            hub,
            broker,
            mint,
            live,
            policy,
        })
    }
}

fn configuration(ground: &Ground, lifetime: &str) -> Outcome<config::Configuration> {
    let mut objects = policy::target(
        "prod",
        lifetime,
        &["tenant-a".to_owned()],
        &["reconciler".to_owned()],
    );
    objects += &policy::access("tenant-a", "prod", "prod", "reconciler", &["robot"]);
    ground.configure(&objects)?;
    Ok(config::read(&std::fs::read_to_string(
        ground.file("config.yaml"),
    )?)?)
}

/// Fills in what the watches would have seen.
fn fill(ground: &Ground, live: &LiveObjects) -> Outcome<()> {
    for (namespace, name) in [
        ("keyferry-system", "keyferry-canary"),
        ("tenant-a", "reconciler"),
        ("tenant-a", "robot"),
    ] {
        let uid = ground.hub.add_service_account(namespace, name);
        live.set_service_account(account(namespace, name)?, Some(Uid::new(uid)?));
        live.set_namespace(Namespace::new(namespace)?, Some(Default::default()));
    }
    live.watch_listed(Watched::ServiceAccounts);
    live.watch_listed(Watched::Namespaces);
    Ok(())
}

fn ready(policy: &Policy) -> HashMap<ObjectName, TargetState> {
    let state = |generation| TargetState {
        generation,
        readiness: Readiness::Ready(None),
        client_certificate: false,
    };
    policy
        .targets
        .values()
        .map(|target| (target.name.clone(), state(target.generation)))
        .collect()
}

fn account(namespace: &str, name: &str) -> Outcome<ServiceAccount> {
    Ok(ServiceAccount {
        namespace: Namespace::new(namespace)?,
        name: ObjectName::new(name)?,
    })
}
