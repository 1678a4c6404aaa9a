//! A hub with Keyferry, a target, and a folder for what consumers read.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::rendered::Delivered;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, Access, Broker, BrokerSpec, Ground, TENANT, Target, TrustingTarget, caller_token};
use serde_json::{Value, json};
use tokio::process::Command;

pub(crate) const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";

pub(crate) struct Stage {
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) target: ControlPlane,
    broker: Broker,
    ground: Ground,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Stage, NotStarted> {
        let ground = Ground::start().await?;
        for part in [Part::ArgoCd, Part::ClusterInventory] {
            ground.parts().locate(part).await.map_err(FleetError::from)?;
        }
        Stage::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Stage, TestError> {
        let hub = ground.hub(ControlPlaneSpec::named("hub")).await?;
        let spec = BrokerSpec::of_hub("main", &hub);
        let discovery_url = spec.discovery_url()?;
        let broker = ground.start_broker(&hub, spec).await?;
        let trusting = TrustingTarget {
            name: "target-a",
            minor: Minor::V1_36,
            issuer: "https://hub.keyferry.test",
            audience: AUDIENCE_A,
            discovery_url: &discovery_url,
            subjects: &[format!("{TENANT}:{ACCOUNT}")],
        };
        let target = ground.target(trusting).await?;
        let configured = broker.reconfigure(|targets, accesses| {
            targets.push(Target::of(&target, AUDIENCE_A).allowing(TENANT, &[ACCOUNT]));
            accesses.push(Access::of(TENANT, "apps", target.name(), ACCOUNT));
        });
        configured.await?;
        Ok(Stage { hub, target, broker, ground })
    }

    /// The object that a delivery writes for `tenant-a/apps`, around this token where it holds one.
    pub(crate) fn delivered(&self, delivery: &Value, token: Option<&str>) -> Result<Value, TestError> {
        let metadata = |name: &str| json!({ "name": name, "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" });
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1",
            "kind": "TargetCluster",
            "metadata": metadata(self.target.name()),
            "spec": { "address": self.target.url(), "audience": AUDIENCE_A },
        });
        let mut access = json!({
            "apiVersion": "keyferry.dev/v1alpha1",
            "kind": "TargetAccess",
            "metadata": metadata("apps"),
            "spec": { "targetClusterRef": { "name": self.target.name() }, "serviceAccountName": ACCOUNT, "deliveries": [delivery] },
        });
        access["metadata"]["namespace"] = TENANT.into();
        Delivered { target: &target, access: &access, ca_pem: self.target.ca_pem() }.render(token)
    }

    /// A token for the target, from Keyferry.
    pub(crate) async fn token(&self) -> Result<String, TestError> {
        let caller = caller_token(&self.hub, TENANT, ACCOUNT).await?;
        self.broker.exchange_in_time(&caller, "tenant-a/apps").await?.token()
    }

    /// A folder that holds a program named `keyferry`: it prints an ExecCredential in the version that is asked for, with a token that the
    /// real `keyferry token` fetches for the access that its arguments name, or else `spec.cluster.config`.
    pub(crate) async fn plugin_folder(&self, folder: &Path) -> Result<PathBuf, TestError> {
        use std::os::unix::fs::PermissionsExt;
        let caller = folder.join("caller-token");
        std::fs::write(&caller, caller_token(&self.hub, TENANT, ACCOUNT).await?)?;
        let script = format!(
            "#!/bin/sh\nset -eu\n[ \"$1\" = credential ]\n\
             asked() {{ printf '%s' \"$KUBERNETES_EXEC_INFO\" | sed -n \"s|.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*|\\1|p\"; }}\n\
             token=$('{keyferry}' token \"${{2:-$(asked clusterName)}}\" --server '{server}' --certificate-authority '{ca}' --token-file '{caller}')\n\
             printf '{{\"apiVersion\":\"%s\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"%s\"}}}}' \"$(asked apiVersion)\" \"$token\"\n",
            keyferry = self.ground.binary().path().display(),
            server = self.broker.api_url(),
            ca = self.broker.ca_path().display(),
            caller = caller.display(),
        );
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin)?;
        std::fs::write(bin.join("keyferry"), script)?;
        std::fs::set_permissions(bin.join("keyferry"), std::fs::Permissions::from_mode(0o755))?;
        Ok(bin)
    }

    /// Runs a consumer with this folder in front of its PATH.
    pub(crate) async fn consume(&self, part: Part, files: &[&Path], bin: &Path) -> Result<Output, TestError> {
        let program = self.ground.parts().locate(part).await?;
        let path = std::env::var("PATH").unwrap_or_default();
        let run = Command::new(program)
            .args(files)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", bin)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        Ok(tokio::time::timeout(std::time::Duration::from_secs(60), run).await??)
    }
}

/// What a consumer printed.
pub(crate) fn printed(output: &Output) -> Result<Value, TestError> {
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("it failed: {}", said(output)).into()),
    }
}

/// What a consumer wrote on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes an object to a file.
pub(crate) fn file(folder: &Path, object: &Value) -> Result<PathBuf, TestError> {
    let path = folder.join(format!("{}.json", object["kind"].as_str().unwrap_or("object")));
    std::fs::write(&path, object.to_string())?;
    Ok(path)
}
