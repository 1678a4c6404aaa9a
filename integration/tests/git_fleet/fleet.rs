//! A hub that Flux fills from the platform repository, and the two targets.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::FleetError;
use keyferry_integration::flux::{Flux, FluxSpec, until_ready};
use keyferry_integration::git_server::{GitServer, Repository};
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::on_hub::install_for_objects;
use keyferry_integration::world::{
    Broker, BrokerSpec, Ground, TrustingTarget, put_secret, shipped,
};

use super::repositories::{Addresses, components};
use crate::shipped_fleet::{File, kustomization};

pub(crate) const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];
/// A tenant that is added and removed again.
pub(crate) const GUEST: &str = "tenant-c";

fn minors() -> [(&'static str, Minor); 2] {
    [("target-a", Minor::newest()), ("target-b", Minor::V1_33)]
}

pub(crate) struct GitFleet {
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) targets: Vec<ControlPlane>,
    pub(crate) git: GitServer,
    /// The platform repository and its files.
    pub(crate) platform: (Repository, Vec<File>),
    /// The tenants' own repositories.
    pub(crate) apps: Vec<Repository>,
    /// The flags of kustomize-controller, taken from the platform repository.
    pub(crate) flags: Vec<String>,
    pub(crate) broker: Broker,
    flux: Flux,
    ground: Ground,
}

impl Fixture for GitFleet {
    fn log_tails(&self) -> String {
        format!(
            "{}--- kustomize-controller\n{}\n",
            self.ground.log_tails(),
            self.flux.log(15)
        )
    }
}

impl GitFleet {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        GitServer::prepare().await.map_err(FleetError::from)?;
        Flux::prepare(ground.parts())
            .await
            .map_err(FleetError::from)?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let spec = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let hub = Arc::new(ground.control_plane(spec).await?);
        install_for_objects(&hub).await?;
        let spec = BrokerSpec::of_hub("main", &hub).with_server_lines("objects: CustomResources\n");
        let discovery_url = spec.discovery_url()?;
        let broker = ground.start_installed(&hub, spec).await?;
        let mut targets = Vec::new();
        for ((name, minor), tenant) in minors().into_iter().zip(TENANTS) {
            let (issuer, audience, subjects) = (
                "https://hub.keyferry.test",
                &audience(name),
                [
                    format!("{tenant}:reconciler"),
                    format!("{GUEST}:reconciler"),
                ],
            );
            let trusting = TrustingTarget {
                name,
                minor,
                issuer,
                audience,
                discovery_url: &discovery_url,
                subjects: &subjects,
            };
            let target = ground.target(trusting).await?;
            apply_manifests(
                &target,
                &[&shipped(&format!(
                    "examples/git-fleet/target-clusters/{name}.yaml"
                ))],
            )
            .await?;
            put_secret(&hub, &format!("{name}-ca"), &[("ca.crt", target.ca_pem())]).await?;
            targets.push(target);
        }
        let git = GitServer::start(ground.folder())?;
        let [a, b] = targets.as_slice() else {
            return Err("there are two targets".into());
        };
        let addresses = Addresses {
            git: git.url(),
            targets: [a.url(), b.url()],
        };
        let (platform, apps) = publish(&git, &addresses).await?;
        let tree = ground.folder().join("platform");
        write(&tree, &platform.1)?;
        let flux_system = tree.join("clusters/hub/flux-system").display().to_string();
        let flags = kustomize_flags(&kubectl(&hub, &["kustomize", &flux_system]).await?);
        let mut further = flags.clone();
        further.push("--requeue-dependency=1s".to_owned());
        let flux = Flux::start(
            &hub,
            ground.parts(),
            ground.folder(),
            &FluxSpec {
                further,
                ..FluxSpec::default()
            },
        )
        .await?;
        // Does what `flux bootstrap` does. From here on, Flux fills the hub by itself.
        kubectl(
            &hub,
            &["apply", "--server-side", "--kustomize", &flux_system],
        )
        .await?;
        for name in ["flux-system", "policies", "targets", "tenants"] {
            until_ready(&hub, &kustomization("flux-system", name)).await?;
        }
        Ok(Self {
            hub,
            targets,
            git,
            platform,
            apps,
            flags,
            flux,
            broker,
            ground,
        })
    }

    /// Runs Keyferry's command line.
    pub(crate) async fn keyferry(&self, args: &[&str]) -> Result<Output, TestError> {
        Ok(self.ground.binary().run(args, &[]).await?)
    }
}

/// The audience of a target of the example.
pub(crate) fn audience(target: &str) -> String {
    format!("https://{target}.example.com")
}

/// Commits the files of the platform repository and of the tenants' repositories.
async fn publish(
    git: &GitServer,
    addresses: &Addresses,
) -> Result<((Repository, Vec<File>), Vec<Repository>), TestError> {
    let mut files = addresses.files("platform")?;
    files.push((
        "clusters/hub/flux-system/gotk-components.yaml".to_owned(),
        components(),
    ));
    let platform = git.create("platform/fleet").await?;
    commit(&platform, &files).await?;
    let mut apps = Vec::new();
    for tenant in TENANTS {
        let repository = git.create(&format!("fleet/{tenant}/apps")).await?;
        commit(&repository, &addresses.files(tenant)?).await?;
        apps.push(repository);
    }
    Ok(((platform, files), apps))
}

pub(crate) async fn commit(repository: &Repository, files: &[File]) -> Result<(), TestError> {
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    repository.commit(&files).await?;
    Ok(())
}

fn write(folder: &Path, files: &[File]) -> Result<(), TestError> {
    for (path, text) in files {
        let file = folder.join(path);
        std::fs::create_dir_all(
            file.parent()
                .ok_or("a file of the example is in no folder")?,
        )?;
        std::fs::write(file, text)?;
    }
    Ok(())
}

async fn kubectl(hub: &ControlPlane, args: &[&str]) -> Result<String, TestError> {
    let output = hub.kubectl(args).await?;
    if !output.status.success() {
        return Err(format!(
            "kubectl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The flags of kustomize-controller's Deployment in what kustomize built.
fn kustomize_flags(built: &str) -> Vec<String> {
    let deployment = built
        .split("\n---\n")
        .find(|one| one.contains("kind: Deployment") && one.contains("name: kustomize-controller"));
    deployment
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("- --"))
        .map(|flag| format!("--{flag}"))
        .collect()
}
