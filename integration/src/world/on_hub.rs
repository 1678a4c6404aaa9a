//! A hub on which TargetClusters and TargetAccesses are objects. It has the shipped installation
//! with its admission policies, two targets and two tenants.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Broker, BrokerSpec, BrokerTimes, Ground, TrustingTarget, shipped, until_trusted};
use crate::control_plane::{ControlPlane, ControlPlaneSpec};
use crate::parts::Minor;
use crate::rbac::apply_manifests;
use crate::rest::{RestClient, RestError};
use crate::runner::{Fixture, NotStarted, TestError};
use crate::wait::until_object;

/// The name of each tenant's ServiceAccount.
pub const RECONCILER: &str = "reconciler";
/// The issuer of test hubs.
pub const ISSUER: &str = "https://hub.keyferry.test";
const GROUP: &str = "/apis/keyferry.dev/v1alpha1";
/// How long the controller may take for what it does by itself.
const CONTROLLER_WAIT_LIMIT: Duration = Duration::from_secs(100);

/// A hub with the installed CRDs and admission policies, its Keyferry, and two targets.
pub struct OnHub {
    /// The hub (the newest minor).
    pub hub: Arc<ControlPlane>,
    /// The Keyferry of the hub, running as its own ServiceAccount.
    pub broker: Broker,
    /// The target of tenant-a (the newest minor), and that of tenant-b (1.33).
    pub targets: [ControlPlane; 2],
    /// The etcd, CA and binary that they use.
    pub ground: Ground,
}

impl Fixture for OnHub {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

/// Objects on the hub, and managed issuers for the targets that have one.
const LINES: &str = "objects: CustomResources\nmanagedIssuers:\n  enabled: true\n";

impl OnHub {
    /// Starts the ground, the hub, the targets and Keyferry.
    ///
    /// # Errors
    /// [`NotStarted`]: a real part is missing, or something failed.
    pub async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    /// Starts the hub, the targets and Keyferry on an existing ground.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn build(ground: Ground) -> Result<Self, TestError> {
        Self::build_with(ground, 60).await
    }

    /// As [`OnHub::build`], with a `discovery.maxAge` in seconds. Everything that waits for keys
    /// waits longer than this age.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn build_with(ground: Ground, max_age: u64) -> Result<Self, TestError> {
        Self::build_behind(ground, max_age, |hub| async move { Ok(hub.url()) }).await
    }

    /// As [`OnHub::build_with`]. Keyferry connects to the hub by the URL that `front` returns.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn build_behind<F>(
        ground: Ground,
        max_age: u64,
        front: impl FnOnce(Arc<ControlPlane>) -> F,
    ) -> Result<Self, TestError>
    where
        F: Future<Output = Result<String, TestError>>,
    {
        let spec = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let hub = Arc::new(ground.control_plane(spec).await?);
        install_for_objects(&hub).await?;
        let hub_url = front(Arc::clone(&hub)).await?;
        let spec = BrokerSpec::of_hub("main", &hub)
            .with_server_lines(LINES)
            .through(&hub_url);
        let spec = spec.with_times(BrokerTimes {
            max_stale: 300,
            max_age,
        });
        let discovery_url = spec.discovery_url()?;
        for tenant in ["tenant-a", "tenant-b"] {
            tenant_with_minter(&hub, tenant, &[RECONCILER]).await?;
        }
        let broker = ground.start_installed(&hub, spec).await?;
        let target = async |name: &'static str, minor, tenant: &str| {
            let subjects = [format!("{tenant}:{RECONCILER}")];
            let trusting = TrustingTarget {
                name,
                minor,
                issuer: ISSUER,
                audience: &audience(name),
                discovery_url: &discovery_url,
                subjects: &subjects,
            };
            ground.target(trusting).await
        };
        let (a, b) = tokio::try_join!(
            target("target-a", Minor::newest(), "tenant-a"),
            target("target-b", Minor::V1_33, "tenant-b")
        )?;
        tokio::try_join!(until_trusted(&hub, &a), until_trusted(&hub, &b))?;
        Ok(Self {
            hub,
            broker,
            targets: [a, b],
            ground,
        })
    }

    /// The spec of a TargetCluster for one of the targets, without `allow`.
    pub fn target_spec(&self, index: usize) -> Value {
        let plane = self.targets.get(index).unwrap_or(&self.targets[0]);
        json!({ "address": plane.url(), "caBundle": plane.ca_pem(), "audience": audience(plane.name()) })
    }

    /// Creates or changes a TargetCluster.
    ///
    /// # Errors
    /// Any error from the hub.
    pub async fn put_target(&self, name: &str, spec: &Value) -> Result<(), TestError> {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name }, "spec": spec,
        });
        self.hub
            .admin()
            .apply(&format!("{GROUP}/targetclusters/{name}"), &object)
            .await?;
        Ok(())
    }

    /// Creates or changes a TargetAccess of the tenant's reconciler.
    ///
    /// # Errors
    /// Any error from the hub.
    pub async fn put_access(
        &self,
        namespace: &str,
        name: &str,
        target: &str,
        further: &Value,
    ) -> Result<(), TestError> {
        let mut spec =
            json!({ "targetClusterRef": { "name": target }, "serviceAccountName": RECONCILER });
        for (field, value) in further.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": name, "namespace": namespace }, "spec": spec,
        });
        self.hub
            .admin()
            .apply(&access_path(namespace, name), &object)
            .await?;
        Ok(())
    }

    /// Waits until a condition of the access has this status and reason.
    ///
    /// # Errors
    /// It did not within 100 s. The error contains the status of the access.
    pub async fn until_access(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<Value, TestError> {
        let path = access_path(namespace, name);
        self.until(&path, &format!("{kind}={status} {reason}"), |object| {
            has_condition(object, kind, status, reason)
        })
        .await
    }

    /// Waits until a condition of the TargetCluster has this status and reason.
    ///
    /// # Errors
    /// As [`OnHub::until_access`].
    pub async fn until_target(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<Value, TestError> {
        let path = format!("{GROUP}/targetclusters/{name}");
        self.until(&path, &format!("{kind}={status} {reason}"), |object| {
            has_condition(object, kind, status, reason)
        })
        .await
    }

    /// Waits until the object at a path satisfies the check.
    ///
    /// # Errors
    /// It did not within 100 s. The error contains its status.
    pub async fn until(
        &self,
        path: &str,
        wanted: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value, TestError> {
        until_object(self.hub.admin(), path, wanted, CONTROLLER_WAIT_LIMIT, is).await
    }

    /// Applies an object whose kind has only just been added to the hub.
    ///
    /// # Errors
    /// The hub did not take it within 100 s.
    pub async fn until_served(&self, path: &str, object: &Value) -> Result<(), TestError> {
        let limit = Instant::now() + CONTROLLER_WAIT_LIMIT;
        while let Err(error) = self.hub.admin().apply(path, object).await {
            if Instant::now() > limit {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Waits until no object exists at a path on the hub, as [`until_gone`] does.
    ///
    /// # Errors
    /// The object still exists after 100 s.
    pub async fn until_gone(&self, path: &str) -> Result<(), TestError> {
        until_gone(self.hub.admin(), path).await
    }

    /// Whether an object exists at a path on the hub.
    ///
    /// # Errors
    /// The hub returns another error.
    pub async fn is_there(&self, path: &str) -> Result<bool, RestError> {
        self.hub.admin().exists(path).await
    }
}

/// Waits until no object exists at a path.
///
/// The wait is long because of the garbage collector: when the kind of an object's owner is new to
/// it, it tries again after 5 ms, 10 ms and so on, and the thirteenth and the fourteenth attempt
/// are 20 s and 41 s apart from those before them.
///
/// # Errors
/// The object still exists after 100 s.
pub async fn until_gone(client: &RestClient, path: &str) -> Result<(), TestError> {
    let limit = Instant::now() + CONTROLLER_WAIT_LIMIT;
    while client.exists(path).await? {
        if Instant::now() > limit {
            let left = client.get(path).await?;
            return Err(format!(
                "{path} is still there after {CONTROLLER_WAIT_LIMIT:?}: {}",
                left["metadata"]
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The audience of a target.
pub fn audience(target: &str) -> String {
    format!("https://{target}.keyferry.test")
}

/// The API path of a TargetAccess on the hub.
pub fn access_path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/targetaccesses/{name}")
}

/// The API path of a Secret on the hub.
pub fn secret_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

/// Whether an object has a condition with this status and reason.
pub fn has_condition(object: &Value, kind: &str, status: &str, reason: &str) -> bool {
    let conditions = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .iter()
        .any(|one| one["type"] == kind && one["status"] == status && one["reason"] == reason)
}

/// Applies the shipped CRDs, installation and admission policies, as a platform admin does.
///
/// # Errors
/// Any error from kubectl.
pub async fn install_for_objects(hub: &ControlPlane) -> Result<(), TestError> {
    let crds = ["targetclusters", "targetaccesses", "audiencepairings"]
        .map(|kind| shipped(&format!("broker/crds/{kind}.yaml")));
    let base = ["namespace", "service-accounts", "rbac", "roles"]
        .map(|name| shipped(&format!("examples/install/base/{name}.yaml")));
    let files: Vec<PathBuf> = crds.into_iter().chain(base).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    apply_manifests(hub, &files).await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd",
        "-l",
        "app.kubernetes.io/name!=x",
    ];
    hub.kubectl(&established).await?;
    let mut admission_policies: Vec<PathBuf> =
        std::fs::read_dir(shipped("examples/admission-policies"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
    admission_policies.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
            && !path.ends_with("kustomization.yaml")
    });
    admission_policies.sort();
    let admission_policies: Vec<&Path> = admission_policies.iter().map(PathBuf::as_path).collect();
    apply_manifests(hub, &admission_policies).await?;
    until_protected(hub).await
}

/// Waits until `keyferry-pairing` has its parameter's kind: until then the hub refuses every
/// TokenRequest, which is safe but would fail the tests. Only a closed namespace shows it, because
/// a request elsewhere passes as well before the hub has seen the policy.
async fn until_protected(hub: &ControlPlane) -> Result<(), TestError> {
    const CLOSED: &str = "closed-for-the-set-up";
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": CLOSED, "labels": { "access.keyferry.dev/closed": "true" } },
    });
    hub.admin().create("/api/v1/namespaces", &namespace).await?;
    hub.create_service_account(CLOSED, "nobody").await?;
    let limit = Instant::now() + CONTROLLER_WAIT_LIMIT;
    loop {
        let refused = hub.token_request(CLOSED, "nobody", &[], 600).await;
        let refused = refused.err().map(|error| error.to_string());
        if refused
            .as_deref()
            .is_some_and(|text| text.contains("no params found"))
        {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!(
                "the admission policies are not active after {CONTROLLER_WAIT_LIMIT:?}: {refused:?}"
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Creates a tenant's namespace with ServiceAccounts, and Keyferry's right to mint and deliver in
/// it.
///
/// # Errors
/// Any error from the hub.
pub async fn tenant_with_minter(
    hub: &ControlPlane,
    namespace: &str,
    accounts: &[&str],
) -> Result<(), TestError> {
    hub.create_namespace(namespace).await?;
    for account in accounts {
        hub.create_service_account(namespace, account).await?;
    }
    bind_minter(hub, namespace).await
}

/// Creates the RoleBinding of `examples/install/tenant` in a namespace.
///
/// # Errors
/// Any error from the hub.
pub async fn bind_minter(hub: &ControlPlane, namespace: &str) -> Result<(), TestError> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "keyferry-minter", "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keyferry-minter" },
        "subjects": [{ "kind": "ServiceAccount", "name": "keyferry", "namespace": "keyferry-system" }],
    });
    let path = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/keyferry-minter"
    );
    hub.admin().apply(&path, &binding).await?;
    Ok(())
}

/// Makes Keyferry replace a delivery's Secret with a new token. The new lifetime requires another
/// token, and the past `renew-at` annotation makes the renewal due now.
///
/// # Errors
/// Any error from the hub.
pub async fn renew_with_lifetime(
    hub: &ControlPlane,
    namespace: &str,
    access: &str,
    secret: &str,
    lifetime: &str,
) -> Result<(), TestError> {
    let path = access_path(namespace, access);
    let mut deliveries = hub.admin().get(&path).await?["spec"]["deliveries"].take();
    for delivery in deliveries.as_array_mut().into_iter().flatten() {
        delivery["tokenLifetime"] = lifetime.into();
    }
    hub.admin()
        .patch(&path, &json!({ "spec": { "deliveries": deliveries } }))
        .await?;
    let due = json!({ "metadata": { "annotations": { "keyferry.dev/renew-at": "2026-01-01T00:00:00Z" } } });
    hub.admin()
        .patch(&secret_path(namespace, secret), &due)
        .await?;
    let look = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": lifetime } } });
    hub.admin().patch(&path, &look).await?;
    Ok(())
}
