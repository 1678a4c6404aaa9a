//! Two control planes with the CRDs, and the command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::shipped;
use serde_json::Value;

/// The plural names of the CRDs.
pub(super) const PLURALS: [&str; 3] = ["targetclusters", "targetaccesses", "audiencepairings"];
/// The namespace of the accesses.
pub(super) const NAMESPACE: &str = "tenant-a";

/// Two control planes with the CRDs, and the command line.
pub(super) struct Stage {
    pub(super) planes: Vec<Arc<ControlPlane>>,
    pub(super) binary: KeyferryBinary,
    pub(super) folder: PathBuf,
    fleet: Fleet,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let old = ControlPlaneSpec {
            minor: Minor::V1_33,
            ..ControlPlaneSpec::named("old")
        };
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![ControlPlaneSpec::named("new"), old],
        })
        .await?;
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let planes: Vec<Arc<ControlPlane>> = fleet.control_planes().cloned().collect();
        for plane in &planes {
            let files = PLURALS.map(|plural| shipped("broker/crds").join(format!("{plural}.yaml")));
            apply_manifests(plane, &files.each_ref().map(PathBuf::as_path)).await?;
            for plural in PLURALS {
                established(plane, plural).await?;
            }
            plane.create_namespace(NAMESPACE).await?;
        }
        let folder = fleet.folder().join("crds");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            planes,
            binary: KeyferryBinary::build().await?,
            folder,
            fleet,
        })
    }
}

/// Returns the CRD once it is `Established` and its objects can be listed.
pub(super) async fn established(plane: &ControlPlane, plural: &str) -> Result<Value, TestError> {
    let path =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.keyferry.dev");
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let found = plane.admin().get(&path).await?;
        if condition(&found, "Established") == Some("True")
            && plane
                .admin()
                .get(&format!("/apis/keyferry.dev/v1alpha1/{plural}"))
                .await
                .is_ok()
        {
            return Ok(found);
        }
        if Instant::now() > limit {
            return Err(format!(
                "{plural} on {} is not established: {}",
                plane.name(),
                found["status"]["conditions"]
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The status of a condition.
pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|one| one["type"] == name)?["status"]
        .as_str()
}
