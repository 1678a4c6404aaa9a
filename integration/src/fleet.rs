//! Named control planes over one etcd, which start and stop together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::try_join_all;
use tempfile::TempDir;

use crate::control_plane::{ControlPlane, ControlPlaneError, ControlPlaneSpec};
use crate::etcd::{Etcd, EtcdError};
use crate::parts::{Part, PartError, Parts};
use crate::process::tail_of_file;

const LOG_LINES: usize = 15;

/// Why a fleet did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// A part is missing.
    #[error(transparent)]
    Part(#[from] PartError),
    /// etcd did not start.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A control plane did not start.
    #[error("control plane {name}: {source}")]
    ControlPlane {
        /// Its name.
        name: String,
        /// Why.
        source: Box<ControlPlaneError>,
    },
    /// The folder for its files could not be created.
    #[error("make a folder for the fleet: {0}")]
    Folder(std::io::Error),
    /// No control plane has that name.
    #[error("the fleet has no control plane {0}")]
    Unknown(String),
}

impl FleetError {
    /// If the machine lacks a binary for this fleet, why.
    pub fn missing_part(&self) -> Option<String> {
        let part = match self {
            Self::Part(part) | Self::Etcd(EtcdError::Part(part)) => part,
            Self::ControlPlane { source, .. } => match source.as_ref() {
                ControlPlaneError::Part(part) => part,
                _ => return None,
            },
            _ => return None,
        };
        matches!(part, PartError::Unavailable { .. }).then(|| part.to_string())
    }
}

/// The settings of a fleet to start.
#[derive(Debug, Clone)]
pub struct FleetSpec {
    /// Its control planes; their names are unique.
    pub control_planes: Vec<ControlPlaneSpec>,
}

/// Running control planes. Rust drops the fields in this order: servers before their store, files
/// last.
#[derive(Debug)]
pub struct Fleet {
    control_planes: BTreeMap<String, Arc<ControlPlane>>,
    etcd: Etcd,
    parts: Parts,
    folder: TempDir,
}

impl Fleet {
    /// Starts etcd, then all control planes in parallel. With `KEYFERRY_KEEP_LOGS` set, the folder
    /// is kept.
    pub async fn start(spec: FleetSpec) -> Result<Self, FleetError> {
        let parts = Parts::from_environment();
        locate_all(&parts, &spec).await?;
        let mut folder = tempfile::Builder::new()
            .prefix("keyferry-fleet-")
            .tempdir()
            .map_err(FleetError::Folder)?;
        if std::env::var_os("KEYFERRY_KEEP_LOGS").is_some() {
            folder.disable_cleanup(true);
            eprintln!("fleet files stay in {}", folder.path().display());
        }
        let etcd = Etcd::start(&parts, folder.path()).await?;
        let starting = spec
            .control_planes
            .into_iter()
            .map(|one| start_one(one, &parts, etcd.url(), folder.path()));
        let started = try_join_all(starting).await?;
        Ok(Self {
            control_planes: started
                .into_iter()
                .map(|plane| (plane.name().to_owned(), Arc::new(plane)))
                .collect(),
            etcd,
            parts,
            folder,
        })
    }

    /// A control plane by its name.
    pub fn control_plane(&self, name: &str) -> Result<Arc<ControlPlane>, FleetError> {
        self.control_planes
            .get(name)
            .cloned()
            .ok_or_else(|| FleetError::Unknown(name.to_owned()))
    }

    /// All control planes, by name.
    pub fn control_planes(&self) -> impl Iterator<Item = &Arc<ControlPlane>> {
        self.control_planes.values()
    }

    /// Starts a further control plane over the same etcd, for one test. Dropping it ends it.
    pub async fn start_control_plane(
        &self,
        spec: ControlPlaneSpec,
    ) -> Result<ControlPlane, FleetError> {
        start_one(spec, &self.parts, self.etcd.url(), self.folder.path()).await
    }

    /// The etcd of all control planes.
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// The real binaries.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The folder of all files of the fleet. When a test fails, log files (`*.log`) below it are
    /// printed.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The end of every log file below the folder.
    pub fn log_tails(&self) -> String {
        log_tails_below(self.folder.path())
    }
}

/// The end of every `*.log` file in the folder and one level below it.
pub fn log_tails_below(folder: &Path) -> String {
    let mut logs: Vec<PathBuf> = entries(folder)
        .flat_map(|entry| match entry.is_dir() {
            true => entries(&entry).collect(),
            false => vec![entry],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    logs.sort();
    logs.iter()
        .map(|path| {
            let shown = path.strip_prefix(folder).unwrap_or(path).display();
            format!("--- {shown}\n{}\n", tail_of_file(path, LOG_LINES))
        })
        .collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Locates the parts one after the other, before anything starts. Builds use all cores, and a
/// missing part must be reported without delay.
async fn locate_all(parts: &Parts, spec: &FleetSpec) -> Result<(), PartError> {
    parts.locate(Part::Etcd).await?;
    for plane in &spec.control_planes {
        parts.locate(Part::ApiServer(plane.minor)).await?;
        if plane.controller_manager {
            parts.locate(Part::ControllerManager).await?;
        }
    }
    Ok(())
}

async fn start_one(
    spec: ControlPlaneSpec,
    parts: &Parts,
    etcd_url: &str,
    folder: &Path,
) -> Result<ControlPlane, FleetError> {
    let name = spec.name.clone();
    ControlPlane::start(spec, parts, etcd_url, folder)
        .await
        .map_err(|source| FleetError::ControlPlane {
            name,
            source: Box::new(source),
        })
}
