//! The leader is killed while it writes the keys of a managed issuer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keyferry_integration::chaos_proxy::Rule;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::OnHub;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::stage::{MOMENTS, Stage};
use crate::deliveries::written::decoded;

const SECRETS: &str = "/api/v1/namespaces/keyferry-system/secrets";
/// Keyferry reads the key sets every eight seconds.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);
/// A key that was published for a minute may sign, and a restart begins that minute again.
const ROTATED_WITHIN: Duration = Duration::from_secs(300);

pub(super) async fn killed_at_the_first_write_of_a_managed_key_there_is_one_key(
    stage: Arc<Stage>,
) -> TestResult {
    for (number, moment) in MOMENTS.into_iter().enumerate() {
        let keys = ManagedKeys::of(&stage, format!("keyed-{number}"));
        let mut stored_at_kill = None;
        let armed = stage.kill_at(moment, |fault| Rule::on(Method::POST, SECRETS, fault))?;
        let check = async {
            stored_at_kill = keys.stored().await?;
            Ok::<(), TestError>(())
        };
        let request = stage.survive(armed, keys.declare(), check).await?;
        assert!(request.is_some(), "no key set was created");
        let stored = keys.until_published().await?;
        if let Some(stored_at_kill) = stored_at_kill {
            assert_eq!(kids(&stored), kids(&stored_at_kill), "other keys");
        }
        keys.withdraw().await?;
    }
    Ok(())
}

pub(super) async fn killed_at_the_rotation_of_a_managed_key_it_rotates_once(
    stage: Arc<Stage>,
) -> TestResult {
    let all = ["rotated-0", "rotated-1"].map(|target| ManagedKeys::of(&stage, target.to_owned()));
    allow_rotation(&stage.world, &all).await?;
    for keys in &all {
        keys.declare().await?;
    }
    for (keys, moment) in all.iter().zip(MOMENTS) {
        let before = keys.until_published().await?;
        let path = keys.secret_path();
        let armed = stage.kill_at(moment, |fault| Rule::on(Method::PUT, &path, fault))?;
        keys.request_rotation().await?;
        let flow = keys.until_rotated(&before);
        let request = stage.survive(armed, flow, async { Ok(()) }).await?;
        eprintln!("{moment:?}: {request:?}");
        assert!(request.is_some(), "no key set was replaced");
        let rotated = keys.stored().await?.ok_or("no key set")?;
        assert!(
            !kids(&before).contains(&kid(&rotated, "next")),
            "{moment:?}"
        );
        let previous = rotated["previous"].as_array().ok_or("no previous keys")?;
        let earlier: Vec<&Value> = previous
            .iter()
            .filter(|key| key["kid"] == before["current"]["kid"])
            .collect();
        assert_eq!(earlier.len(), 1, "the earlier key is kept once");
        assert!(previous.iter().all(|key| key["privateKey"].is_null()));
        // The new leader has read the set twice, and has not rotated it for the same request.
        let reads = stage.proxy.count(&Method::GET, &path);
        until("two more readings", WRITTEN_WITHIN, || {
            std::future::ready(Ok(stage.proxy.count(&Method::GET, &path) >= reads + 2))
        })
        .await?;
        assert_eq!(keys.stored().await?, Some(rotated), "rotated again");
    }
    for keys in &all {
        keys.withdraw().await?;
    }
    Ok(())
}

/// The keys of a target that has a managed issuer.
struct ManagedKeys<'s> {
    world: &'s OnHub,
    target: String,
}

impl<'s> ManagedKeys<'s> {
    fn of(stage: &'s Stage, target: String) -> Self {
        Self {
            world: &stage.world,
            target,
        }
    }

    fn secret_path(&self) -> String {
        format!("{SECRETS}/keyferry-issuer-{}", self.target)
    }

    /// Declares the target, and waits until its keys are stored.
    async fn declare(&self) -> TestResult {
        let mut spec = self.world.target_spec(0);
        spec["audience"] = json!(format!("https://{}.keyferry.test", self.target));
        spec["issuer"] = json!("Keyferry");
        self.world.put_target(&self.target, &spec).await?;
        until("keys are stored", WRITTEN_WITHIN, || async {
            Ok(self.stored().await?.is_some())
        })
        .await
    }

    async fn withdraw(&self) -> TestResult {
        let hub = self.world.hub.admin();
        let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{}", self.target);
        hub.delete(&path).await?;
        Ok(())
    }

    /// The stored key set, if there is one.
    async fn stored(&self) -> Result<Option<Value>, TestError> {
        match self.world.hub.admin().get(&self.secret_path()).await {
            Ok(secret) => Ok(Some(serde_json::from_str(&decoded(&secret, "keys.json")?)?)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the stored keys, and no others, are published. Returns the stored set.
    async fn until_published(&self) -> Result<Value, TestError> {
        let broker = &self.world.broker;
        let url = format!(
            "{}/issuers/{}/openid/v1/jwks",
            broker.discovery_url(),
            self.target
        );
        let stored = self.stored().await?.ok_or("no key set is stored")?;
        until("the stored keys are published", WRITTEN_WITHIN, || async {
            // The server may be about to start.
            let Ok(answer) = broker.http().get(&url).send().await else {
                return Ok(false);
            };
            let document: Value = answer.json().await.unwrap_or_default();
            let published = document["keys"].as_array().cloned().unwrap_or_default();
            let published: BTreeSet<String> = published.iter().map(kid_of).collect();
            Ok(published == kids(&stored))
        })
        .await?;
        Ok(stored)
    }

    async fn request_rotation(&self) -> TestResult {
        let hub = self.world.hub.admin_kubeconfig().display().to_string();
        let target = &*self.target;
        let arguments = ["keys", "rotate", "--target", target, "--kubeconfig", &hub];
        let answer = self.world.ground.binary().run(&arguments, &[]).await?;
        assert!(answer.status.success(), "{answer:?}");
        Ok(())
    }

    /// Waits until the next key of an earlier set is the current one.
    async fn until_rotated(&self, before: &Value) -> TestResult {
        until("the next key signs", ROTATED_WITHIN, || async {
            let now = self.stored().await?.unwrap_or_default();
            Ok(now["current"]["kid"] == before["next"]["kid"])
        })
        .await
    }
}

/// The kids of the current and the next key.
fn kids(set: &Value) -> BTreeSet<String> {
    ["current", "next"].map(|role| kid(set, role)).into()
}

fn kid(set: &Value, role: &str) -> String {
    kid_of(&set[role])
}

fn kid_of(key: &Value) -> String {
    key["kid"].as_str().unwrap_or_default().to_owned()
}

/// Grants the shipped right to replace these key sets.
async fn allow_rotation(world: &OnHub, all: &[ManagedKeys<'_>]) -> TestResult {
    let text = std::fs::read_to_string(shipped("examples/in-cluster/managed-issuers.yaml"))?;
    let names: Vec<String> = all
        .iter()
        .map(|keys| format!("keyferry-issuer-{}", keys.target))
        .collect();
    let file = world.ground.folder().join("managed-issuers.yaml");
    std::fs::write(
        &file,
        text.replace("keyferry-issuer-prod", &names.join(", ")),
    )?;
    apply_manifests(&world.hub, &[&file]).await?;
    Ok(())
}
