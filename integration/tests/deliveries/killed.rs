//! Kills Keyferry without notice (SIGKILL) while it delivers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use keyferry_integration::world::{Broker, BrokerSpec};
use serde_json::{Value, json};

use super::lease::{free, put_to_sleep, wake};
use super::tenant::{EVERY_SHAPE, Tenant};
use super::written::decoded;

const ACCESSES: usize = 30;

pub(crate) async fn killed_again_and_again_it_leaves_nothing_half_done(
    world: Arc<OnHub>,
) -> TestResult {
    put_to_sleep(&world).await?;
    let outcome = kill_and_look(&world).await;
    wake(&world).await?;
    outcome
}

async fn kill_and_look(world: &Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(world, "killed", &EVERY_SHAPE).await?;
    for number in 0..ACCESSES {
        let spec =
            json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "probe": "Off" });
        tenant.put_access_with(&format!("a{number}"), spec).await?;
    }
    // Delay each call about the tenant, so that every kill interrupts many of them.
    let proxy = ChaosProxy::in_front_of(&world.hub).await?;
    for method in [Method::GET, Method::POST, Method::PATCH] {
        proxy.add(Rule::on(
            method,
            "/namespaces/killed/",
            Fault::Delay(Duration::from_millis(250)),
        ));
    }
    let spec = BrokerSpec::of_hub("killed", &world.hub)
        .with_server_lines("objects: CustomResources\n")
        .through(&proxy.url());
    let mut broker = world.ground.start_installed(&world.hub, spec).await?;
    let mut found = Vec::new();
    // Kill it after a few finalizers, then with some Secrets written but not their statuses, and
    // close to the end.
    for (kill, wanted) in [1_usize, 9, 20].into_iter().enumerate() {
        let there = until_written(&tenant, wanted).await?;
        let ready = ready(&tenant).await?;
        broker = broker.killed_and_started(world.ground.binary()).await?;
        found.push((kill, there, ready));
        free(world).await?;
    }
    let limit = Instant::now() + Duration::from_secs(120);
    while ready(&tenant).await? < ACCESSES {
        assert!(
            Instant::now() < limit,
            "{} of {ACCESSES} are ready; at the kills: {found:?}",
            ready(&tenant).await?
        );
        whole(&tenant).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    eprintln!("(kill, Secrets, ready) at each kill: {found:?}");
    every_token_is_good_and_recorded(&tenant, &broker).await?;
    broker.into_process().stop().await?;
    Ok(())
}

async fn secrets(tenant: &Tenant) -> Result<Vec<Value>, TestError> {
    let list = tenant.world.hub.admin().get(&tenant.secrets()).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Checks that every Secret is complete at any time, and counts them.
pub(crate) async fn whole(tenant: &Tenant) -> Result<usize, TestError> {
    let secrets = secrets(tenant).await?;
    for secret in &secrets {
        let text = decoded(secret, "value")?;
        let complete = token_in(&text).is_some()
            && text.contains(&tenant.world.targets[0].url())
            && text.contains("current-context");
        assert!(complete, "a partial Secret: {}", secret["metadata"]);
        for key in ["expires-at", "renew-at", "token-id", "digest"] {
            assert!(
                secret["metadata"]["annotations"][format!("keyferry.dev/{key}")].is_string(),
                "{key}: {}",
                secret["metadata"]
            );
        }
    }
    Ok(secrets.len())
}

/// The token of a kubeconfig: three parts of base64url.
fn token_in(kubeconfig: &str) -> Option<&str> {
    kubeconfig
        .split(['"', '\'', ' ', '\n', ','])
        .find(|word| word.starts_with("eyJ") && word.matches('.').count() == 2)
}

async fn until_written(tenant: &Tenant, wanted: usize) -> Result<usize, TestError> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let there = whole(tenant).await?;
        if there >= wanted {
            return Ok(there);
        }
        if Instant::now() > limit {
            return Err(format!("{there} Secrets after 60 s, {wanted} are wanted").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn accesses(tenant: &Tenant) -> Result<Vec<Value>, TestError> {
    let path = format!(
        "/apis/keyferry.dev/v1alpha1/namespaces/{}/targetaccesses",
        tenant.name
    );
    Ok(tenant.world.hub.admin().get(&path).await?["items"]
        .as_array()
        .cloned()
        .unwrap_or_default())
}

async fn ready(tenant: &Tenant) -> Result<usize, TestError> {
    let is_ready = |access: &&Value| {
        keyferry_integration::world::on_hub::has_condition(access, "Ready", "True", "Ready")
    };
    Ok(accesses(tenant).await?.iter().filter(is_ready).count())
}

async fn every_token_is_good_and_recorded(tenant: &Tenant, broker: &Broker) -> TestResult {
    let (secrets, accesses) = (secrets(tenant).await?, accesses(tenant).await?);
    assert_eq!(secrets.len(), ACCESSES);
    let recorded = recorded_tokens(&broker.audit()?);
    let mut owners = BTreeSet::new();
    for secret in &secrets {
        let owner = owner_of(secret)?;
        assert!(
            owners.insert(owner.to_owned()),
            "two Secrets of one access: {}",
            secret["metadata"]
        );
        let access = accesses
            .iter()
            .find(|access| access["metadata"]["uid"] == owner)
            .ok_or("its owner is none of the accesses")?;
        check_secret(tenant, secret, access, &recorded).await?;
    }
    Ok(())
}

fn owner_of(secret: &Value) -> Result<&str, TestError> {
    let owner = secret["metadata"]["ownerReferences"][0]["uid"].as_str();
    owner.ok_or_else(|| format!("no owner: {}", secret["metadata"]).into())
}

/// The IDs of all tokens in an audit log.
pub(crate) fn recorded_tokens(audit: &[Value]) -> BTreeSet<String> {
    let id = |record: &Value| Some(record["tokenId"].as_str()?.to_owned());
    audit.iter().filter_map(id).collect()
}

/// Checks a delivered Secret: it belongs to the access, its token was recorded, is covered by the
/// status, and is one that the hub accepts for the tenant's account.
pub(crate) async fn check_secret(
    tenant: &Tenant,
    secret: &Value,
    access: &Value,
    recorded: &BTreeSet<String>,
) -> TestResult {
    let metadata = &secret["metadata"];
    assert_eq!(access["metadata"]["uid"], owner_of(secret)?, "{metadata}");
    let id = metadata["annotations"]["keyferry.dev/token-id"]
        .as_str()
        .ok_or("no token id")?;
    assert!(
        recorded.contains(id),
        "a token left without its record: {id}"
    );
    let exposure = seconds_of(&access["status"]["exposureUntil"]);
    let end = seconds_of(&metadata["annotations"]["keyferry.dev/expires-at"]);
    assert!(
        exposure >= end && !end.is_empty(),
        "{exposure} does not cover {end}"
    );
    let text = decoded(secret, "value")?;
    let token = token_in(&text).ok_or("no token")?;
    let spec =
        json!({ "token": token, "audiences": [format!("https://{}.keyferry.test", tenant.name)] });
    let review =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec });
    let answer = tenant
        .world
        .hub
        .admin()
        .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await?;
    assert_eq!(
        answer["status"]["authenticated"], true,
        "{}",
        answer["status"]
    );
    assert_eq!(
        answer["status"]["user"]["username"],
        format!("system:serviceaccount:{}:reconciler", tenant.name).as_str()
    );
    Ok(())
}

/// A time without its fraction, which sorts as the time does.
fn seconds_of(time: &Value) -> String {
    time.as_str().unwrap_or_default().chars().take(19).collect()
}
