//! A hub with Keyferry, a target, and a folder for the files that consumers read.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::rendered::Delivered;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::user_home::program_at_home;
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, Access, Broker, BrokerSpec, Ground, TENANT, Target, TrustingTarget,
    caller_token, until_trusted,
};
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
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        for part in [Part::ArgoCd, Part::ClusterInventory] {
            ground
                .parts()
                .locate(part)
                .await
                .map_err(FleetError::from)?;
        }
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let hub = ground.hub(ControlPlaneSpec::named("hub")).await?;
        let spec = BrokerSpec::of_hub("main", &hub);
        let discovery_url = spec.discovery_url()?;
        let broker = ground.start_broker(&hub, spec).await?;
        let trusting = TrustingTarget {
            name: "target-a",
            minor: Minor::newest(),
            issuer: "https://hub.keyferry.test",
            audience: AUDIENCE_A,
            discovery_url: &discovery_url,
            subjects: &[format!("{TENANT}:{ACCOUNT}")],
        };
        let target = ground.target(trusting).await?;
        let configured = broker.reconfigure(|targets, accesses| {
            targets.push(Target::of(&target, AUDIENCE_A).allowing(TENANT, &[ACCOUNT]));
            accesses.push(Access::of(TENANT, "apps", target.name(), ACCOUNT));
            accesses.push(Access::of(TENANT, "more", target.name(), ACCOUNT));
        });
        configured.await?;
        until_trusted(&hub, &target).await?;
        Ok(Self {
            hub,
            target,
            broker,
            ground,
        })
    }

    /// The object that a delivery writes for `tenant-a/apps`, with this token if it contains one.
    pub(crate) fn delivered(
        &self,
        delivery: &Value,
        token: Option<&str>,
    ) -> Result<Value, TestError> {
        self.delivered_for("apps", delivery, token)
    }

    /// As [`Self::delivered`], for an access of another name.
    pub(crate) fn delivered_for(
        &self,
        access: &str,
        delivery: &Value,
        token: Option<&str>,
    ) -> Result<Value, TestError> {
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
            "metadata": metadata(access),
            "spec": { "targetClusterRef": { "name": self.target.name() }, "serviceAccountName": ACCOUNT, "deliveries": [delivery] },
        });
        access["metadata"]["namespace"] = TENANT.into();
        Delivered {
            target: &target,
            access: &access,
            ca_pem: self.target.ca_pem(),
        }
        .render(token)
    }

    /// The accesses for which the exchange has issued tokens, in order.
    pub(crate) fn handed_out(&self) -> Result<Vec<String>, TestError> {
        let granted = self
            .broker
            .audit()?
            .into_iter()
            .filter(|record| record["route"] == "exchange" && record["decision"] == "granted");
        Ok(granted
            .filter_map(|record| record["access"].as_str().map(str::to_owned))
            .collect())
    }

    /// A token for the target, issued by Keyferry.
    pub(crate) async fn token(&self) -> Result<String, TestError> {
        let caller = caller_token(&self.hub, TENANT, ACCOUNT).await?;
        self.broker
            .exchange_in_time(&caller, "tenant-a/apps")
            .await?
            .token()
    }

    /// A home folder with the user's own client file, and Keyferry's program in `bin`. A client
    /// that does not name the server for the token gets a token only if that file allows it.
    pub(crate) async fn home(
        &self,
        folder: &Path,
        allow_unpinned_server: bool,
    ) -> Result<(), TestError> {
        let (bin, own) = (folder.join("bin"), folder.join(".config/keyferry"));
        std::fs::create_dir_all(&bin)?;
        std::fs::create_dir_all(&own)?;
        let program = program_at_home(self.ground.binary().path(), folder)?;
        std::os::unix::fs::symlink(program, bin.join("keyferry"))?;
        std::fs::write(
            own.join("caller-token"),
            caller_token(&self.hub, TENANT, ACCOUNT).await?,
        )?;
        let file = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: {}\ncertificateAuthority: {}\n\
             tokenFile: caller-token\nallowUnpinnedServer: {allow_unpinned_server}\n",
            self.broker.api_url(),
            self.broker.ca_path().display(),
        );
        std::fs::write(own.join("client.yaml"), file)?;
        Ok(())
    }

    /// Runs a consumer with this home folder.
    pub(crate) async fn consume(
        &self,
        part: Part,
        files: &[&Path],
        home: &Path,
    ) -> Result<Output, TestError> {
        let program = self.ground.parts().locate(part).await?;
        let path = std::env::var("PATH").unwrap_or_default();
        let run = Command::new(program)
            .args(files)
            .env("PATH", format!("{}:{path}", home.join("bin").display()))
            .env("HOME", home)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
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
    let path = folder.join(format!(
        "{}.json",
        object["kind"].as_str().unwrap_or("object")
    ));
    std::fs::write(&path, object.to_string())?;
    Ok(path)
}
