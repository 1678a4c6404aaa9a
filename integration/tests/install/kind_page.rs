//! docs/guides/quickstart-kind.md as one user's session. `kind` and `docker` are stand-ins that know
//! the page's calls alone; the apiservers have the settings of the page's files, and kubectl, Helm
//! and Keyferry are real.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::documents::{Run, command_blocks, repository, shown_files};
use keyferry_integration::keyferry_process::{KeyferryBinary, TARGETS_HERE};
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use super::process::{self, Port, Ports, Shipped, Started};
use super::setup::{Hubs, NAMESPACE};

const PAGE: &str = "docs/guides/quickstart-kind.md";
/// Where the page publishes the documents, in Docker's network.
const PUBLIC_URL: &str = "https://hub-control-plane:30443";
/// The issuer of every cluster of kind that sets none.
const ISSUER_OF_KIND: &str = "https://kubernetes.default.svc.cluster.local";
/// The longest wait for a step of the other side: a target reads its file once a minute.
const STEP_LIMIT: Duration = Duration::from_secs(120);
const SESSION_LIMIT: Duration = Duration::from_secs(400);

/// Asks the test for a cluster, and prints kubeconfigs that the test has left.
const KIND: &str = r#"#!/bin/bash
set -eu
case "$*" in
  "create cluster --config hub.yaml" | "create cluster --config target.yaml")
    name=$(sed -n 's/^name: //p' "$4")
    cp "$4" "stage/asked-$name.part" && mv "stage/asked-$name.part" "stage/asked-$name"
    while [ ! -e "stage/made-$name" ]; do sleep 0.1; done ;;
  "get kubeconfig --internal --name hub" | "get kubeconfig --internal --name target") cat "stage/made-$5" ;;
  "load docker-image keyferry:0.1.0 --name hub") test -e "stage/image-$3" && touch "stage/loaded-$3" ;;
  "delete clusters hub target") touch stage/deleted ;;
  *) echo "no such call on the page: kind $*" >&2; exit 64 ;;
esac
"#;
/// Runs Keyferry with nothing of the user's environment, as a container does.
const DOCKER: &str = r#"#!/bin/bash
set -eu
case "$*" in
  "build -f examples/install/Dockerfile -t keyferry:0.1.0 .") test -f "$3" && touch "stage/image-$5" ;;
  "run --rm -i --network kind --user $(id -u) -v $PWD:/work -w /work keyferry:0.1.0 "*)
    test -e stage/image-keyferry:0.1.0
    shift 12
    exec env -i ALLOWED KEYFERRY "$@" ;;
  *) echo "no such call on the page: docker $*" >&2; exit 64 ;;
esac
"#;

pub(crate) async fn ends_proven(hubs: Arc<Hubs>) -> TestResult {
    let session = Session::prepare(&hubs).await?;
    let (said, clusters) = tokio::try_join!(session.run(), session.serve_the_clusters(&hubs))?;
    assert!(
        said.contains("proven: the target accepted a token"),
        "{said}"
    );
    assert!(session.has("deleted"), "{said}");
    assert!(!said.to_lowercase().contains("error"), "{said}");
    let left: Vec<_> = std::fs::read_dir(session.folder.join("checkout"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let created = ["onboarded", "keyferry", "secrets.yaml"].contains(&name.as_str());
            created || name.ends_with(".kubeconfig")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
    clusters.keyferry.process.stop().await?;
    Ok(())
}

/// The user's checkout, programs and home.
struct Session {
    folder: PathBuf,
    ports: Ports,
    /// What the user types, in the page's order.
    script: String,
}

/// What the page has created, as long as it is needed.
struct Clusters {
    keyferry: Started,
    _planes: [Arc<ControlPlane>; 2],
}

impl Session {
    async fn prepare(hubs: &Hubs) -> Result<Self, TestError> {
        let folder = process::folder(hubs, "kind-page");
        let (checkout, programs) = (folder.join("checkout"), folder.join("bin"));
        std::fs::create_dir_all(checkout.join("stage"))?;
        std::fs::create_dir_all(&programs)?;
        std::os::unix::fs::symlink(repository().join("examples"), checkout.join("examples"))?;
        for (name, text) in shown_files(&repository().join(PAGE))? {
            std::fs::write(checkout.join(name), text)?;
        }
        for (name, part) in [("kubectl", Part::Kubectl), ("helm", Part::Helm)] {
            let program = hubs.fleet().parts().locate(part).await?;
            std::os::unix::fs::symlink(program, programs.join(name))?;
        }
        let keyferry = KeyferryBinary::build().await?.path().display().to_string();
        // Here the targets are on loopback; in Docker's network they are not.
        let allowed = format!("{}={}", TARGETS_HERE.0, TARGETS_HERE.1);
        let docker = DOCKER
            .replace("ALLOWED", &allowed)
            .replace(" KEYFERRY ", &format!(" {keyferry} "));
        for (name, text) in [("kind", KIND), ("docker", &docker)] {
            let path = programs.join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        let ports = Ports::free()?;
        let public = format!("https://{}", ports.address(Port::Discovery));
        Ok(Self {
            folder,
            script: script()?.replace(PUBLIC_URL, &public),
            ports,
        })
    }

    fn stage(&self, name: &str) -> PathBuf {
        self.folder.join("checkout/stage").join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.stage(name).exists()
    }

    /// Types what the page says, and returns what was printed.
    async fn run(&self) -> Result<String, TestError> {
        let path = std::env::var("PATH").unwrap_or_default();
        // The end of every log is shown when the test fails.
        let log_path = self.folder.join("session.log");
        let log = std::fs::File::create(&log_path)?;
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &self.script])
            .current_dir(self.folder.join("checkout"))
            .env_clear()
            .env(
                "PATH",
                format!("{}:{path}", self.folder.join("bin").display()),
            )
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        let mut running = bash.spawn()?;
        let status = tokio::time::timeout(SESSION_LIMIT, running.wait())
            .await
            .map_err(|_| format!("the page is not done after {SESSION_LIMIT:?}"))??;
        let said = std::fs::read_to_string(log_path)?;
        if status.success() {
            Ok(said)
        } else {
            Err(format!("{status}: {said}").into())
        }
    }

    /// Starts what kind and the kubelet start, when the session asks for it.
    async fn serve_the_clusters(&self, hubs: &Hubs) -> Result<Clusters, TestError> {
        let hub = self.create_cluster(hubs, "hub").await?;
        let target = self.create_cluster(hubs, "target").await?;
        let keyferry = self.start_keyferry(hubs, &hub).await?;
        Ok(Clusters {
            keyferry,
            _planes: [hub, target],
        })
    }

    /// Creates the cluster of a file of the page, and leaves its kubeconfigs as kind does.
    async fn create_cluster(
        &self,
        hubs: &Hubs,
        name: &str,
    ) -> Result<Arc<ControlPlane>, TestError> {
        let asked = self.stage(&format!("asked-{name}"));
        until("the session creates a cluster", STEP_LIMIT, || async {
            Ok(asked.exists())
        })
        .await?;
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(asked)?)?;
        let spec = spec_of(name, &config, &self.folder.join("checkout"))?;
        let plane = Arc::new(hubs.fleet().start_control_plane(spec).await?);
        let admin: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(plane.admin_kubeconfig())?)?;
        let kubeconfig = |context: &str| kubeconfig_of(&admin, context);
        // kind adds a context to the user's own file, and prints one of its own.
        let home = self.folder.join(".kube");
        std::fs::create_dir_all(&home)?;
        let mut merged = kubeconfig(&format!("kind-{name}"));
        if let Ok(text) = std::fs::read_to_string(home.join("config")) {
            let before: Value = serde_json::from_str(&text)?;
            for list in ["clusters", "contexts", "users"] {
                let entries = before[list].as_array().cloned().unwrap_or_default();
                if let Some(all) = merged[list].as_array_mut() {
                    all.extend(entries);
                }
            }
        }
        std::fs::write(home.join("config"), merged.to_string())?;
        let made = kubeconfig(&format!("kind-{name}")).to_string();
        std::fs::write(self.stage("part"), made)?;
        std::fs::rename(self.stage("part"), self.stage(&format!("made-{name}")))?;
        Ok(plane)
    }

    /// Starts the Deployment's Pod once the page has applied it, as the kubelet would.
    async fn start_keyferry(
        &self,
        hubs: &Hubs,
        hub: &Arc<ControlPlane>,
    ) -> Result<Started, TestError> {
        let name = "kind-page-pod";
        let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/keyferry");
        let deployment = existing(hub, &deployment).await?;
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let image = container["image"].as_str().unwrap_or_default();
        assert!(
            self.has(&format!("loaded-{image}")),
            "{image} is not loaded"
        );
        let service = format!("/api/v1/namespaces/{NAMESPACE}/services/keyferry-node-port");
        leads_to_discovery(&existing(hub, &service).await?, &deployment)?;
        let config = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/keyferry-config");
        let config = existing(hub, &config).await?;
        let config = config["data"]["config.yaml"].as_str().unwrap_or_default();
        let config = mount_certificates(hub, pod, config, &process::folder(hubs, name)).await?;
        let shipped = Shipped {
            name,
            config,
            variables: Vec::new(),
            ports: self.ports.clone(),
        };
        process::start(hubs, hub, shipped).await
    }
}

/// An object that the page creates.
async fn existing(hub: &ControlPlane, path: &str) -> Result<Value, TestError> {
    until_object(hub.admin(), path, "created", STEP_LIMIT, |_| true).await
}

/// Checks that the port of the node leads to the listener of the documents.
fn leads_to_discovery(service: &Value, deployment: &Value) -> TestResult {
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        PUBLIC_URL.rsplit(':').next(),
        Some(port["nodePort"].to_string().as_str())
    );
    let pod = &deployment["spec"]["template"];
    let mut ports = pod["spec"]["containers"][0]["ports"]
        .as_array()
        .into_iter()
        .flatten();
    assert!(
        ports.any(|one| one["name"] == "discovery" && port["targetPort"] == "discovery"),
        "{service} {pod}"
    );
    let selector = service["spec"]["selector"].as_object();
    for (label, value) in selector.ok_or("no selector")? {
        assert_eq!(&pod["metadata"]["labels"][label], value, "{label}");
    }
    Ok(())
}

/// Writes the Secrets that the Pod mounts, and returns the configuration with these folders.
async fn mount_certificates(
    hub: &ControlPlane,
    pod: &Value,
    config: &str,
    folder: &Path,
) -> Result<String, TestError> {
    let mut config = config.to_owned();
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let Some(secret) = volume["secret"]["secretName"].as_str() else {
            continue;
        };
        let data = existing(
            hub,
            &format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}"),
        )
        .await?;
        let files = folder.join(secret);
        std::fs::create_dir_all(&files)?;
        for (file, content) in data["data"].as_object().into_iter().flatten() {
            let content = STANDARD.decode(content.as_str().unwrap_or_default())?;
            std::fs::write(files.join(file), content)?;
        }
        let mount = pod["containers"][0]["volumeMounts"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|mount| mount["name"] == volume["name"])
            .and_then(|mount| mount["mountPath"].as_str())
            .ok_or_else(|| format!("{secret} is not mounted"))?;
        config = config.replace(mount, &files.display().to_string());
    }
    Ok(config)
}

/// A kubeconfig with the admin's only entries under the name of kind's context.
fn kubeconfig_of(admin: &Value, context: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{ "name": context, "cluster": admin["clusters"][0]["cluster"] }],
        "users": [{ "name": context, "user": admin["users"][0]["user"] }],
        "contexts": [{ "name": context, "context": { "cluster": context, "user": context } }],
    })
}

/// The apiserver of a file of the page, with the paths of the checkout. Unknown settings are refused.
fn spec_of(name: &str, config: &Value, checkout: &Path) -> Result<ControlPlaneSpec, TestError> {
    let unknown = |value: &Value| TestError::from(format!("{name}: unknown settings: {value}"));
    let config: KindConfig = serde_json::from_value(config.clone()).map_err(|_| unknown(config))?;
    let [node] = config.nodes.as_slice() else {
        return Err(format!("{name} has {} nodes", config.nodes.len()).into());
    };
    let [patch] = node.kubeadm_config_patches.as_slice() else {
        return Err(format!("{name} has no patch").into());
    };
    let patch: ClusterPatch = serde_saphyr::from_str(patch)?;
    let on_the_machine = |path: &str| {
        let on_node = patch.api_server.extra_volumes.iter();
        let on_node = on_node
            .filter(|volume| volume.read_only)
            .find_map(|volume| {
                Some(format!(
                    "{}{}",
                    volume.host_path,
                    path.strip_prefix(&volume.mount_path)?
                ))
            })?;
        let mounts = node.extra_mounts.iter().filter(|mount| mount.read_only);
        mounts.into_iter().find_map(|mount| {
            let rest = on_node.strip_prefix(&mount.container_path)?;
            let folder = mount.host_path.strip_prefix("./")?;
            Some(checkout.join(folder).display().to_string() + rest)
        })
    };
    let mut spec = ControlPlaneSpec {
        issuers: vec![ISSUER_OF_KIND.to_owned()],
        controller_manager: true,
        ..ControlPlaneSpec::named(&format!("kind-{name}"))
    };
    for (flag, value) in &patch.api_server.extra_args {
        match flag.as_str() {
            "service-account-issuer" => spec.issuers = vec![value.clone()],
            "authentication-config" => {
                let file = on_the_machine(value)
                    .ok_or_else(|| format!("{name}: the apiserver does not reach {value}"))?;
                spec.extra_args.push(format!("--{flag}={file}"));
            }
            other => return Err(format!("{name}: unknown flag {other}").into()),
        }
    }
    Ok(spec)
}

/// The fields of kind's configuration that the page uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct KindConfig {
    kind: String,
    api_version: String,
    name: String,
    nodes: Vec<KindNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct KindNode {
    role: String,
    #[serde(default)]
    extra_mounts: Vec<ExtraMount>,
    kubeadm_config_patches: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExtraMount {
    host_path: String,
    container_path: String,
    read_only: bool,
}

/// kubeadm's ClusterConfiguration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct ClusterPatch {
    kind: String,
    api_server: ApiServerPatch,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApiServerPatch {
    extra_args: BTreeMap<String, String>,
    #[serde(default)]
    extra_volumes: Vec<ExtraVolume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct ExtraVolume {
    name: String,
    host_path: String,
    mount_path: String,
    read_only: bool,
}

/// The blocks of the page in order, as one shell. The copy of the file runs beside the command that
/// waits for it, as the page says.
fn script() -> Result<String, TestError> {
    let mut blocks = Vec::new();
    for block in command_blocks(&repository().join(PAGE))? {
        assert_eq!(block.run, Some(Run::Kind), "{PAGE}:{}", block.line);
        blocks.push(block.text);
    }
    let [create, install, onboard, copy, remove] = blocks.as_slice() else {
        return Err(format!("{PAGE} has {} blocks", blocks.len()).into());
    };
    Ok(format!(
        "{create}{install}(while [ ! -s onboarded/authentication.yaml ]; do sleep 0.1; done\n{copy})&\n\
         {onboard}wait\n{remove}"
    ))
}
