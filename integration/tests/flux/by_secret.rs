//! `secretRef`: the Secret that Keyferry renews, with a kubeconfig that contains a token.

use std::sync::Arc;

use keyferry_integration::flux::{GitSource, KubeConfigRef, KustomizationSpec, until_ready};
use keyferry_integration::git_server::Repository;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{access_path, secret_path, until_gone};

use super::stage::{Stage, access, config_map, config_map_path, until_applied, user, who_applied};

const TENANT: &str = "tenant-a";

pub(crate) async fn leads_to_the_target_and_deletion_prunes(stage: Arc<Stage>) -> TestResult {
    let name = "by-secret";
    let (hub, [target, other]) = (&stage.hub, &stage.targets);
    access(hub, TENANT, name, "KubeConfigSecret").await?;
    let (repository, spec) = apply(&stage, name).await?;
    until_ready(hub, &spec.path()).await?;
    assert_eq!(
        target.admin().get(&config_map_path(name)).await?["data"]["text"],
        "first"
    );
    assert_eq!(
        who_applied(target, name)?,
        [user(TENANT)],
        "the target knows who came"
    );
    assert!(
        !other.admin().exists(&config_map_path(name)).await?,
        "nothing is at the other target"
    );

    let commit = repository
        .commit(&[("apps/config.yaml", &config_map(name, "second"))])
        .await?;
    until_applied(hub, &spec, &commit).await?;
    assert_eq!(
        target.admin().get(&config_map_path(name)).await?["data"]["text"],
        "second"
    );

    // Delete both at once: the Secret outlives the access, so that Flux can still prune.
    let both = [access_path(TENANT, name), spec.path()];
    tokio::try_join!(hub.admin().delete(&both[0]), hub.admin().delete(&both[1]))?;
    until_gone(hub.admin(), &spec.path()).await?;
    assert!(
        !target.admin().exists(&config_map_path(name)).await?,
        "the target ends clean"
    );
    // Nothing names the Secret any more, so its token must not remain stored for its 12 hours.
    until_gone(hub.admin(), &access_path(TENANT, name)).await?;
    until_gone(hub.admin(), &secret_path(TENANT, name)).await
}

async fn apply<'a>(
    stage: &Stage,
    name: &'a str,
) -> Result<(Repository, KustomizationSpec<'a>), TestError> {
    let admin = stage.hub.admin();
    let (repository, _) = stage.repository_of(name).await?;
    GitSource {
        namespace: TENANT,
        name,
        url: repository.url(),
    }
    .apply(admin)
    .await?;
    let kube_config = KubeConfigRef::Secret(name);
    let spec = KustomizationSpec {
        namespace: TENANT,
        name,
        source: name,
        path: "./apps",
        kube_config,
        impersonating: None,
    };
    spec.apply(admin).await?;
    Ok((repository, spec))
}
