//! A hub that Flux Operator fills from signed artifacts, and the two targets.

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::cosign::CosignKey;
use keyferry_integration::flux::{
    DeployedFlux, FLUX_NAMESPACE, FluxOperator, condition, until_ready,
};
use keyferry_integration::oci_registry::OciRegistry;
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::private_sigstore::{KeylessSignature, PrivateSigstore};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::install_for_objects;
use keyferry_integration::world::{
    Broker, BrokerSpec, Ground, TrustingTarget, put_secret, shipped,
};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::artifacts::{Addresses, TAGS, publish};
use crate::shipped_fleet::{File, kustomization, replaced};

/// The tenants of the example, and its targets.
pub(crate) const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];
pub(crate) const TARGETS: [&str; 2] = ["staging", "production"];
/// A tenant that is added by one commit and removed again.
pub(crate) const GUEST: &str = "tenant-c";
/// The versions of the chart.
pub(crate) const CHARTS: [&str; 2] = ["1.0.0", "1.1.0"];

pub(crate) struct D2 {
    pub(crate) hub: Arc<ControlPlane>,
    /// Staging and production.
    pub(crate) targets: [ControlPlane; 2],
    pub(crate) registry: OciRegistry,
    /// The key whose public part the hub has.
    pub(crate) key: CosignKey,
    pub(crate) addresses: Addresses,
    pub(crate) flux: DeployedFlux,
    /// The tokens of the targets' input credentials.
    pub(crate) tokens: [String; 2],
    /// The platform team's tree.
    tree: Mutex<Vec<File>>,
    operator: FluxOperator,
    ground: Ground,
    _broker: Broker,
}

impl Fixture for D2 {
    fn log_tails(&self) -> String {
        format!(
            "{}--- flux-operator\n{}\n{}--- registry\n{}\n",
            self.ground.log_tails(),
            self.operator.log(15),
            self.flux.log(15),
            self.registry.log(5)
        )
    }
}

impl D2 {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let (parts, folder) = (ground.parts(), ground.folder());
        let spec = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let hub = Arc::new(ground.control_plane(spec).await?);
        install_for_objects(&hub).await?;
        let tokens = [
            new_credential(&ground, &hub, TARGETS[0]).await?,
            new_credential(&ground, &hub, TARGETS[1]).await?,
        ];
        let spec = BrokerSpec::of_hub("main", &hub).with_server_lines(&server_lines());
        let discovery_url = spec.discovery_url()?;
        let broker = ground.start_installed(&hub, spec).await?;
        let (staging, production, registry) = tokio::try_join!(
            target(&ground, TARGETS[0], Minor::newest(), &discovery_url),
            target(&ground, TARGETS[1], Minor::V1_33, &discovery_url),
            OciRegistry::start(parts, folder, ground.ca()),
        )?;
        let targets = [staging, production];
        let authority = ground.ca().cert_path();
        let key = CosignKey::generate(parts, folder, "platform-key", authority).await?;
        let addresses = Addresses {
            registry: registry.host().to_owned(),
            keyferry: broker.api_url(),
            targets: [targets[0].url(), targets[1].url()],
        };
        let tree = addresses.files("fleet")?;
        publish_all(&ground, &registry, &key, &addresses, &tree).await?;
        // Created by hand, as the README says: the CAs and credentials that are in no tree.
        for (name, plane) in TARGETS.iter().zip(&targets) {
            put_secret(&hub, &format!("{name}-ca"), &[("ca.crt", plane.ca_pem())]).await?;
        }
        for (name, token) in TARGETS.iter().zip(&tokens) {
            hub.create_namespace(name).await?;
            secret(&hub, name, "internal-api-token", "token", token).await?;
            secret(&hub, name, "keyferry-ca", "ca.crt", ground.ca().cert_pem()).await?;
        }
        hub.create_namespace(FLUX_NAMESPACE).await?;
        for namespace in [FLUX_NAMESPACE, TARGETS[0], TARGETS[1]] {
            secret(
                &hub,
                namespace,
                "cosign-key",
                "cosign.pub",
                key.public_key(),
            )
            .await?;
        }
        let flux_folder = folder.join("flux");
        let operator = FluxOperator::start(&hub, parts, &flux_folder).await?;
        let instance = folder.join("flux-instance.yaml");
        let text = tree
            .iter()
            .find(|(path, _)| path == "clusters/hub/flux-instance.yaml");
        std::fs::write(&instance, &text.ok_or("the tree has no FluxInstance")?.1)?;
        apply_manifests(&hub, &[&instance]).await?;
        let flux = DeployedFlux::start(&hub, parts, &flux_folder, authority).await?;
        Ok(Self {
            hub,
            targets,
            registry,
            key,
            addresses,
            flux,
            tokens,
            tree: Mutex::new(tree),
            operator,
            ground,
            _broker: broker,
        })
    }

    /// Waits until all objects of the trees exist and are ready.
    pub(crate) async fn until_settled(&self) -> Result<(), TestError> {
        for name in ["flux-system", "policies", "targets", "tenants"] {
            until_ready(&self.hub, &kustomization(FLUX_NAMESPACE, name)).await?;
        }
        until_reconciled(&self.hub, &resource_set(FLUX_NAMESPACE, "tenants")).await?;
        for target in TARGETS {
            until_ready(&self.hub, &kustomization(target, "cluster")).await?;
            for provider in ["accesses", "platform-components"] {
                until_reconciled(&self.hub, &input_provider(target, provider)).await?;
            }
        }
        Ok(())
    }

    /// Changes a file of the platform team's tree, and publishes the tree for every cluster.
    pub(crate) async fn commit(&self, file: &str, needle: &str, by: &str) -> Result<(), TestError> {
        let mut tree = self.tree.lock().await;
        let (_, text) = tree
            .iter_mut()
            .find(|(path, _)| path == file)
            .ok_or("the tree has no such file")?;
        *text = replaced(text, needle, by)?;
        publish(&self.registry, &self.key, "platform/fleet", &TAGS, &tree).await
    }

    /// Generates another pair of keys, which no policy trusts.
    pub(crate) async fn other_key(&self) -> Result<CosignKey, TestError> {
        let (parts, folder) = (self.ground.parts(), self.ground.folder());
        let authority = self.ground.ca().cert_path();
        CosignKey::generate(parts, folder, "other-key", authority).await
    }

    /// Sets up a private Sigstore with new keys, and makes these signatures.
    pub(crate) async fn private_sigstore(
        &self,
        signatures: &[KeylessSignature<'_>],
    ) -> Result<PrivateSigstore, TestError> {
        PrivateSigstore::sign(self.ground.parts(), signatures).await
    }

    /// Runs Keyferry's command line.
    pub(crate) async fn keyferry(&self, args: &[&str]) -> Result<Output, TestError> {
        Ok(self.ground.binary().run(args, &[]).await?)
    }
}

/// Waits until an object of Flux Operator, whose status has no generation, is Ready; returns it.
async fn until_reconciled(hub: &ControlPlane, path: &str) -> Result<Value, TestError> {
    let minute = Duration::from_secs(60);
    until_object(hub.admin(), path, "reconciled", minute, |object| {
        let ready = condition(object, "Ready");
        ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
    })
    .await
}

/// The path of an OCIRepository on the hub.
pub(crate) fn oci_repository(namespace: &str, name: &str) -> String {
    format!("/apis/source.toolkit.fluxcd.io/v1/namespaces/{namespace}/ocirepositories/{name}")
}

/// The path of a HelmRelease on the hub.
pub(crate) fn helm_release(namespace: &str, name: &str) -> String {
    format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{namespace}/helmreleases/{name}")
}

/// The path of a ResourceSetInputProvider on the hub.
pub(crate) fn input_provider(namespace: &str, name: &str) -> String {
    format!(
        "/apis/fluxcd.controlplane.io/v1/namespaces/{namespace}/resourcesetinputproviders/{name}"
    )
}

fn resource_set(namespace: &str, name: &str) -> String {
    format!("/apis/fluxcd.controlplane.io/v1/namespaces/{namespace}/resourcesets/{name}")
}

/// The path of a ConfigMap, on the hub or a target.
pub(crate) fn config_map(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// Writes a Secret with one entry.
pub(crate) async fn secret(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), TestError> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { key: value },
    });
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    hub.admin().apply(&path, &object).await?;
    Ok(())
}

fn server_lines() -> String {
    let entry = |name: &str| {
        format!(
            "    - {{name: {name}, scope: Read, cluster: {name}.fleet.example.com, \
             secretRef: {{name: keyferry-input-{name}}}}}\n"
        )
    };
    format!(
        "objects: CustomResources\ninputs:\n  enabled: true\n  credentials:\n{}",
        TARGETS.map(entry).concat()
    )
}

/// Makes the credential of a target by the command of the README; returns its token.
async fn new_credential(
    ground: &Ground,
    hub: &ControlPlane,
    name: &str,
) -> Result<String, TestError> {
    let files = ["hub", "child"].map(|kind| ground.folder().join(format!("{name}.{kind}.yaml")));
    let [on_hub, child] = files.each_ref().map(|file| file.display().to_string());
    let dns = format!("{name}.fleet.example.com");
    let args = [
        "inputs",
        "credential",
        "new",
        name,
        "--cluster",
        &dns,
        "--child-namespace",
        name,
        "--hub-file",
        &on_hub,
        "--child-file",
        &child,
    ];
    let output = ground.binary().run(&args, &[]).await?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let [on_hub, child] = files;
    apply_manifests(hub, &[&on_hub]).await?;
    let child = std::fs::read_to_string(child)?;
    let token = child
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "));
    let token = token.ok_or("the child's Secret has no token")?;
    Ok(token.trim_matches('"').to_owned())
}

/// Starts a target with the objects that its admin applies.
async fn target(
    ground: &Ground,
    name: &'static str,
    minor: Minor,
    discovery_url: &str,
) -> Result<ControlPlane, TestError> {
    let subjects = ["infra", TENANTS[0], TENANTS[1], GUEST].map(|one| format!("{one}:reconciler"));
    let target = ground
        .target(TrustingTarget {
            name,
            minor,
            issuer: "https://hub.keyferry.test",
            audience: &format!("https://{name}.example.com"),
            discovery_url,
            subjects: &subjects,
        })
        .await?;
    let rights = ["shared", "infra", "tenant-a", "tenant-b"]
        .map(|file| shipped(&format!("examples/d2/target-clusters/{file}.yaml")));
    let rights: Vec<&Path> = rights.iter().map(AsRef::as_ref).collect();
    apply_manifests(&target, &rights).await?;
    Ok(target)
}

/// Fills the registry as the CI systems of the teams do.
async fn publish_all(
    ground: &Ground,
    registry: &OciRegistry,
    key: &CosignKey,
    addresses: &Addresses,
    tree: &[File],
) -> Result<(), TestError> {
    publish(registry, key, "platform/fleet", &TAGS, tree).await?;
    let infra = addresses.files("infra/apps")?;
    publish(registry, key, "fleet/infra/apps", &TAGS, &infra).await?;
    for tenant in TENANTS {
        let files = addresses.files(&format!("apps/{tenant}"))?;
        let repository = format!("fleet/{tenant}/apps");
        publish(registry, key, &repository, &TAGS, &files).await?;
    }
    for version in CHARTS {
        push_chart(ground, registry, version).await?;
        key.sign(&format!("{}/charts/ingress:{version}", registry.host()))
            .await?;
    }
    Ok(())
}

async fn push_chart(
    ground: &Ground,
    registry: &OciRegistry,
    version: &str,
) -> Result<(), TestError> {
    let helm = ground.parts().locate(Part::Helm).await?;
    let folder = ground.folder();
    let chart = shipped("examples/d2/infra/charts/ingress")
        .display()
        .to_string();
    let package = format!("ingress-{version}.tgz");
    let repository = format!("oci://{}/charts", registry.host());
    let authority = ground.ca().cert_path().display().to_string();
    let steps: [&[&str]; 2] = [
        &["package", &chart, "--version", version],
        &["push", &package, &repository, "--ca-file", &authority],
    ];
    for step in steps {
        let output = Command::new(&helm)
            .args(step)
            .current_dir(folder)
            .env("HOME", folder)
            .stdin(Stdio::null())
            .output()
            .await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("helm {step:?}: {said}").into());
        }
    }
    Ok(())
}
