#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::collections::BTreeMap;
use std::sync::Mutex;

use futures::future::BoxFuture;
use keyferry_api::config;
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Collection, ObjectStore};
use keyferry_issuer::testing::{FakeClock, FakeObjects, SmallWorld, account_of};
use keyferry_platform::policy_store::PolicyWriter;

use super::*;

const OBJECT: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";
const TARGET: &str = "https://prod.example.test";

/// The test result of each audience; other tests never end.
#[derive(Default)]
struct Trials(Mutex<BTreeMap<String, Result<(), Reason>>>);

impl Trials {
    fn set(&self, audience: &str, outcome: Result<(), Reason>) {
        self.0.lock().unwrap().insert(audience.to_owned(), outcome);
    }
}

impl AudienceTrial for Trials {
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>> {
        let outcome = self.0.lock().unwrap().get(audience.as_str()).copied();
        Box::pin(async move {
            match outcome {
                Some(outcome) => outcome,
                None => std::future::pending().await,
            }
        })
    }
}

struct Bench {
    world: SmallWorld,
    objects: Arc<FakeObjects>,
    trials: Arc<Trials>,
    leadership: LeadershipWriter,
    clock: Arc<FakeClock>,
    store: Arc<ObjectStore>,
    unlisted: UnlistedAudiences,
    _policy: PolicyWriter,
    pairing: AudiencePairing,
}

impl Bench {
    async fn start(audiences: &[&str]) -> Self {
        let (world, objects, trials) = (
            SmallWorld::start().await,
            Arc::<FakeObjects>::default(),
            Arc::<Trials>::default(),
        );
        let (leadership, clock, unlisted) = (
            LeadershipWriter::default(),
            FakeClock::start(),
            UnlistedAudiences::default(),
        );
        leadership.set(Some(Duration::from_secs(1_000_000)));
        let server = config::read(keyferry_issuer::testing::CONFIGURATION)
            .unwrap()
            .server;
        let (store, policy) = (
            Arc::new(ObjectStore::new(server)),
            PolicyWriter::new(world.policy.clone()),
        );
        let port = Arc::<FakeObjects>::clone(&objects);
        let context = Context {
            policy: policy.reader(),
            store: Arc::clone(&store),
            live: Arc::clone(&world.live),
            published: world.publisher.reader(),
            leadership: leadership.reader(),
            ..Context::empty(Arc::<FakeClock>::clone(&clock), port)
        };
        let pairing = AudiencePairing::new(
            Arc::new(context),
            Arc::<Trials>::clone(&trials),
            Audience::new("keyferry.dev").unwrap(),
            account_of("keyferry-system", "keyferry-canary"),
            unlisted.clone(),
        );
        let bench = Self {
            world,
            objects,
            trials,
            leadership,
            clock,
            store,
            unlisted,
            _policy: policy,
            pairing,
        };
        bench.has(audiences, None);
        bench
    }

    /// Gives the hub one target for each of these audiences, and no other.
    fn has(&self, audiences: &[&str], deleting: Option<&str>) {
        let target = |(number, audience): (usize, &&str)| {
            let mut metadata = json!({
                "name": format!("t{number}"), "uid": format!("u{number}"), "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            });
            if deleting == Some(audience) {
                metadata["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
                metadata["finalizers"] = json!(["example.com/stays"]);
            }
            json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata,
                "spec": { "address": "https://prod.example.test", "audience": audience },
            })
        };
        let all: Vec<Value> = audiences.iter().enumerate().map(target).collect();
        self.store.list(Collection::TargetClusters, &all);
    }

    /// Reconciles until all tests have taken effect, and returns what the object lists.
    async fn listed_audiences(&mut self) -> Vec<String> {
        self.pairing.reconcile_pairing().await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.pairing.reconcile_pairing().await;
        self.stored()
    }

    fn stored(&self) -> Vec<String> {
        let object = self.objects.object(OBJECT).unwrap_or_default();
        listed_audiences(&object)
            .into_iter()
            .filter(|audience| audience != pairing::UNUSABLE_AUDIENCE)
            .collect()
    }
}

#[tokio::test]
async fn what_the_hub_itself_uses_is_never_listed() {
    let issuer = keyferry_issuer::testing::ISSUER;
    let mut bench = Bench::start(&[
        TARGET,
        "keyferry.dev",
        issuer,
        "api",
        "keyferry.dev/inert",
        "late",
    ])
    .await;
    for audience in [TARGET, "keyferry.dev", issuer, "keyferry.dev/inert"] {
        bench.trials.set(audience, Ok(()));
    }
    bench.trials.set("api", Err(Reason::AudienceIsHubs));
    assert_eq!(
        bench.listed_audiences().await,
        [TARGET],
        "and what has not been tested is not listed yet"
    );
    let why = |audience: &str| {
        bench
            .unlisted
            .reason_for(&Audience::new(audience).unwrap())
            .unwrap_or_default()
    };
    assert!(
        why("api").contains("the hub itself accepts it")
            && why(issuer).contains("issuer")
            && why("late").is_empty()
    );
    assert!(
        bench.objects.object(OBJECT).unwrap()["pairs"][TARGET]
            .to_string()
            .contains("tenant-a/reconciler")
    );
}

#[tokio::test]
async fn an_audience_that_becomes_the_hubs_is_let_go() {
    let mut bench = Bench::start(&[TARGET]).await;
    bench.trials.set(TARGET, Ok(()));
    assert_eq!(bench.listed_audiences().await, [TARGET]);
    bench.trials.set(TARGET, Err(Reason::AudienceUnchecked));
    bench.clock.advance(TRIAL_INTERVAL);
    assert_eq!(
        bench.listed_audiences().await,
        [TARGET],
        "a try that decides nothing opens nothing"
    );
    bench.trials.set(TARGET, Err(Reason::AudienceIsHubs));
    bench.clock.advance(TRIAL_RETRY_INTERVAL);
    assert_eq!(bench.listed_audiences().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_new_leader_keeps_what_was_listed_until_it_knows_better() {
    let mut bench = Bench::start(&[TARGET, "api", "keyferry.dev"]).await;
    let granted =
        json!({ TARGET: ["tenant-a/reconciler"], "api": [], "keyferry.dev": [], "gone": [] });
    bench.objects.put_foreign(
        OBJECT,
        json!({ "metadata": { "name": "keyferry" }, "pairs": granted }),
    );
    assert_eq!(
        bench.listed_audiences().await,
        ["api", TARGET],
        "neither what is Keyferry's own nor what no target has"
    );
    bench.trials.set("api", Err(Reason::AudienceIsHubs));
    bench.leadership.set(None);
    bench.pairing.reconcile_pairing().await;
    bench.leadership.set(Some(Duration::from_secs(1_000_000)));
    bench.clock.advance(TRIAL_INTERVAL);
    assert_eq!(bench.listed_audiences().await, [TARGET]);
}

#[tokio::test]
async fn without_the_canary_nothing_new_is_listed_and_that_is_told() {
    let mut bench = Bench::start(&[TARGET]).await;
    bench.trials.set(TARGET, Err(Reason::AudienceUnchecked));
    assert_eq!(bench.listed_audiences().await, Vec::<String>::new());
    let why = bench
        .unlisted
        .reason_for(&Audience::new(TARGET).unwrap())
        .unwrap();
    assert!(why.contains("AudienceUnchecked"), "{why}");
    bench.trials.set(TARGET, Ok(()));
    bench.clock.advance(TRIAL_RETRY_INTERVAL);
    assert_eq!(bench.listed_audiences().await, [TARGET]);
    assert_eq!(
        bench.unlisted.reason_for(&Audience::new(TARGET).unwrap()),
        None
    );
}

#[tokio::test]
async fn a_target_that_a_foreign_finalizer_keeps_holds_no_audience() {
    let mut bench = Bench::start(&[TARGET]).await;
    bench.trials.set(TARGET, Ok(()));
    assert_eq!(bench.listed_audiences().await, [TARGET]);
    bench.has(&[TARGET], Some(TARGET));
    assert_eq!(bench.listed_audiences().await, Vec::<String>::new());
    assert!(bench.world.live.is_complete() && !LiveObjects::default().is_complete());
}
