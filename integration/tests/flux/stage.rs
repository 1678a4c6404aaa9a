//! A hub with Keyferry and Flux, a target for each of two tenants, and a repository for each.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::FleetError;
use keyferry_integration::flux::{Flux, FluxShard, FluxSpec, KustomizationSpec, until_ready};
use keyferry_integration::git_server::{GitServer, Repository};
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path, audience};
use keyferry_integration::world::{Broker, Ground, TrustingTarget, put_secret, until_trusted};
use serde_json::{Value, json};

/// The namespace at the target in which tenants put their objects.
pub(crate) const APPS: &str = "apps";

pub(crate) struct Stage {
    pub(crate) hub: Arc<ControlPlane>,
    /// The targets of tenant-a (the newest minor) and of tenant-b (1.33).
    pub(crate) targets: [ControlPlane; 2],
    pub(crate) git: GitServer,
    flux: Flux,
    pub(crate) broker: Broker,
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
        GitServer::prepare().await.map_err(FleetError::from)?;
        Flux::prepare(ground.parts())
            .await
            .map_err(FleetError::from)?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let OnHub {
            hub,
            broker,
            targets,
            ground,
        } = OnHub::build(ground).await?;
        for (plane, allowed) in [
            (&targets[0], ("tenant-a", "KubeConfigSecret")),
            (&targets[1], ("tenant-b", "FluxConfigMap")),
        ] {
            may_apply(plane, &[allowed.0]).await?;
            declare(&hub, plane, &plane.url(), &[allowed]).await?;
        }
        let git = GitServer::start(ground.folder())?;
        let flux = Flux::start(
            &hub,
            ground.parts(),
            ground.folder(),
            &FluxSpec::with_workload_identity(),
        )
        .await?;
        Ok(Self {
            hub,
            targets,
            git,
            flux,
            broker,
            ground,
        })
    }

    /// Starts a further target (the newest minor) that accepts the reconcilers of these tenants and lets them
    /// apply.
    pub(crate) async fn target_of(
        &self,
        name: &str,
        tenants: &[&str],
    ) -> Result<ControlPlane, TestError> {
        let target = self.target_without_rights(name, tenants).await?;
        may_apply(&target, tenants).await?;
        Ok(target)
    }

    /// Starts a further target (1.36) that accepts the reconcilers of these tenants, and has no
    /// RBAC for them.
    pub(crate) async fn target_without_rights(
        &self,
        name: &str,
        tenants: &[&str],
    ) -> Result<ControlPlane, TestError> {
        let trusting = TrustingTarget {
            name,
            minor: Minor::newest(),
            issuer: "https://hub.keyferry.test",
            audience: &audience(name),
            discovery_url: &format!(
                "{}/.well-known/openid-configuration",
                self.broker.discovery_url()
            ),
            subjects: &tenants
                .iter()
                .map(|tenant| format!("{tenant}:{RECONCILER}"))
                .collect::<Vec<_>>(),
        };
        let target = self.ground.target(trusting).await?;
        until_trusted(&self.hub, &target).await?;
        Ok(target)
    }

    /// Starts a further control plane.
    pub(crate) async fn control_plane(
        &self,
        spec: ControlPlaneSpec,
    ) -> Result<ControlPlane, TestError> {
        self.ground.control_plane(spec).await
    }

    /// Starts a kustomize-controller with these settings for the objects of one shard.
    pub(crate) async fn shard(&self, shard: &str, spec: &FluxSpec) -> Result<FluxShard, TestError> {
        self.flux
            .start_shard(self.ground.parts(), shard, spec)
            .await
    }

    /// Runs a command of the binary and returns what it prints.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<String, TestError> {
        let output = self.ground.binary().run(args, &[]).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("keyferry {}: {said}", args.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The etcd, the CA and the binaries.
    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// A folder for files of tests.
    pub(crate) fn folder(&self) -> &Path {
        self.ground.folder()
    }

    /// The path of the binary.
    pub(crate) fn binary(&self) -> &Path {
        self.ground.binary().path()
    }

    /// Flux's messages about a Kustomization that it could not apply.
    pub(crate) fn failures_of(&self, name: &str) -> Vec<String> {
        let named = format!("\"name\":\"{name}\"");
        self.flux
            .log(100_000)
            .lines()
            .filter(|line| line.contains("ERROR") && line.contains(&named))
            .map(str::to_owned)
            .collect()
    }

    /// A repository with one ConfigMap of this name for the target, and the commit's hash.
    pub(crate) async fn repository_of(
        &self,
        name: &str,
    ) -> Result<(Repository, String), TestError> {
        let repository = self.git.create(name).await?;
        let commit = repository
            .commit(&[("apps/config.yaml", &config_map(name, "first"))])
            .await?;
        Ok((repository, commit))
    }
}

/// Declares a TargetCluster for each of these tenants with one kind of delivery, and with its CA in
/// a Secret of the same name.
pub(crate) async fn declare(
    hub: &ControlPlane,
    plane: &ControlPlane,
    address: &str,
    allowed: &[(&str, &str)],
) -> Result<(), TestError> {
    let name = plane.name();
    put_secret(hub, name, &[("ca.crt", plane.ca_pem())]).await?;
    let allow: Vec<Value> = allowed
        .iter()
        .map(|(tenant, delivery)| json!({ "namespaces": [tenant], "serviceAccounts": [RECONCILER], "deliveries": [delivery] }))
        .collect();
    let spec = json!({ "address": address, "audience": audience(name), "certSecretRef": { "name": name }, "allow": allow });
    let target = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name }, "spec": spec });
    hub.admin()
        .apply(
            &format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}"),
            &target,
        )
        .await?;
    Ok(())
}

/// Creates a tenant's access to its target, with one delivery into an object of the access's own
/// name, and waits until it is ready.
pub(crate) async fn access(
    hub: &ControlPlane,
    tenant: &str,
    name: &str,
    delivery: &str,
) -> Result<(), TestError> {
    access_to(
        &tenant.replace("tenant", "target"),
        hub,
        tenant,
        name,
        delivery,
    )
    .await
}

/// As [`access`], for any target.
pub(crate) async fn access_to(
    target: &str,
    hub: &ControlPlane,
    tenant: &str,
    name: &str,
    delivery: &str,
) -> Result<(), TestError> {
    let deliveries = json!([{ "name": "flux", "type": delivery, "objectName": name }]);
    let spec = json!({ "targetClusterRef": { "name": target }, "serviceAccountName": RECONCILER, "deliveries": deliveries });
    let named = json!({ "name": name, "namespace": tenant });
    let access = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": named, "spec": spec });
    hub.admin()
        .apply(&access_path(tenant, name), &access)
        .await?;
    until_ready(hub, &access_path(tenant, name)).await?;
    Ok(())
}

/// A ConfigMap as it is in a repository.
pub(crate) fn config_map(name: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: \
         {APPS}\ndata:\n  text: {text}\n"
    )
}

/// The API path of that ConfigMap at a target.
pub(crate) fn config_map_path(name: &str) -> String {
    format!("/api/v1/namespaces/{APPS}/configmaps/{name}")
}

/// The users that patched this ConfigMap at the target, by the target's own audit log, as
/// `username` or `username as impersonated`.
pub(crate) fn who_applied(target: &ControlPlane, name: &str) -> Result<Vec<String>, TestError> {
    let events = target.audit_events()?;
    let of_it = events
        .iter()
        .filter(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name);
    let mut users: Vec<String> = of_it
        .map(|event| {
            let name = |user: &str| event[user]["username"].as_str().map(str::to_owned);
            let caller = name("user").unwrap_or_default();
            name("impersonatedUser")
                .map_or_else(|| caller.clone(), |other| format!("{caller} as {other}"))
        })
        .collect();
    users.sort();
    users.dedup();
    Ok(users)
}

/// Waits until Flux has applied this commit and is Ready.
pub(crate) async fn until_applied(
    hub: &ControlPlane,
    spec: &KustomizationSpec<'_>,
    commit: &str,
) -> Result<(), TestError> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let object = until_ready(hub, &spec.path()).await?;
        let revision = object["status"]["lastAppliedRevision"]
            .as_str()
            .unwrap_or_default();
        if revision.contains(commit) {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("{commit} is not applied after a minute, but {revision}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Grants what the target's admin grants each tenant: ConfigMaps in one namespace, for the user
/// name that the target knows.
pub(crate) async fn may_apply(target: &ControlPlane, tenants: &[&str]) -> Result<(), TestError> {
    target.create_namespace(APPS).await?;
    let api = "rbac.authorization.k8s.io";
    for tenant in tenants {
        let named = json!({ "name": tenant, "namespace": APPS });
        let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"] }]);
        let role = json!({ "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": named, "rules": rules });
        let subject: Value = json!({ "apiGroup": api, "kind": "User", "name": user(tenant) });
        let role_ref = json!({ "apiGroup": api, "kind": "Role", "name": tenant });
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": named, "roleRef": role_ref, "subjects": [subject],
        });
        target
            .admin()
            .apply(
                &format!("/apis/{api}/v1/namespaces/{APPS}/roles/{tenant}"),
                &role,
            )
            .await?;
        target
            .admin()
            .apply(
                &format!("/apis/{api}/v1/namespaces/{APPS}/rolebindings/{tenant}"),
                &binding,
            )
            .await?;
    }
    Ok(())
}

/// The user name of the tenant at its target.
pub(crate) fn user(tenant: &str) -> String {
    format!("hub:system:serviceaccount:{tenant}:{RECONCILER}")
}
