//! The hub signs with a new key while Flux applies by `configMapRef`. Flux requests its own tokens,
//! so Keyferry cannot hold a new key back from it as it does from its own callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, TokenSigning};
use keyferry_integration::flux::{
    FluxSpec, GitSource, KubeConfigRef, KustomizationSpec, condition,
};
use keyferry_integration::git_server::Repository;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{TestError, TestResult};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::stage::{Stage, access_to, config_map, config_map_path, declare};

const TENANT: &str = "tenant-b";
const SHARD: &str = "fresh";
/// What docs/guides/flux.md promises: until the key is published, and until targets have read it.
const BOUND: Duration = Duration::from_secs(60 + 60 - 30);
/// Flux retries every 2 s and checks for commits every 5 s, and an attempt takes a moment.
const OF_FLUX: Duration = Duration::from_secs(15);

/// A Kustomization of one target, and what its status said.
struct Way {
    name: String,
    repository: Repository,
    /// Each message with which it was not Ready, once.
    failures: Arc<Mutex<Vec<String>>>,
}

pub(crate) async fn costs_a_bounded_time(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.hub;
    let newest = stage.target_of("target-rotated", &[TENANT]).await?;
    let url = newest.url();
    declare(hub, &newest, &url, &[(TENANT, "FluxConfigMap")]).await?;
    // Without its cache, Flux uses a new token for each call: as if every token expired now.
    let uncached = FluxSpec {
        further: vec!["--token-cache-max-size=0".to_owned()],
        ..FluxSpec::with_workload_identity()
    };
    let _shard = stage.shard(SHARD, &uncached).await?;
    let mut watching = JoinSet::new();
    let (mut fresh, mut cached) = (Vec::new(), Vec::new());
    for target in [&stage.targets[1], &newest] {
        fresh.push(Way::start(&stage, target, Some(SHARD), &mut watching).await?);
        cached.push(Way::start(&stage, target, None, &mut watching).await?);
    }
    let planes = [&stage.targets[1], &newest];
    for (plane, way) in planes.iter().zip(&fresh).chain(planes.iter().zip(&cached)) {
        way.until_carried(plane, "first", Instant::now(), Duration::from_secs(60))
            .await?;
        way.failures.lock().clear();
    }

    // Nobody published the key.
    let signing = hub.signing().await;
    let second = hub.create_signing_key(SigningKeyKind::Rsa2048, "second")?;
    hub.set_signing(TokenSigning {
        signing_key: second,
        further_keys: vec![signing.signing_key.clone()],
        issuers: signing.issuers.clone(),
    })
    .await;
    hub.restart().await?;
    let from = Instant::now();
    for way in fresh.iter().chain(&cached) {
        way.commit("second").await?;
    }
    for (plane, way) in planes.iter().zip(&cached) {
        let took = way
            .until_carried(plane, "second", from, OF_FLUX * 2)
            .await?;
        eprintln!("{}: a commit took {took:.1?} with a cached token", way.name);
    }
    let mut lost = Vec::new();
    for (plane, way) in planes.iter().zip(&fresh) {
        lost.push(
            way.until_carried(plane, "second", from, BOUND + OF_FLUX)
                .await?,
        );
    }
    let refused = |ways: &[Way]| ways.iter().map(Way::refused).sum::<usize>();
    eprintln!(
        "unpublished key: without a cached token a commit took {lost:.1?}; refused with 401: {}, \
         with a cached token: {}",
        refused(&fresh),
        refused(&cached)
    );
    assert!(refused(&fresh) > 0, "the rotation costs nothing to measure");
    assert_eq!(refused(&cached), 0);
    Ok(())
}

impl Way {
    async fn start(
        stage: &Stage,
        target: &ControlPlane,
        shard: Option<&str>,
        watching: &mut JoinSet<()>,
    ) -> Result<Self, TestError> {
        let (hub, target) = (&stage.hub, target.name());
        let name = format!("{}-{target}", shard.unwrap_or("cached"));
        let (repository, _) = stage.repository_of(&name).await?;
        access_to(target, hub, TENANT, &name, "FluxConfigMap").await?;
        let source = GitSource {
            namespace: TENANT,
            name: &name,
            url: repository.url(),
        };
        source.apply(hub.admin()).await?;
        let spec = KustomizationSpec {
            namespace: TENANT,
            name: &name,
            source: &name,
            path: "./apps",
            kube_config: KubeConfigRef::ConfigMap(&name),
            impersonating: None,
        };
        spec.apply(hub.admin()).await?;
        if let Some(shard) = shard {
            let label = json!({ "metadata": { "labels": { "sharding.fluxcd.io/key": shard } } });
            hub.admin().patch(&spec.path(), &label).await?;
        }
        let failures = Arc::new(Mutex::new(Vec::new()));
        let (seen, hub, path) = (Arc::clone(&failures), Arc::clone(hub), spec.path());
        watching.spawn(async move {
            loop {
                // The hub restarts meanwhile.
                if let Ok(object) = hub.admin().get(&path).await {
                    note(&object, &seen);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Ok(Self {
            name,
            repository,
            failures,
        })
    }

    async fn commit(&self, text: &str) -> Result<(), TestError> {
        let file = config_map(&self.name, text);
        self.repository
            .commit(&[("apps/config.yaml", &file)])
            .await?;
        Ok(())
    }

    /// Waits until a text is at the target; returns how long it took.
    async fn until_carried(
        &self,
        target: &ControlPlane,
        text: &str,
        from: Instant,
        within: Duration,
    ) -> Result<Duration, TestError> {
        loop {
            let path = config_map_path(&self.name);
            let found = target.admin().get(&path).await;
            if found.is_ok_and(|object| object["data"]["text"] == text) {
                return Ok(from.elapsed());
            }
            if from.elapsed() > within {
                let failures = self.failures.lock().clone();
                let name = &self.name;
                return Err(format!("{name} lacks {text} after {within:?}: {failures:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How many different messages said that the target refused the token.
    fn refused(&self) -> usize {
        let failures = self.failures.lock();
        let unauthorized = |said: &&String| said.contains("Unauthorized");
        failures.iter().filter(unauthorized).count()
    }
}

fn note(object: &Value, failures: &Mutex<Vec<String>>) {
    let ready = condition(object, "Ready");
    let at = ready["lastTransitionTime"].as_str().unwrap_or_default();
    let said = format!("{at} {}", ready["message"].as_str().unwrap_or_default());
    let mut failures = failures.lock();
    if ready["status"] == "False" && !failures.contains(&said) {
        failures.push(said);
    }
}
