//! `clusterTrustBundleRef`: the CA of a target in a ClusterTrustBundle of the hub.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    AUDIENCE_A, Access, Answer, Broker, BrokerSpec, Target, World, caller_token, make_tenant,
};
use serde_json::json;

/// Keyferry reads CAs every 30 s, and at once on SIGHUP.
const SOON: Duration = Duration::from_secs(40);

async fn with_bundle(
    world: &World,
    hub: &Arc<ControlPlane>,
    namespace: &str,
    bundle: &str,
) -> Result<Broker, TestError> {
    make_tenant(hub, namespace, &["owner"]).await?;
    let target = Target {
        trust_bundle: Some(bundle.to_owned()),
        ..Target::of(world.target_a(), AUDIENCE_A)
            .named("a")
            .allowing(namespace, &["owner"])
    };
    let spec = BrokerSpec::of_hub(namespace, hub)
        .with_target(target)
        .with_access(Access::of(namespace, "a", "a", "owner"));
    world.start_broker(hub, spec).await
}

/// Asks for the kubeconfig until its answer has this status and this text.
async fn until(
    broker: &Broker,
    hub: &ControlPlane,
    namespace: &str,
    wanted: (u16, &str),
) -> Result<Answer, TestError> {
    let caller = caller_token(hub, namespace, "owner").await?;
    let limit = Instant::now() + SOON;
    loop {
        let answer = broker.kubeconfig_of(&caller, namespace, "a").await?;
        if answer.status == wanted.0 && answer.body.contains(wanted.1) {
            return Ok(answer);
        }
        if Instant::now() > limit {
            return Err(format!("not {wanted:?} but {} {}", answer.status, answer.body).into());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

pub(crate) async fn a_targets_ca_is_in_a_trust_bundle(world: Arc<World>) -> TestResult {
    let (hub, namespace, bundle) = (world.hub(), "bundled", "target-a");
    let broker = with_bundle(&world, hub, namespace, bundle).await?;
    let absent = "CertificateAuthorityInvalid: clusterTrustBundleRef: the hub has no";
    until(&broker, hub, namespace, (503, absent)).await?;

    let path = format!("/apis/certificates.k8s.io/v1/clustertrustbundles/{bundle}");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": { "name": bundle },
        "spec": { "trustBundle": world.target_a().ca_pem() },
    });
    hub.admin().apply(&path, &object).await?;
    broker.process().hang_up().await?;
    until(&broker, hub, namespace, (200, "certificate-authority-data")).await?;

    hub.admin().delete(&path).await?;
    broker.process().hang_up().await?;
    until(&broker, hub, namespace, (503, absent))
        .await
        .map(drop)
}

pub(crate) async fn an_old_hub_serves_no_trust_bundle(world: Arc<World>) -> TestResult {
    let (hub, namespace) = (world.old_hub(), "unbundled");
    let broker = with_bundle(&world, hub, namespace, "target-a").await?;
    let unserved = "CertificateAuthorityInvalid: clusterTrustBundleRef: the hub serves no";
    until(&broker, hub, namespace, (503, unserved))
        .await
        .map(drop)
}
