//! The configuration files of containerd, CNI and the kubelet, and containerd itself.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_image::Image;
use serde_json::{Value, json};

use super::POD_TOOL;
use super::images::image_of;
use super::machine::Machine;
use crate::parts::{NodePart, Part, Parts};
use crate::process::Process;
use crate::runner::TestError;
use crate::wait::until;

/// In the node's own /run.
const SOCKET: &str = "/run/containerd/containerd.sock";
pub(super) const POD_NETWORK: &str = "10.244.0.0/24";
const UP_WITHIN: Duration = Duration::from_secs(30);

/// containerd's files.
#[derive(Debug)]
pub(super) struct Configuration {
    file: PathBuf,
    containerd: PathBuf,
    ctr: PathBuf,
}

impl Configuration {
    pub(super) async fn write(parts: &Parts, folder: &Path) -> Result<Self, TestError> {
        let part = async |part| parts.locate(Part::Node(part)).await;
        let bridge = part(NodePart::Bridge).await?;
        let networks = folder.join("cni");
        std::fs::create_dir_all(&networks)?;
        let network = json!({
            "cniVersion": "1.0.0", "name": "keyferry",
            "plugins": [{
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": "/var/lib/cni/networks",
                    "ranges": [[{ "subnet": POD_NETWORK }]], "routes": [{ "dst": "0.0.0.0/0" }],
                },
            }],
        });
        std::fs::write(networks.join("10-keyferry.conflist"), network.to_string())?;
        let file = folder.join("containerd.toml");
        let text = toml(
            folder,
            &networks,
            bridge.parent().unwrap_or(Path::new("/")),
            &part(NodePart::Runc).await?,
        );
        std::fs::write(&file, text)?;
        Ok(Self {
            file,
            containerd: part(NodePart::Containerd).await?,
            ctr: part(NodePart::Ctr).await?,
        })
    }

    /// Starts containerd and waits until it answers.
    pub(super) async fn run_containerd(&self, machine: &Machine) -> Result<Process, TestError> {
        let args = vec!["--config".into(), self.file.clone().into()];
        let process = machine.spawn("containerd", &self.containerd, args).await?;
        let answers = || async {
            let args = ["--address", SOCKET, "version"].map(Into::into).to_vec();
            Ok(machine.run(&self.ctr, args).await.is_ok())
        };
        let up = until("containerd answers", UP_WITHIN, answers).await;
        up.map_err(|error| format!("{error}: {}", process.logs_tail(20)))?;
        Ok(process)
    }

    /// Runs a command of `ctr images` for the kubelet's images.
    pub(super) async fn images(
        &self,
        machine: &Machine,
        arguments: Vec<OsString>,
    ) -> Result<(), TestError> {
        let mut args: Vec<OsString> = ["--address", SOCKET, "--namespace", "k8s.io", "images"]
            .map(Into::into)
            .to_vec();
        args.extend(arguments);
        machine.run(&self.ctr, args).await?;
        Ok(())
    }
}

fn toml(folder: &Path, networks: &Path, plugins: &Path, runc: &Path) -> String {
    let (folder, networks) = (folder.display(), networks.display());
    let (plugins, runc) = (plugins.display(), runc.display());
    format!(
        r#"version = 3
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{POD_TOOL}"
[plugins."io.containerd.cri.v1.runtime"]
  # A sandbox wants a lower score than the test process has, which needs CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{networks}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        SystemdCgroup = false
"#
    )
}

/// A KubeletConfiguration for the machine's cgroups, and for the node's own folders.
pub(super) fn kubelet(machine: &Machine, folder: &Path, client_ca: &Path, dns: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": client_ca },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", machine.cgroup()),
        // The kubelet from 1.35 refuses version 1 by default, which a machine of a test may have.
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [dns],
        "resolvConf": "",
        "podLogsDir": folder.join("pod-logs"),
        "volumePluginDir": folder.join("volume-plugins"),
        "makeIPTablesUtilChains": false,
        // A larger value than the machine's free space must not evict a test's Pods.
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        // The node must not change the settings of the machine.
        "featureGates": { "KubeletInUserNamespace": true },
        "registerNode": true,
        "shutdownGracePeriod": "0s",
    })
}

/// The image of a small Pod, and of every sandbox.
pub(super) fn pod_tool_image(program: &Path) -> Result<Image, TestError> {
    let mut image = image_of(&[program], "65534:65534")?;
    image.config.command = vec!["pause".to_owned()];
    Ok(image)
}
