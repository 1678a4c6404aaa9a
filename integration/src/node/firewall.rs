//! kube-router as the firewall of a node: it enforces NetworkPolicies by rules of the kernel. It
//! runs `iptables` and `ipset`: those of the machine, or else those of Debian's packages, which are
//! unpacked into the cache and not installed.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use super::configuration::POD_NETWORK;
use super::machine::Machine;
use super::{APISERVER, NODE};
use crate::control_plane::ControlPlane;
use crate::kubeconfig::{Credential, write_kubeconfig};
use crate::parts::{NodePart, Part, PartError, Parts};
use crate::process::{Process, run_to_end};
use crate::runner::TestError;
use crate::wait::until;

const PACKAGES: [&str; 10] = [
    "iptables",
    "ipset",
    "libipset13",
    "libxtables12",
    "libnftnl11",
    "libmnl0",
    "libnfnetlink0",
    "libip4tc2",
    "libip6tc2",
    "libnetfilter-conntrack3",
];
/// What kube-router runs.
const PROGRAMS: [&str; 4] = ["iptables", "iptables-save", "iptables-restore", "ipset"];
const DOWNLOADED_WITHIN: Duration = Duration::from_secs(120);
const RULES_WITHIN: Duration = Duration::from_secs(60);

/// Starts it, and waits until its rules are there.
pub(super) async fn start(
    machine: &Machine,
    cluster: &ControlPlane,
    parts: &Parts,
    folder: &Path,
) -> Result<Process, TestError> {
    let tools = Tools::find(parts.cache()).await?;
    let certificate = cluster.ca().client("kube-router", "system:masters")?;
    let kubeconfig = write_kubeconfig(
        folder.join("kube-router.kubeconfig"),
        &format!("https://{}:{}", APISERVER.0, APISERVER.1),
        cluster.ca_pem(),
        &Credential::ClientCertificate {
            cert: &certificate.cert_path,
            key: &certificate.key_path,
        },
    )?;
    // The controller that gives a node its Pods' network does not run here.
    let network = json!({ "spec": { "podCIDR": POD_NETWORK, "podCIDRs": [POD_NETWORK] } });
    let node = format!("/api/v1/nodes/{NODE}");
    cluster.admin().patch(&node, &network).await?;
    let program = parts.locate(Part::Node(NodePart::KubeRouter)).await?;
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={NODE}"),
        "--run-firewall=true".to_owned(),
        "--run-router=false".to_owned(),
        "--run-service-proxy=false".to_owned(),
        "--enable-cni=false".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        "--health-port=0".to_owned(),
        "--v=1".to_owned(),
    ];
    let args = args.into_iter().map(OsString::from).collect();
    let env = tools.environment();
    let process = machine
        .spawn_with("kube-router", &program, args, env)
        .await?;
    let rules = || async {
        let saved = machine.run_with("iptables-save".as_ref(), Vec::new(), tools.environment());
        Ok(saved
            .await
            .is_ok_and(|rules| rules.contains("KUBE-ROUTER-FORWARD")))
    };
    let found = until("kube-router has its rules", RULES_WITHIN, rules).await;
    found.map_err(|error| format!("{error}: {}", process.logs_tail(20)))?;
    Ok(process)
}

/// The programs that kube-router runs.
struct Tools {
    /// Unpacked packages; `None` if the machine has the programs.
    root: Option<PathBuf>,
}

impl Tools {
    async fn find(cache: &Path) -> Result<Self, TestError> {
        if PROGRAMS.iter().all(|program| is_in_path(program)) {
            return Ok(Self { root: None });
        }
        let root = cache.join("debian-iptables");
        if !root.exists() {
            unpack(&root)
                .await
                .map_err(|error| PartError::Unavailable {
                    part: "iptables and ipset",
                    version: "of any version",
                    why: format!("{error}; fix: install the packages iptables and ipset"),
                })?;
        }
        Ok(Self { root: Some(root) })
    }

    /// The variables with which programs find them.
    fn environment(&self) -> Vec<(String, OsString)> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let mut path = root.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let libraries = root.join("lib");
        vec![
            ("PATH".to_owned(), path),
            (
                "XTABLES_LIBDIR".to_owned(),
                libraries.join("xtables").into_os_string(),
            ),
            ("LD_LIBRARY_PATH".to_owned(), libraries.into_os_string()),
        ]
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Downloads the packages and unpacks them into a folder with `bin` and `lib`.
async fn unpack(root: &Path) -> Result<(), TestError> {
    let partial = root.with_extension("partial");
    drop(std::fs::remove_dir_all(&partial));
    let (packages, files) = (partial.join("packages"), partial.join("files"));
    std::fs::create_dir_all(&packages)?;
    let mut download = Command::new("apt-get");
    download
        .arg("download")
        .args(PACKAGES)
        .current_dir(&packages);
    run_to_end(download, DOWNLOADED_WITHIN).await?;
    for package in std::fs::read_dir(&packages)? {
        let mut extract = Command::new("dpkg-deb");
        extract.arg("--extract").arg(package?.path()).arg(&files);
        run_to_end(extract, DOWNLOADED_WITHIN).await?;
    }
    let libraries = files
        .join("usr/lib")
        .join(format!("{}-linux-gnu", std::env::consts::ARCH));
    std::fs::rename(libraries, partial.join("lib"))?;
    let bin = partial.join("bin");
    std::fs::create_dir(&bin)?;
    // One program with several names. The older of Debian's two works without the kernel's
    // compatibility layer of nftables.
    for (name, file) in [
        ("iptables", "xtables-legacy-multi"),
        ("iptables-save", "xtables-legacy-multi"),
        ("iptables-restore", "xtables-legacy-multi"),
        ("ipset", "ipset"),
    ] {
        symlink(Path::new("../files/usr/sbin").join(file), bin.join(name))?;
    }
    std::fs::rename(&partial, root)?;
    Ok(())
}
