//! `secretRef`: the Secret that Keyferry keeps, with a kubeconfig around a token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::{GitSource, KubeConfigRef, KustomizationSpec, until_ready};
use keyferry_integration::git_server::Repository;
use keyferry_integration::pki::TestCa;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{access_path, secret_path};
use keyferry_integration::world::put_secret;
use serde_json::{Value, json};

use crate::stage::{Stage, access, config_map, config_map_path, is_there, until_gone, user, who_applied};

const TENANT: &str = "tenant-a";

pub(crate) async fn leads_to_the_target_and_deletion_prunes(stage: Arc<Stage>) -> TestResult {
    let name = "by-secret";
    let (hub, [target, other]) = (&stage.hub, &stage.targets);
    access(hub, TENANT, name, "KubeConfigSecret").await?;
    let (repository, spec) = apply(&stage, name).await?;
    until_ready(hub, &spec.path()).await?;
    assert_eq!(target.admin().get(&config_map_path(name)).await?["data"]["text"], "first");
    assert_eq!(who_applied(target, name)?, [user(TENANT)], "the target knows who came");
    assert!(!is_there(other.admin(), &config_map_path(name)).await?, "nothing is at the other target");

    let commit = repository.commit(&[("apps/config.yaml", &config_map(name, "second"))]).await?;
    until_applied(hub, &spec, &commit).await?;
    assert_eq!(target.admin().get(&config_map_path(name)).await?["data"]["text"], "second");

    // Both at once: the Secret outlives the access, so that Flux can still prune.
    let both = [access_path(TENANT, name), spec.path()];
    tokio::try_join!(hub.admin().delete(&both[0]), hub.admin().delete(&both[1]))?;
    until_gone(hub.admin(), &spec.path()).await?;
    assert!(!is_there(target.admin(), &config_map_path(name)).await?, "the target ends clean");
    assert!(hub.admin().get(&access_path(TENANT, name)).await?["metadata"]["deletionTimestamp"].is_string(), "the access drains");
    Ok(())
}

/// A new token and further CA certificates while Flux applies every few seconds.
pub(crate) async fn a_new_token_and_ca_cost_no_reconcile(stage: Arc<Stage>) -> TestResult {
    let name = "rotated";
    let (hub, [target, _]) = (&stage.hub, &stage.targets);
    access(hub, TENANT, name, "KubeConfigSecret").await?;
    let (repository, spec) = apply(&stage, name).await?;
    until_ready(hub, &spec.path()).await?;
    let first = secret(hub, name).await?;

    // The first step of every rotation of a CA: both are trusted.
    let folder = tempfile::tempdir()?;
    let both = format!("{}{}", target.ca_pem(), TestCa::create("the next CA", folder.path())?.cert_pem());
    put_secret(hub, target.name(), &[("ca.crt", &both)]).await?;
    let second = until_other(hub, name, &first).await?;
    let commit = repository.commit(&[("apps/config.yaml", &config_map(name, "with both"))]).await?;
    until_applied(hub, &spec, &commit).await?;

    // A token of another lifetime is another token. The Secret holds it as soon as it has to be written again.
    let deliveries = json!([{ "name": "flux", "type": "KubeConfigSecret", "objectName": name, "tokenLifetime": "2h" }]);
    hub.admin().patch(&access_path(TENANT, name), &json!({ "spec": { "deliveries": deliveries } })).await?;
    until_ready(hub, &access_path(TENANT, name)).await?;
    hub.admin().delete(&secret_path(TENANT, name)).await?;
    let now = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": "now" } } });
    hub.admin().patch(&access_path(TENANT, name), &now).await?;
    let third = until_other(hub, name, &second).await?;
    let commit = repository.commit(&[("apps/config.yaml", &config_map(name, "anew"))]).await?;
    until_applied(hub, &spec, &commit).await?;
    assert_eq!(who_applied(target, name)?, [user(TENANT)]);
    let id = |secret: &Value| secret["metadata"]["annotations"]["keyferry.dev/token-id"].as_str().unwrap_or_default().to_owned();
    assert!(!id(&third).is_empty() && id(&third) != id(&second), "{}", third["metadata"]);
    let missing = |line: &String| !line.contains("unable to read KubeConfig secret");
    let failures: Vec<String> = stage.failures_of(name).into_iter().filter(missing).collect();
    assert!(failures.is_empty(), "but for the moment without a Secret nothing failed: {failures:?}");
    Ok(())
}

async fn apply<'a>(stage: &Stage, name: &'a str) -> Result<(Repository, KustomizationSpec<'a>), TestError> {
    let admin = stage.hub.admin();
    let (repository, _) = stage.repository_of(name).await?;
    GitSource { namespace: TENANT, name, url: repository.url() }.apply(admin).await?;
    let kube_config = KubeConfigRef::Secret(name);
    let spec = KustomizationSpec { namespace: TENANT, name, source: name, path: "./apps", kube_config, impersonating: None };
    spec.apply(admin).await?;
    Ok((repository, spec))
}

async fn secret(hub: &ControlPlane, name: &str) -> Result<Value, TestError> {
    Ok(hub.admin().get(&secret_path(TENANT, name)).await?)
}

/// Waits until the Secret holds another document than before.
async fn until_other(hub: &ControlPlane, name: &str, before: &Value) -> Result<Value, TestError> {
    let limit = Instant::now() + Duration::from_secs(45);
    loop {
        match secret(hub, name).await {
            Ok(now) if now["data"] != before["data"] => return Ok(now),
            _ if Instant::now() > limit => return Err("the Secret is as it was after 45 s".into()),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn until_applied(hub: &ControlPlane, spec: &KustomizationSpec<'_>, commit: &str) -> Result<(), TestError> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let object = until_ready(hub, &spec.path()).await?;
        let revision = object["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
        if revision.contains(commit) {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("{commit} is not applied after a minute, but {revision}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
