//! Moves a target's certificate to another CA, in the order of docs/concepts/deliveries.md, while
//! Flux keeps
//! applying.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::{
    Attempts, GitSource, KubeConfigRef, KustomizationSpec, until_ready, until_said,
};
use keyferry_integration::git_server::Repository;
use keyferry_integration::pki::TestCa;
use keyferry_integration::relay::Relay;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{
    access_path, has_condition, renew_with_lifetime, secret_path, until_gone,
};
use keyferry_integration::world::put_secret;
use serde_json::Value;

use super::stage::{
    Stage, access_to, config_map, config_map_path, declare, until_applied, user, who_applied,
};

const TARGET: &str = "target-renewed";
const BY_SECRET: &str = "kept-by-secret";
const BY_CONFIG_MAP: &str = "kept-by-config-map";
/// From the commit to the end of the reconcile. Flux checks for commits every five seconds.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
/// Keyferry reads the CA Secret at once on request, and every half minute.
const DELIVERED_WITHIN: Duration = Duration::from_secs(45);

pub(crate) async fn and_a_new_token_cost_no_reconcile(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.hub;
    let allowed = [
        ("tenant-a", "KubeConfigSecret"),
        ("tenant-b", "FluxConfigMap"),
    ];
    let target = stage
        .target_of(TARGET, &allowed.map(|(tenant, _)| tenant))
        .await?;
    let relay = Relay::in_front_of(target.port())?;
    declare(hub, &target, &relay.url(), &allowed).await?;
    let folder = tempfile::tempdir()?;
    let (old, next) = (
        target.ca_pem(),
        TestCa::create("the next CA", folder.path())?,
    );
    let ways = [
        Way::start(&stage, "tenant-a", KubeConfigRef::Secret(BY_SECRET)).await?,
        Way::start(&stage, "tenant-b", KubeConfigRef::ConfigMap(BY_CONFIG_MAP)).await?,
    ];
    let road = Road {
        stage: &stage,
        target: &target,
        relay: &relay,
        ways: &ways,
    };
    road.carries("before", old).await?;

    // First, both CAs are trusted wherever the target's CA was delivered.
    road.trusts(&[old, next.cert_pem()]).await?;
    road.carries("both trusted", old).await?;

    let first = token_id(hub).await?;
    renew_with_lifetime(hub, "tenant-a", BY_SECRET, BY_SECRET, "2h").await?;
    let second = until_other_token(hub, &first).await?;
    road.carries("another token", old).await?;
    let used = tokens_of(&target, BY_SECRET)?;
    assert!(
        used.contains(&first) && used.contains(&second),
        "Flux came with the first and with the second token"
    );

    // Then the target presents a certificate of the next CA.
    assert!(target.is_trusted_by(old).await? && !target.is_trusted_by(next.cert_pem()).await?);
    let asked = Instant::now();
    target.exchange_serving_certificate(&next).await?;
    eprintln!(
        "a running kube-apiserver showed its new certificate after {:.1?}",
        asked.elapsed()
    );
    assert!(target.is_trusted_by(next.cert_pem()).await? && !target.is_trusted_by(old).await?);
    road.carries("another certificate", next.cert_pem()).await?;

    // Last, nothing trusts the old CA any more.
    road.trusts(&[next.cert_pem()]).await?;
    road.carries("the next alone", next.cert_pem()).await?;
    for way in &ways {
        assert_eq!(
            who_applied(&target, way.name())?,
            [user(way.spec.namespace)]
        );
    }

    // The test would notice another order: with the old CA alone, both fail at once, and they
    // recover with the next CA.
    road.trusts(&[old]).await?;
    for way in &ways {
        until_said(
            hub,
            &way.spec.path(),
            "certificate signed by unknown authority",
        )
        .await?;
        // The watch reports the same change a moment later.
        let seen = Instant::now();
        while way.attempts.succeeded().is_ok() && seen.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            way.attempts.succeeded().is_err() && !way.failures(&stage).is_empty(),
            "{} is not watched",
            way.name()
        );
    }
    road.trusts(&[next.cert_pem()]).await?;
    for way in &ways {
        until_ready(hub, &way.spec.path()).await?;
        hub.admin().delete(&way.spec.path()).await?;
        until_gone(hub.admin(), &way.spec.path()).await?;
    }
    Ok(())
}

/// A Kustomization, and the path by which it reaches the target.
struct Way {
    spec: KustomizationSpec<'static>,
    repository: Repository,
    attempts: Attempts,
    /// The number of reconciles that had failed when the watch began.
    failed_before: usize,
}

impl Way {
    /// Creates the Kustomization and waits until it is ready. Every reconcile from then on is
    /// watched.
    async fn start(
        stage: &Stage,
        namespace: &'static str,
        kube_config: KubeConfigRef<'static>,
    ) -> Result<Self, TestError> {
        let (name, delivery) = match kube_config {
            KubeConfigRef::Secret(name) => (name, "KubeConfigSecret"),
            KubeConfigRef::ConfigMap(name) => (name, "FluxConfigMap"),
        };
        let hub = &stage.hub;
        access_to(TARGET, hub, namespace, name, delivery).await?;
        let (repository, commit) = stage.repository_of(name).await?;
        GitSource {
            namespace,
            name,
            url: repository.url(),
        }
        .apply(hub.admin())
        .await?;
        let spec = KustomizationSpec {
            namespace,
            name,
            source: name,
            path: "./apps",
            kube_config,
            impersonating: None,
        };
        spec.apply(hub.admin()).await?;
        until_applied(hub, &spec, &commit).await?;
        let attempts = Attempts::watch(hub, namespace, name).await?;
        Ok(Self {
            spec,
            repository,
            attempts,
            failed_before: stage.failures_of(name).len(),
        })
    }

    /// Flux's messages about reconciles that failed since the watch began.
    fn failures(&self, stage: &Stage) -> Vec<String> {
        stage.failures_of(self.name()).split_off(self.failed_before)
    }

    fn name(&self) -> &'static str {
        self.spec.name
    }

    /// The CA certificates in the delivered object.
    async fn authorities(&self, hub: &ControlPlane) -> Result<BTreeSet<String>, TestError> {
        let (namespace, name) = (self.spec.namespace, self.name());
        Ok(match self.spec.kube_config {
            KubeConfigRef::Secret(_) => {
                let config = kubeconfig(&hub.admin().get(&secret_path(namespace, name)).await?)?;
                let data = config["clusters"][0]["cluster"]["certificate-authority-data"]
                    .as_str()
                    .ok_or("no CA in the kubeconfig")?;
                of_base64(data)?
            }
            KubeConfigRef::ConfigMap(_) => {
                let object = hub
                    .admin()
                    .get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}"))
                    .await?;
                certificates(
                    object["data"]["ca.crt"]
                        .as_str()
                        .ok_or("no CA in the ConfigMap")?,
                )
            }
        })
    }
}

/// The whole path from commits to the target.
struct Road<'a> {
    stage: &'a Stage,
    target: &'a ControlPlane,
    relay: &'a Relay,
    ways: &'a [Way; 2],
}

impl Road<'_> {
    /// Puts these CAs into the Secret that the TargetCluster names. Waits, as an operator does,
    /// until the status of each access has them and no others, and checks that the delivered
    /// objects have them too.
    async fn trusts(&self, authorities: &[&str]) -> TestResult {
        let (hub, bundle) = (&self.stage.hub, authorities.concat());
        put_secret(hub, TARGET, &[("ca.crt", &bundle)]).await?;
        self.stage.broker.process().hang_up().await?;
        let (wanted, limit) = (certificates(&bundle), Instant::now() + DELIVERED_WITHIN);
        for way in self.ways {
            loop {
                let access = hub
                    .admin()
                    .get(&access_path(way.spec.namespace, way.name()))
                    .await?;
                let data = access["status"]["cluster"]["certificate-authority-data"]
                    .as_str()
                    .unwrap_or_default();
                if has_condition(&access, "Delivered", "True", "Ready")
                    && of_base64(data)? == wanted
                {
                    break;
                }
                if Instant::now() > limit {
                    return Err(format!(
                        "{} is not there after {DELIVERED_WITHIN:?}: {}",
                        way.name(),
                        access["status"]
                    )
                    .into());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(way.authorities(hub).await?, wanted, "{}", way.name());
        }
        Ok(())
    }

    /// Checks that a commit on each path arrives at the target in time, on a connection that saw
    /// this CA's certificate. A further reconcile must follow, and none may have failed since the
    /// beginning.
    async fn carries(&self, text: &str, authority: &str) -> TestResult {
        let connections = self.relay.accepted();
        tokio::time::timeout(ARRIVES_WITHIN, self.relay.renew()).await?;
        try_join_all(
            self.ways
                .iter()
                .map(|way| self.carries_on(way, text, authority)),
        )
        .await?;
        assert!(
            self.relay.accepted() > connections,
            "{text}: no client made a new handshake"
        );
        Ok(())
    }

    async fn carries_on(&self, way: &Way, text: &str, authority: &str) -> TestResult {
        let reconciled = way.attempts.succeeded()?;
        let commit = way
            .repository
            .commit(&[("apps/config.yaml", &config_map(way.name(), text))])
            .await?;
        let arrives = until_applied(&self.stage.hub, &way.spec, &commit);
        tokio::time::timeout(ARRIVES_WITHIN, arrives)
            .await
            .map_err(|_| format!("{}: {text:?} is late", way.name()))??;
        let at_target = self
            .target
            .admin_trusting(authority)?
            .get(&config_map_path(way.name()))
            .await?;
        assert_eq!(at_target["data"]["text"], text, "{}", way.name());
        let limit = Instant::now() + ARRIVES_WITHIN;
        while way.attempts.succeeded()? < reconciled + 2 {
            assert!(
                Instant::now() < limit,
                "{} is not reconciled again",
                way.name()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let failures = way.failures(self.stage);
        assert!(failures.is_empty(), "{text}: {failures:?}");
        Ok(())
    }
}

/// The certificates of a bundle, however their lines are broken.
fn certificates(pem: &str) -> BTreeSet<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    blocks
        .map(|block| {
            block
                .split("-----END")
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect()
        })
        .collect()
}

/// The certificates in `certificate-authority-data`.
fn of_base64(data: &str) -> Result<BTreeSet<String>, TestError> {
    Ok(certificates(&String::from_utf8(STANDARD.decode(data)?)?))
}

fn kubeconfig(secret: &Value) -> Result<Value, TestError> {
    let text = STANDARD.decode(
        secret["data"]["value"]
            .as_str()
            .ok_or("no kubeconfig in the Secret")?,
    )?;
    Ok(serde_saphyr::from_str(&String::from_utf8(text)?)?)
}

async fn token_id(hub: &ControlPlane) -> Result<String, TestError> {
    let secret = hub.admin().get(&secret_path("tenant-a", BY_SECRET)).await?;
    let id = secret["metadata"]["annotations"]["keyferry.dev/token-id"].as_str();
    Ok(id
        .filter(|id| !id.is_empty())
        .ok_or("the Secret names no token")?
        .to_owned())
}

/// Waits for another token. The Secret must exist all the time, as Flux needs it.
async fn until_other_token(hub: &ControlPlane, before: &str) -> Result<String, TestError> {
    let limit = Instant::now() + DELIVERED_WITHIN;
    loop {
        let now = token_id(hub).await?;
        if now != before {
            return Ok(now);
        }
        if Instant::now() > limit {
            return Err(
                format!("the Secret holds the same token after {DELIVERED_WITHIN:?}").into(),
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The tokens with which this ConfigMap was applied, by the target's own audit log.
fn tokens_of(target: &ControlPlane, name: &str) -> Result<BTreeSet<String>, TestError> {
    let events = target.audit_events()?;
    let of_it = events
        .iter()
        .filter(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name);
    let id = |event: &Value| {
        event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]
            .as_str()
            .map(str::to_owned)
    };
    Ok(of_it
        .filter_map(id)
        .filter_map(|id| id.strip_prefix("JTI=").map(str::to_owned))
        .collect())
}
