//! Tests of replicas that share a key journal, with a clock that the test moves.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::issuer::PublicUrl;
use keyferry_api::lifetime;
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::ports::{EndpointAnswer, HubError, IssuerDocuments, UpstreamDocuments};
use keyferry_keys::tracked_keys::KeyActivation;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::random::SystemRandomness;
use keyferry_testing::{EmbeddedHub, HubOptions};

use super::{KeyRecords, Publisher, PublisherParts};
use crate::key_records;
use crate::testing::{FakeClock, ISSUER, MemorySecrets};

/// The hub's documents as last copied.
#[derive(Default)]
struct Copied(Mutex<Option<UpstreamDocuments>>);

impl IssuerDocuments for Copied {
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>> {
        let documents = self
            .0
            .lock()
            .unwrap()
            .clone()
            .ok_or_else(|| HubError::Unreachable("stopped".to_owned()));
        Box::pin(async move {
            vec![EndpointAnswer {
                endpoint: "hub".to_owned(),
                documents,
            }]
        })
    }
}

struct World {
    hub: EmbeddedHub,
    documents: Arc<Copied>,
    secrets: Arc<MemorySecrets>,
    clock: Arc<FakeClock>,
}

impl World {
    async fn start() -> Self {
        let hub = EmbeddedHub::start(HubOptions {
            issuer: Some(ISSUER.to_owned()),
            ..HubOptions::default()
        })
        .await
        .unwrap();
        let world = Self {
            hub,
            documents: Arc::default(),
            secrets: Arc::default(),
            clock: FakeClock::start(),
        };
        world.copy().await;
        world
    }

    /// Copies what the hub serves now, for all later readings.
    async fn copy(&self) {
        let ca = reqwest::Certificate::from_pem(self.hub.ca_pem().as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .no_proxy()
            .build()
            .unwrap();
        let read = async |path: &str| {
            client
                .get(format!("{}{path}", self.hub.url()))
                .send()
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap()
                .to_vec()
        };
        let documents = UpstreamDocuments {
            metadata: read("/.well-known/openid-configuration").await,
            jwks: read("/openid/v1/jwks").await,
        };
        *self.documents.0.lock().unwrap() = Some(documents);
    }

    fn stop_hub(&self) {
        *self.documents.0.lock().unwrap() = None;
    }

    fn replica(&self, state: Option<&std::path::Path>) -> Publisher {
        let secrets: Arc<MemorySecrets> = Arc::clone(&self.secrets);
        let store = KeyRecordStore::new(secrets, Arc::new(SystemRandomness::default()));
        let clock: Arc<FakeClock> = Arc::clone(&self.clock);
        Publisher::new(PublisherParts {
            source: Arc::<Copied>::clone(&self.documents),
            public_url: PublicUrl::new("https://keyferry.example.test").unwrap(),
            pinned: None,
            activation_delay: lifetime::activation_delay(Duration::from_secs(60)),
            records: KeyRecords::shared(store).with_state(state.map(std::path::Path::to_owned)),
            clock,
            metrics: Metrics::default(),
        })
    }
}

fn jwks(publisher: &Publisher) -> Option<Vec<u8>> {
    publisher
        .reader()
        .current()
        .map(|published| published.jwks.bytes.to_vec())
}

#[tokio::test]
async fn replicas_that_start_together_agree_on_one_record() {
    let world = World::start().await;
    let replicas: Vec<Publisher> = (0..5).map(|_| world.replica(None)).collect();
    let kid = world.hub.rotate_key().unwrap();
    world.copy().await;
    for replica in &replicas {
        replica.refresh().await.unwrap();
    }
    // All replicas find no journal and write at once; one wins, and the others adopt its journal.
    for outcome in futures::future::join_all(replicas.iter().map(Publisher::sync_journal)).await {
        outcome.unwrap();
    }
    for replica in &replicas {
        assert_eq!(jwks(replica), jwks(&replicas[0]));
        assert_eq!(replica.key_activation(&kid), KeyActivation::Active);
        assert!(
            replica
                .reader()
                .current()
                .unwrap()
                .is_active(&kid, world.clock.now())
        );
    }
}

#[tokio::test]
async fn without_the_record_nothing_new_is_minted_and_all_else_goes_on() {
    let world = World::start().await;
    let replica = world.replica(None);
    replica.refresh().await.unwrap();
    assert!(!replica.is_current(), "not before the first reading");
    replica.sync_journal().await.unwrap();
    assert!(replica.is_current());
    world.secrets.be_away(true);
    world.clock.advance(Duration::from_secs(30));
    assert!(replica.sync_journal().await.is_err() && replica.is_current());
    world.clock.advance(Duration::from_secs(1));
    assert!(!replica.is_current());
    assert!(jwks(&replica).is_some());
    let kid = world.hub.rotate_key().unwrap();
    world.copy().await;
    replica.publish_signing_key(&kid).await;
    assert!(
        String::from_utf8(jwks(&replica).unwrap())
            .unwrap()
            .contains(&kid),
        "published"
    );
    world.clock.advance(Duration::from_secs(1000));
    assert!(
        matches!(replica.key_activation(&kid), KeyActivation::After(_)),
        "but no other replica can know it"
    );
    world.secrets.be_away(false);
    replica.sync_journal().await.unwrap();
    world.clock.advance(Duration::from_secs(120));
    assert_eq!(replica.key_activation(&kid), KeyActivation::Active);
}

#[tokio::test]
async fn a_record_that_is_back_is_read_within_two_seconds() {
    let world = World::start().await;
    let replica = world.replica(None);
    replica.refresh().await.unwrap();
    world.secrets.be_away(true);
    tokio::time::pause();
    let following = tokio::spawn(key_records::run_key_journal_sync(replica.clone()));
    tokio::time::sleep(Duration::from_millis(14_900)).await;
    assert!(!replica.is_current());
    world.secrets.be_away(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(replica.is_current());
    following.abort();
}

#[tokio::test]
async fn a_process_that_starts_while_the_hub_is_away_serves_what_it_kept() {
    let (world, state) = (World::start().await, tempfile::tempdir().unwrap());
    let before = world.replica(Some(state.path()));
    before.refresh().await.unwrap();
    before.sync_journal().await.unwrap();
    world.stop_hub();
    world.secrets.be_away(true);
    // An hour without the hub changes nothing in the running process.
    for _ in 0..6 {
        world.clock.advance(Duration::from_secs(600));
        assert!(before.refresh().await.is_err() && before.sync_journal().await.is_err());
    }
    let bytes = jwks(&before);
    assert!(bytes.is_some());

    let after = world.replica(Some(state.path()));
    after.restore_journal();
    assert_eq!(jwks(&after), bytes, "the same bytes");
    assert_eq!(after.unconfirmed_keys(), 1);
    assert!(
        after.reader().current().unwrap().authenticating.is_empty(),
        "nobody is believed by them"
    );
    assert!(!after.is_current());
    let without = world.replica(None);
    without.restore_journal();
    assert_eq!(jwks(&without), None);
    // A day later, no token that the key signed can be valid.
    world.clock.advance(lifetime::MAX);
    assert!(after.sync_journal().await.is_err());
    let elsewhere = world.replica(Some(state.path()));
    elsewhere.restore_journal();
    assert_eq!(jwks(&elsewhere), None);
}

#[tokio::test]
async fn a_revocation_reaches_every_replica_and_outlives_all_of_them() {
    let (world, state) = (World::start().await, tempfile::tempdir().unwrap());
    let kid = world.hub.rotate_key().unwrap();
    world.copy().await;
    let replicas = [world.replica(Some(state.path())), world.replica(None)];
    for replica in &replicas {
        replica.refresh().await.unwrap();
        replica.sync_journal().await.unwrap();
    }
    let store = KeyRecordStore::new(
        Arc::<MemorySecrets>::clone(&world.secrets),
        Arc::new(SystemRandomness::default()),
    );
    let found = store.read_record().await.unwrap();
    let revoked = found
        .as_ref()
        .unwrap()
        .sealed_journal()
        .unwrap()
        .with_revoked(&kid, world.clock.now().wall)
        .unwrap();
    assert!(store.write_record(found.as_ref(), &revoked).await.unwrap());
    for replica in &replicas {
        replica.sync_journal().await.unwrap();
        assert!(
            !String::from_utf8(jwks(replica).unwrap())
                .unwrap()
                .contains(&kid)
        );
        assert_eq!(replica.key_activation(&kid), KeyActivation::Revoked);
        replica.publish_signing_key(&kid).await;
        assert_eq!(
            replica.key_activation(&kid),
            KeyActivation::Revoked,
            "the hub still signs with it"
        );
    }
    let next = world.replica(Some(state.path()));
    next.restore_journal();
    next.refresh().await.unwrap();
    assert!(
        !String::from_utf8(jwks(&next).unwrap())
            .unwrap()
            .contains(&kid),
        "the state directory knows of it too"
    );
}
