//! `secretRef`: a Secret with the kubeconfig that Keyferry hands out.

use std::sync::Arc;

use keyferry_integration::flux::{GitSource, KubeConfigRef, KustomizationSpec, until_ready};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::caller_token;
use serde_json::json;

use crate::stage::{ACCOUNT, Stage, config_map, config_map_path, is_there, until_gone, user, who_applied};

const TENANT: &str = "tenant-a";
const NAME: &str = "by-secret";

pub(crate) async fn leads_to_the_target_and_deletion_prunes(stage: Arc<Stage>) -> TestResult {
    let (hub, [target, other]) = (&stage.hub, &stage.targets);
    put_kubeconfig(&stage).await?;
    let (repository, _) = stage.repository_of(NAME).await?;
    GitSource { namespace: TENANT, name: NAME, url: repository.url() }.apply(hub.admin()).await?;
    let kube_config = KubeConfigRef::Secret(NAME);
    let spec = KustomizationSpec { namespace: TENANT, name: NAME, source: NAME, path: "./apps", kube_config, impersonating: None };
    spec.apply(hub.admin()).await?;
    until_ready(hub, &spec.path()).await?;
    assert_eq!(target.admin().get(&config_map_path(NAME)).await?["data"]["text"], "first");
    assert_eq!(who_applied(target, NAME)?, [user(TENANT)], "the target knows who came");
    assert!(!is_there(other.admin(), &config_map_path(NAME)).await?, "nothing is at the other target");

    let commit = repository.commit(&[("apps/config.yaml", &config_map(NAME, "second"))]).await?;
    until_applied(&stage, &spec, &commit).await?;
    assert_eq!(target.admin().get(&config_map_path(NAME)).await?["data"]["text"], "second");

    hub.admin().delete(&spec.path()).await?;
    until_gone(hub.admin(), &spec.path()).await?;
    assert!(!is_there(target.admin(), &config_map_path(NAME)).await?, "the target ends clean");
    Ok(())
}

/// Until Keyferry writes it itself: the document of its own route, in the key that Flux reads.
async fn put_kubeconfig(stage: &Stage) -> Result<(), TestError> {
    let caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    stage.broker.exchange_in_time(&caller, "tenant-a/apps").await?;
    let answer = stage.broker.kubeconfig_of(&caller, TENANT, "apps").await?;
    if answer.status != 200 {
        return Err(format!("no kubeconfig but {} {}", answer.status, answer.body).into());
    }
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": NAME }, "stringData": { "value": answer.body } });
    stage.hub.admin().apply(&format!("/api/v1/namespaces/{TENANT}/secrets/{NAME}"), &secret).await?;
    Ok(())
}

async fn until_applied(stage: &Stage, spec: &KustomizationSpec<'_>, commit: &str) -> Result<(), TestError> {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let object = until_ready(&stage.hub, &spec.path()).await?;
        let revision = object["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
        if revision.contains(commit) {
            return Ok(());
        }
        if std::time::Instant::now() > limit {
            return Err(format!("{commit} is not applied after a minute, but {revision}").into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
