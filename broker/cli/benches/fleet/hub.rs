//! The hub with the shipped installation, its tenants and targets, and Keyferry.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Parts;
use keyferry_integration::world::on_hub::{install_for_objects, tenant_with_minter};
use keyferry_integration::world::{Broker, BrokerSpec, Ground};
use serde_json::{Value, json};

use super::plan::{self, ACCOUNT, Access, SHORT, SHORT_LIVED, TENANTS};
use super::seen::{self, ACCESSES, TARGET_CLUSTERS};
use crate::harness::Outcome;
use crate::harness::process::now;

/// The number of concurrent requests of this benchmark.
const AT_ONCE: usize = 32;
/// How long the hub may take until its policies are active.
const POLICY_ACTIVE: Duration = Duration::from_secs(60);

/// A hub with the shipped installation, and its Keyferry.
pub struct Hub {
    /// The hub.
    pub plane: Arc<ControlPlane>,
    /// Keyferry.
    pub broker: Broker,
    ground: Ground,
}

impl Hub {
    /// Starts and creates everything except TargetAccesses.
    pub async fn start(targets: usize) -> Outcome<Self> {
        let built = std::env::var_os("KEYFERRY_BIN")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_keyferry").into());
        let binary = KeyferryBinary::at(built);
        let ground = Ground::start_with(binary)
            .await
            .map_err(|missing| format!("{missing:?}"))?;
        let spec = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            // The audit log must not rotate at the usual 100 MB, because the calls in it are
            // counted.
            extra_args: vec!["--audit-log-maxsize=2000".to_owned()],
            ..ControlPlaneSpec::named("hub")
        };
        let plane = Arc::new(ground.control_plane(spec).await?);
        install_for_objects(&plane).await?;
        let tenants =
            stream::iter((0..TENANTS).map(plan::tenant)).map(|tenant| tenant_of(&plane, tenant));
        tenants
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let short: Vec<String> = (0..SHORT_LIVED).map(plan::short_lived_account).collect();
        let short: Vec<&str> = short.iter().map(String::as_str).collect();
        tenant_with_minter(&plane, SHORT, &short).await?;
        until_protected(&plane).await?;
        let broker = ground
            .start_installed(
                &plane,
                BrokerSpec::of_hub("fleet", &plane).with_server_lines("objects: CustomResources\n"),
            )
            .await?;
        let hub = Self {
            plane,
            broker,
            ground,
        };
        hub.make_targets(targets).await?;
        Ok(hub)
    }

    /// The binary under test.
    pub fn binary(&self) -> &Path {
        self.ground.binary().path()
    }

    /// The real binaries.
    pub fn parts(&self) -> &Parts {
        self.ground.parts()
    }

    /// The process ID of Keyferry.
    pub fn keyferry(&self) -> Outcome<u32> {
        self.broker
            .process()
            .id()
            .ok_or_else(|| "Keyferry has ended".into())
    }

    /// Creates all accesses, several at once. Calls `made` for each one once the hub has it.
    pub async fn make(&self, accesses: &[Access], made: impl Fn(&Access)) -> Outcome<()> {
        let one = |access: &Access| {
            let (path, object) = (
                format!("{}/{}/targetaccesses", seen::NAMESPACES, access.namespace),
                access.object(),
            );
            let access = access.clone();
            async move {
                self.plane
                    .admin()
                    .create(&path, &object)
                    .await
                    .map(|_| access)
            }
        };
        let mut making =
            stream::iter(accesses.iter().map(one).collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some(access) = making.next().await {
            made(&access?);
        }
        Ok(())
    }

    /// Changes the `allow[]` of a target.
    pub async fn allow(&self, target: usize, allow: &Value) -> Outcome<()> {
        let path = format!("{TARGET_CLUSTERS}/{}", plan::target(target));
        self.plane
            .admin()
            .patch(&path, &json!({ "spec": { "allow": allow } }))
            .await?;
        Ok(())
    }

    /// The status of an access that is not ready, to report what blocks it.
    pub async fn first_unready(&self) -> Outcome<Option<Value>> {
        let all = self.plane.admin().get(ACCESSES).await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .into_iter()
            .find(|access| !seen::is_ready(access))
            .map(|access| access["status"]["conditions"].clone()))
    }

    /// Creates targets that respond and refuse accounts that they do not allow. Their address is
    /// the hub itself, which accepts none of these audiences.
    async fn make_targets(&self, targets: usize) -> Outcome<()> {
        for index in 0..targets {
            let name = plan::target(index);
            let object = json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name },
                "spec": {
                    "address": self.plane.url(), "caBundle": self.plane.ca_pem(),
                    "audience": format!("https://{name}.keyferry.test"), "allow": plan::allow(),
                },
            });
            self.plane.admin().create(TARGET_CLUSTERS, &object).await?;
        }
        Ok(())
    }
}

/// Waits until the hub knows the kind of its policies' parameter. A hub with new policies refuses
/// every TokenRequest until then.
async fn until_protected(plane: &ControlPlane) -> Outcome<()> {
    let end = now() + POLICY_ACTIVE;
    loop {
        match plane
            .token_request(SHORT, &plan::short_lived_account(0), &[], 600)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if now() > end => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn tenant_of(plane: &ControlPlane, tenant: String) -> Outcome<()> {
    tenant_with_minter(plane, &tenant, &[ACCOUNT]).await
}
