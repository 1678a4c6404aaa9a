//! A hub with Keyferry and Flux, a target for each of two tenants, and a repository for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::FleetError;
use keyferry_integration::flux::{Flux, FluxSpec};
use keyferry_integration::git_server::{GitServer, Repository};
use keyferry_integration::parts::Minor;
use keyferry_integration::rest::{RestClient, RestError};
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{Access, Broker, BrokerSpec, Ground, Target, TrustingTarget, make_tenant};
use serde_json::{Value, json};

/// The ServiceAccount of each tenant.
pub(crate) const ACCOUNT: &str = "reconciler";
/// Where tenants put their things at their target.
pub(crate) const APPS: &str = "apps";

pub(crate) struct Stage {
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) broker: Broker,
    pub(crate) git: GitServer,
    /// Of tenant-a (1.36) and of tenant-b (1.33).
    pub(crate) targets: [ControlPlane; 2],
    flux: Flux,
    ground: Ground,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        format!("{}--- kustomize-controller\n{}\n", self.ground.log_tails(), self.flux.log(15))
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Stage, NotStarted> {
        let ground = Ground::start().await?;
        Flux::prepare(ground.parts()).await.map_err(FleetError::from)?;
        Stage::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Stage, TestError> {
        let spec = ControlPlaneSpec { controller_manager: true, audit_log: true, ..ControlPlaneSpec::named("hub") };
        let hub = ground.hub(spec).await?;
        make_tenant(&hub, "tenant-b", &[ACCOUNT]).await?;
        let spec = BrokerSpec::of_hub("main", &hub);
        let discovery_url = spec.discovery_url()?;
        let broker = ground.start_broker(&hub, spec).await?;
        let target = async |name, minor, tenant: &str| -> Result<ControlPlane, TestError> {
            let subjects = [format!("{tenant}:{ACCOUNT}")];
            let (issuer, audience) = ("https://hub.keyferry.test", &audience(name));
            let trusting = TrustingTarget { name, minor, issuer, audience, discovery_url: &discovery_url, subjects: &subjects };
            let plane = ground.target(trusting).await?;
            may_apply(&plane, tenant).await?;
            Ok(plane)
        };
        let (a, b) = tokio::try_join!(target("target-a", Minor::V1_36, "tenant-a"), target("target-b", Minor::V1_33, "tenant-b"))?;
        let configured = broker.reconfigure(|targets, accesses| {
            for (plane, tenant) in [(&a, "tenant-a"), (&b, "tenant-b")] {
                targets.push(Target::of(plane, &audience(plane.name())).allowing(tenant, &[ACCOUNT]));
                accesses.push(Access::of(tenant, "apps", plane.name(), ACCOUNT));
            }
        });
        configured.await?;
        let git = GitServer::start(ground.folder())?;
        let flux = Flux::start(&hub, ground.parts(), ground.folder(), &FluxSpec::with_workload_identity()).await?;
        Ok(Stage { hub, broker, git, targets: [a, b], flux, ground })
    }

    /// A repository that holds one ConfigMap of this name for the target, and the commit's hash.
    pub(crate) async fn repository_of(&self, name: &str) -> Result<(Repository, String), TestError> {
        let repository = self.git.create(name).await?;
        let commit = repository.commit(&[("apps/config.yaml", &config_map(name, "first"))]).await?;
        Ok((repository, commit))
    }
}

/// The audience of a target.
pub(crate) fn audience(target: &str) -> String {
    format!("https://{target}.keyferry.test")
}

/// A ConfigMap, as it lies in a repository.
pub(crate) fn config_map(name: &str, text: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {APPS}\ndata:\n  text: {text}\n")
}

/// Its path at a target.
pub(crate) fn config_map_path(name: &str) -> String {
    format!("/api/v1/namespaces/{APPS}/configmaps/{name}")
}

/// Who patched this ConfigMap at the target, by the target's own audit log, as `username` or `username as impersonated`.
pub(crate) fn who_applied(target: &ControlPlane, name: &str) -> Result<Vec<String>, TestError> {
    let events = target.audit_events()?;
    let of_it = events.iter().filter(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name);
    let mut users: Vec<String> = of_it
        .map(|event| {
            let name = |user: &str| event[user]["username"].as_str().map(str::to_owned);
            let caller = name("user").unwrap_or_default();
            name("impersonatedUser").map_or_else(|| caller.clone(), |other| format!("{caller} as {other}"))
        })
        .collect();
    users.sort();
    users.dedup();
    Ok(users)
}

/// Waits until an object is gone.
pub(crate) async fn until_gone(client: &RestClient, path: &str) -> Result<(), TestError> {
    let limit = Instant::now() + Duration::from_secs(30);
    while is_there(client, path).await? {
        if Instant::now() > limit {
            return Err(format!("{path} is still there after 30 s").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether an object is there.
pub(crate) async fn is_there(client: &RestClient, path: &str) -> Result<bool, RestError> {
    match client.get(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.status() == Some(404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the target's admin grants the tenant: ConfigMaps in one namespace, by the name that the target knows it by.
async fn may_apply(target: &ControlPlane, tenant: &str) -> Result<(), TestError> {
    target.create_namespace(APPS).await?;
    let api = "rbac.authorization.k8s.io";
    let named = json!({ "name": tenant, "namespace": APPS });
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"] }]);
    let role = json!({ "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": named, "rules": rules });
    let subject: Value = json!({ "apiGroup": api, "kind": "User", "name": user(tenant) });
    let role_ref = json!({ "apiGroup": api, "kind": "Role", "name": tenant });
    let binding =
        json!({ "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": named, "roleRef": role_ref, "subjects": [subject] });
    target.admin().apply(&format!("/apis/{api}/v1/namespaces/{APPS}/roles/{tenant}"), &role).await?;
    target.admin().apply(&format!("/apis/{api}/v1/namespaces/{APPS}/rolebindings/{tenant}"), &binding).await?;
    Ok(())
}

/// The tenant's name at its target.
pub(crate) fn user(tenant: &str) -> String {
    format!("hub:system:serviceaccount:{tenant}:{ACCOUNT}")
}
