#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use keyferry_api::config::{self, InputCredential, InputProof, InputScope, Policy};
use keyferry_api::name::{ClusterDns, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use keyferry_core::inputs::credential::{CredentialBook, CredentialHashes, InputToken};
use keyferry_core::inputs::presented::PresentedCredential;
use keyferry_hub::input_credentials::CredentialWriter;
use keyferry_hub::live::{LiveObjects, Watched};
use keyferry_hub::testing::input_components;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::clock::Clock;
use keyferry_platform::fleet_index::FleetIndexReader;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::PolicyWriter;
use keyferry_platform::testing::FakeClock;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::{InputResource, Inputs, InputsParts, InputsRefusal, ShownCredential};

const STALE: Duration = Duration::from_secs(300);

/// An audit log in memory.
#[derive(Default)]
struct Records(Mutex<Vec<Value>>);

impl AuditSink for Records {
    fn record(&self, record: &AuditRecord) -> Recording {
        let line = serde_json::from_slice(&record.to_json_line().unwrap()).unwrap();
        self.0.lock().push(line);
        Recording::written()
    }
}

struct World {
    inputs: Arc<Inputs>,
    clock: Arc<FakeClock>,
    live: Arc<LiveObjects>,
    policy: PolicyWriter,
    records: Arc<Records>,
}

fn policy(dns: [&str; 2]) -> Policy {
    let target = |name: &str, dns: &str| {
        format!(
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: {name}}}\n\
             spec:\n  address: https://{name}.example.com\n  audience: {name}\n\
             \x20 identity: {{clusterName: {name}, clusterDNS: {dns}, environment: test}}\n"
        )
    };
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
         publicURL: https://keyferry.example.com\n\
         discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n\
         {}{}",
        target("a", dns[0]),
        target("b", dns[1]),
    );
    config::read(&text).unwrap().policy
}

fn dns(text: &str) -> ClusterDns {
    ClusterDns::new(text).unwrap()
}

fn build_world() -> World {
    let clock = FakeClock::start();
    let live = Arc::new(LiveObjects::default());
    for watched in [Watched::ServiceAccounts, Watched::Namespaces] {
        live.watch_listed(watched);
    }
    let records = Arc::new(Records::default());
    let (inputs, policy) = service(&clock, &live, Arc::<Records>::clone(&records));
    World {
        inputs,
        clock,
        live,
        policy,
        records,
    }
}

/// The inputs of a.example.com and b.example.com. The first one has a platform component.
pub(crate) fn service(
    clock: &Arc<FakeClock>,
    live: &Arc<LiveObjects>,
    audit: Arc<dyn AuditSink>,
) -> (Arc<Inputs>, PolicyWriter) {
    let credentials = CredentialWriter::default();
    let credential = |byte: u8, name: &str, scope| {
        let name = ObjectName::new(name).unwrap();
        let credential = InputCredential {
            proof: InputProof::Token(name.clone()),
            name,
            scope,
        };
        let hash = InputToken::of(&[byte; 32]).sha256();
        let entry = |key: &str| (key == "sha256").then(|| hash.clone());
        let (hashes, _) = CredentialHashes::read(entry, clock.now().wall).unwrap();
        (Arc::new(credential), hashes)
    };
    let all = [
        credential(1, "a", InputScope::Cluster(dns("a.example.com"))),
        credential(2, "b", InputScope::Cluster(dns("b.example.com"))),
        credential(3, "admin", InputScope::Admin),
    ];
    credentials.replace(CredentialBook::new(&[9; 32], all).0);
    let policy = PolicyWriter::new(policy(["a.example.com", "b.example.com"]));
    let inputs = Arc::new(Inputs::new(InputsParts {
        fleet: FleetIndexReader::new(policy.reader()),
        live: Arc::clone(live),
        components: input_components(&[("a", "one", "x: 1")]),
        credentials: credentials.reader(),
        hub_name: "hub".to_owned(),
        requests_per_second: NonZeroU32::new(5),
        max_stale: STALE,
        clock: Arc::<FakeClock>::clone(clock),
        audit,
        metrics: Metrics::default(),
    }));
    (inputs, policy)
}

fn presented(byte: u8, user: Option<&str>) -> PresentedCredential {
    let token = InputToken::of(&[byte; 32]);
    let token = token.secret().expose_secret();
    let header = match user {
        None => format!("Bearer {token}"),
        Some(user) => {
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{token}"));
            format!("Basic {pair}")
        }
    };
    PresentedCredential::read([header.as_bytes()].into_iter()).unwrap()
}

impl World {
    async fn ask(&self, byte: u8, resource: &InputResource) -> String {
        let presented = presented(byte, None);
        let answer = Arc::clone(&self.inputs).answer_request(
            ShownCredential::Token(presented),
            Some(resource.clone()),
            7.into(),
        );
        let answer = answer
            .await
            .map(|answer| answer.collection.bytes().to_vec());
        described(answer)
    }
}

fn described(answer: Result<Vec<u8>, InputsRefusal>) -> String {
    match answer {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(InputsRefusal::Credential) => "credential".to_owned(),
        Err(InputsRefusal::Certificate(_)) => "certificate".to_owned(),
        Err(InputsRefusal::Ambiguous) => "ambiguous".to_owned(),
        Err(InputsRefusal::NotFound) => "not found".to_owned(),
        Err(InputsRefusal::TooMany) => "too many".to_owned(),
        Err(InputsRefusal::NotAvailable(error)) => error.reason().to_string(),
        Err(InputsRefusal::Unrecorded) => "unrecorded".to_owned(),
    }
}

#[tokio::test]
async fn a_credential_reads_its_own_cluster_and_learns_of_no_other() {
    let world = build_world();
    world.clock.advance(Duration::from_secs(1));
    let components = |name: &str| InputResource::PlatformComponents(dns(name));
    let one = r#"{"inputs":[{"id":"one","x":1}]}"#;
    for (byte, name, wanted) in [
        (1, "a.example.com", one),
        (1, "b.example.com", "not found"),
        (1, "unknown.example.com", "not found"),
        (2, "a.example.com", "not found"),
        (2, "b.example.com", "InputsMissing"),
        (3, "a.example.com", one),
        (3, "unknown.example.com", "not found"),
        (4, "a.example.com", "credential"),
        (4, "unknown.example.com", "credential"),
    ] {
        assert_eq!(
            world.ask(byte, &components(name)).await,
            wanted,
            "{byte} {name}"
        );
    }
    let namespace = InputResource::Targets(Namespace::new("tenant-a").unwrap());
    assert_eq!(world.ask(1, &namespace).await, "not found");
    assert_eq!(world.ask(3, &namespace).await, r#"{"inputs":[]}"#);
    let own = components("a.example.com");
    let inputs = || Arc::clone(&world.inputs);
    let none = inputs()
        .answer_request(ShownCredential::Nothing, Some(own.clone()), 7.into())
        .await;
    assert_eq!(described(none.map(|_| Vec::new())), "credential");
    let wrong = ShownCredential::Token(presented(1, Some("b")));
    let wrong = inputs().answer_request(wrong, Some(own), 7.into()).await;
    assert_eq!(described(wrong.map(|_| Vec::new())), "credential");
    let records = world.records.0.lock();
    assert_eq!(
        records.len(),
        9,
        "one for each valid credential: {records:?}"
    );
    assert_eq!(records[0]["inputCredential"], "a");
    assert_eq!(records[0]["target"], "a");
    assert_eq!(records[1]["reason"], Reason::InputsNotGranted.as_str());
}

#[tokio::test]
async fn nothing_is_read_from_a_policy_that_may_be_incomplete_or_old() {
    let world = build_world();
    let cluster = InputResource::Cluster(dns("a.example.com"));
    assert_eq!(
        world.ask(1, &cluster).await,
        "InputsUnread",
        "not settled yet"
    );
    assert_eq!(
        world.ask(4, &cluster).await,
        "InputsUnread",
        "whatever the credential"
    );
    world.clock.advance(Duration::from_secs(1));
    assert!(world.ask(1, &cluster).await.contains("a.example.com"));
    world
        .live
        .watch_failed(Watched::Namespaces, world.clock.now());
    world.clock.advance(STALE);
    assert!(world.ask(1, &cluster).await.contains("a.example.com"));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.ask(1, &cluster).await, "InputsUnread");
}

#[tokio::test]
async fn two_targets_with_one_name_serve_nothing_until_one_is_gone() {
    let world = build_world();
    world.clock.advance(Duration::from_secs(1));
    let mut both = policy(["a.example.com", "b.example.com"]);
    let name = both.targets.values().next().unwrap().identity.clone();
    for target in both.targets.values_mut() {
        target.identity.clone_from(&name);
    }
    world.policy.replace(both);
    let cluster = InputResource::Cluster(dns("a.example.com"));
    assert_eq!(world.ask(1, &cluster).await, "IdentityConflict");
    assert_eq!(world.ask(3, &cluster).await, "IdentityConflict");
    assert_eq!(world.ask(2, &cluster).await, "not found");
    world
        .policy
        .replace(policy(["a.example.com", "b.example.com"]));
    assert!(world.ask(1, &cluster).await.contains("a.example.com"));
}

#[tokio::test]
async fn a_credential_gets_a_burst_then_a_rate_and_leaves_others_theirs() {
    let world = build_world();
    world.clock.advance(Duration::from_secs(1));
    let cluster = InputResource::Cluster(dns("a.example.com"));
    let other = InputResource::Cluster(dns("b.example.com"));
    let mut served = 0;
    for resource in [&cluster, &other].into_iter().cycle().take(100) {
        served += u32::from(world.ask(1, resource).await != "too many");
    }
    assert_eq!(served, 15, "404 counts too");
    assert_eq!(world.records.0.lock().len(), 15, "no record of the others");
    assert!(world.ask(2, &other).await.contains("b.example.com"));
    world.clock.advance(Duration::from_millis(200));
    assert!(world.ask(1, &cluster).await.contains("a.example.com"));
    assert_eq!(world.ask(1, &cluster).await, "too many");
    for _ in 0..150 {
        assert!(world.ask(3, &cluster).await.contains("a.example.com"));
    }
    assert_eq!(world.ask(3, &cluster).await, "too many");
}

#[tokio::test]
async fn answers_that_nobody_reads_are_limited() {
    let world = build_world();
    world.clock.advance(Duration::from_secs(1));
    let cluster = InputResource::Cluster(dns("a.example.com"));
    let mut unread = Vec::new();
    loop {
        let shown = ShownCredential::Token(presented(1, None));
        let answer =
            Arc::clone(&world.inputs).answer_request(shown, Some(cluster.clone()), 7.into());
        match answer.await {
            Ok(answer) => unread.push(answer),
            Err(refused) => break assert!(matches!(refused, InputsRefusal::TooMany)),
        }
    }
    assert_eq!(unread.len(), 4);
    assert!(world.ask(3, &cluster).await.contains("a.example.com"));
    unread.pop();
    assert!(world.ask(1, &cluster).await.contains("a.example.com"));
}
