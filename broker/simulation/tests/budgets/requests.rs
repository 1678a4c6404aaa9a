//! What requests leave in the caches, at the hub and in the audit log.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keyferry_api::config::{self, DeliveryType, Policy};
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::service_account::Uid;
use keyferry_core::audit::AuditRecord;
use keyferry_core::caller::PresentedToken;
use keyferry_core::exchange::{
    ClientCertificate, GRANT_TYPE, MAX_FORM_BYTES, TOKEN_TYPE_JWT, parse_exchange,
};
use keyferry_hub::targets::{Readiness, TargetState, TargetWriter};
use keyferry_issuer::testing::{CONFIGURATION, FakeClock, SmallWorld, account_of};
use keyferry_listener::Source;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::clock::Clock;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::random::SystemRandomness;
use keyferry_server::authenticate::Authenticator;
use keyferry_server::broker::{Broker, BrokerParts, Credential, Request};
use keyferry_server::delegate::Delegations;
use secrecy::{ExposeSecret, SecretString};

use crate::cost::{Cost, Memory};
use crate::hub_objects::{name, namespace};

/// The requests of a measurement.
const REQUESTS: usize = 300;
/// The accesses of a measurement, each to a target of its own.
const TARGETS: usize = 50;
const MAX_STALE: Duration = Duration::from_secs(300);
const LIFETIME: Duration = Duration::from_secs(3600);
/// The longest token that is read.
const LONGEST_TOKEN: usize = 8192;

/// An audit log that counts its bytes.
#[derive(Default)]
pub(crate) struct CountedLog(AtomicUsize);

impl CountedLog {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl AuditSink for CountedLog {
    fn record(&self, record: &AuditRecord) -> Recording {
        let line = record.to_json_line().unwrap();
        self.0.fetch_add(line.len(), Ordering::Relaxed);
        Recording::written()
    }
}

/// A server before a hub with one tenant, whose names are the longest.
struct Server {
    world: SmallWorld,
    broker: Broker,
    log: Arc<CountedLog>,
    hub_calls: usize,
}

fn long_access(index: usize) -> AccessName {
    AccessName::parse(&format!("{}/{}", namespace(), name(index))).unwrap()
}

fn account() -> String {
    "s".repeat(253)
}

/// Targets and accesses with the longest names and audiences.
fn policy() -> Policy {
    let mut text = CONFIGURATION.to_owned();
    for index in 0..TARGETS {
        let (namespace, name, account) = (namespace(), name(index), account());
        let audience = format!("https://{index:a>240}.test");
        write!(
            text,
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: {name}}}\nspec: \
             {{address: \"https://t{index}.example.test\", audience: \"{audience}\", allow: [{{namespaces: [{namespace}], \
             serviceAccounts: [{account}]}}]}}\n---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: \
             {{name: {name}, namespace: {namespace}}}\nspec: {{targetClusterRef: {{name: {name}}}, serviceAccountName: {account}}}\n"
        )
        .unwrap();
    }
    config::read(&text).unwrap().policy
}

impl Server {
    async fn start() -> Self {
        let mut world = SmallWorld::start().await;
        world.policy = policy();
        world.hub.add_namespace(&namespace(), &[]);
        let uid = world.hub.add_service_account(&namespace(), &account());
        let name = Namespace::new(namespace()).unwrap();
        world.live.set_namespace(name, Some(BTreeMap::new()));
        world.live.set_service_account(
            account_of(&namespace(), &account()),
            Some(Uid::new(uid).unwrap()),
        );
        let log = Arc::new(CountedLog::default());
        let broker = create_broker(&world, &log);
        let hub_calls = count_calls(&world);
        Self {
            world,
            broker,
            log,
            hub_calls,
        }
    }

    fn token(&self) -> SecretString {
        let hub = &self.world.hub;
        hub.token(&namespace(), &account(), "keyferry.dev", LIFETIME)
            .unwrap()
    }

    async fn send(&self, token: &SecretString, access: AccessName) -> bool {
        let request = Request {
            route: "exchange",
            credential: Credential::Token(PresentedToken::new(token.expose_secret())),
            access,
            min_ttl: None,
            scope: None,
            needs_cluster: false,
            deliveries: &[DeliveryType::HTTP],
            request_id: 7.into(),
            source: Source::default(),
        };
        self.broker.issue_credential(&request).await.is_ok()
    }

    fn cost(&self, memory: &Memory) -> Cost {
        Cost {
            hub_calls: count_calls(&self.world) - self.hub_calls,
            audit_bytes: self.log.bytes(),
            ..memory.cost()
        }
    }
}

/// The TokenRequests and reviews so far.
pub(crate) fn count_calls(world: &SmallWorld) -> usize {
    let hub = &world.hub;
    let all = hub.token_requests() + hub.token_reviews() + hub.access_reviews();
    usize::try_from(all).unwrap()
}

/// A broker for which every target is ready.
fn create_broker(world: &SmallWorld, log: &Arc<CountedLog>) -> Broker {
    let targets = TargetWriter::default();
    let state = |generation| TargetState {
        generation,
        readiness: Readiness::Ready(None),
        client_certificate: false,
    };
    let all = world.policy.targets.values();
    targets.replace(
        all.map(|target| (target.name.clone(), state(target.generation)))
            .collect(),
    );
    let policy = PolicyWriter::new(world.policy.clone()).reader();
    let clock = || Arc::<FakeClock>::clone(&world.clock) as Arc<dyn Clock>;
    let (hub, metrics) = (|| Arc::clone(&world.port), || world.metrics.clone());
    let callers = world.callers(MAX_STALE);
    Broker::new(BrokerParts {
        policy,
        live: Arc::clone(&world.live),
        published: world.publisher.reader(),
        targets: targets.reader(),
        authenticator: Authenticator::new(
            hub(),
            world.publisher.clone(),
            clock(),
            metrics(),
            [7; 32],
            callers.clone(),
        ),
        external: None,
        delegations: Delegations::new(hub(), clock(), metrics(), MAX_STALE),
        mint: world.new_mint(),
        audit: Arc::<CountedLog>::clone(log),
        clock: clock(),
        random: Arc::new(SystemRandomness::default()),
        metrics: metrics(),
        callers,
    })
}

/// Forms of the largest size, whose token has to be decoded, all at the same time.
pub(crate) async fn largest_forms() -> Cost {
    let token = "%41".repeat((MAX_FORM_BYTES - 1024) / 3);
    let form = format!(
        "grant_type={GRANT_TYPE}&subject_token_type={TOKEN_TYPE_JWT}&audience={}&subject_token={token}",
        long_access(0)
    );
    let memory = Memory::measure();
    let parsed = (0..REQUESTS).map(|_| parse_exchange(form.as_bytes(), ClientCertificate::Absent));
    let parsed: Vec<_> = parsed.map(Result::unwrap).collect();
    let cost = memory.cost();
    drop(parsed);
    Cost {
        kept: memory.cost().kept,
        ..cost
    }
}

/// Everyone can send tokens of the largest size with the `kid` of the hub.
pub(crate) async fn forged_tokens() -> Cost {
    let server = Server::start().await;
    let token = server.token();
    let (signed, _) = token.expose_secret().rsplit_once('.').unwrap();
    let signature = "A".repeat(LONGEST_TOKEN - signed.len() - 1);
    let forged = SecretString::from(format!("{signed}.{signature}"));
    let memory = Memory::measure();
    for _ in 0..REQUESTS {
        assert!(!server.send(&forged, long_access(0)).await);
    }
    server.cost(&memory)
}

/// A known caller asks within one second for what it may not have.
pub(crate) async fn denied_requests() -> Cost {
    let server = Server::start().await;
    let token = server.token();
    assert!(server.send(&token, long_access(0)).await);
    let before = server.log.bytes();
    let calls = count_calls(&server.world);
    let memory = Memory::measure();
    let requests = (0..REQUESTS).map(|_| server.send(&token, long_access(TARGETS)));
    assert!(join_all(requests).await.iter().all(|is_issued| !is_issued));
    // The summary is written at the end of the second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let cost = server.cost(&memory);
    Cost {
        audit_bytes: cost.audit_bytes - before,
        hub_calls: count_calls(&server.world) - calls,
        ..cost
    }
}

/// A caller shows another token each time, and gets the same token of the target.
pub(crate) async fn fresh_tokens() -> Cost {
    let server = Server::start().await;
    let tokens: Vec<SecretString> = (0..REQUESTS).map(|_| server.token()).collect();
    let memory = Memory::measure();
    for token in &tokens {
        assert!(server.send(token, long_access(0)).await);
    }
    server.cost(&memory)
}

/// A caller asks for another access each time.
pub(crate) async fn issued_tokens() -> Cost {
    let server = Server::start().await;
    let token = server.token();
    let memory = Memory::measure();
    for index in 0..TARGETS {
        assert!(server.send(&token, long_access(index)).await);
    }
    server.cost(&memory)
}
