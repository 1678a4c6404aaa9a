//! The environment of a new user: a shell with `keyferry` and `kubectl` on the PATH, a kubeconfig
//! of the hub, and two Keyferries.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::Whom;
use keyferry_integration::fleet::FleetError;
use keyferry_integration::keyferry_process::TARGETS_HERE;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::user_home::program_at_home;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, audience};
use keyferry_integration::world::{
    Access, Broker, BrokerSpec, Ground, Subject, Target, caller_token, let_mint, put_secret,
};
use serde_json::{Value, json};
use tokio::process::Command;

/// The time limit of one line.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Place {
    pub(crate) world: OnHub,
    /// The Keyferry with a configuration file, for the other tenant at the other target. It could
    /// not use an audience that is declared on the hub: the hub's admission policy would refuse
    /// those tokens.
    pub(crate) by_file: Broker,
}

impl Fixture for Place {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Place {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        ground
            .parts()
            .locate(Part::Kubectl)
            .await
            .map_err(FleetError::from)?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let world = OnHub::build(ground).await?;
        let target = &world.targets[0];
        put_secret(&world.hub, "prod-ca", &[("ca.crt", target.ca_pem())]).await?;
        let prod = json!({
            "address": target.url(), "audience": audience(target.name()), "certSecretRef": { "name": "prod-ca" },
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER],
                        "deliveries": ["HTTP", "Exec", "FluxConfigMap", "KubeConfigSecret"] }],
        });
        world.put_target("prod", &prod).await?;
        let deliveries = json!({ "deliveries": [
            { "name": "flux", "type": "KubeConfigSecret" }, { "name": "http", "type": "HTTP" }, { "name": "exec", "type": "Exec" },
        ] });
        world
            .put_access("tenant-a", "prod", "prod", &deliveries)
            .await?;
        world
            .until_access("tenant-a", "prod", "Ready", "True", "Ready")
            .await?;
        let published = |target: &Value| target["status"]["issuer"].is_string();
        world
            .until(
                "/apis/keyferry.dev/v1alpha1/targetclusters/prod",
                "with the hub's issuer",
                published,
            )
            .await?;
        flux_objects(&world).await?;
        rights_at(&world).await?;

        let target = &world.targets[1];
        let prod = Target::of(target, &audience(target.name()))
            .named("prod")
            .allowing("tenant-b", &[RECONCILER]);
        let spec = BrokerSpec::of_hub("file", &world.hub)
            .alone()
            .with_server_lines("managedIssuers:\n  enabled: true\n")
            .with_target(prod);
        let keyferry = Subject::ServiceAccount("keyferry-file", "keyferry");
        let_mint(
            &world.hub,
            "keyferry-file",
            keyferry,
            "tenant-b",
            &[RECONCILER],
        )
        .await?;
        let by_file = world
            .ground
            .start_broker(
                &world.hub,
                spec.with_access(Access::of("tenant-b", "prod", "prod", RECONCILER)),
            )
            .await?;
        Ok(Self { world, by_file })
    }

    /// A user's shell in its own folder, with everything that the documents assume.
    pub(crate) async fn shell(
        &self,
        name: &str,
        broker: &Broker,
        tenant: &str,
    ) -> Result<Shell, TestError> {
        let folder = self.world.ground.folder().join(format!("walk-{name}"));
        let programs = folder.join("bin");
        std::fs::create_dir_all(&programs)?;
        let kubectl = self.world.ground.parts().locate(Part::Kubectl).await?;
        // The exec plugin of this user finds the user's own file in this folder.
        let keyferry = program_at_home(self.world.ground.binary().path(), &folder)?;
        link(&keyferry, &programs.join("keyferry"))?;
        link(
            self.world.ground.binary().path(),
            &programs.join("kubectl-keyferry"),
        )?;
        link(&kubectl, &programs.join("kubectl"))?;
        let target = &self.world.targets[usize::from(tenant == "tenant-b")];
        std::fs::copy(
            self.world.hub.admin_kubeconfig(),
            folder.join("hub.kubeconfig"),
        )?;
        std::fs::copy(target.admin_kubeconfig(), folder.join("target.kubeconfig"))?;
        std::fs::copy(broker.ca_path(), folder.join("ca.crt"))?;
        std::fs::copy(broker.config(), folder.join("config.yaml"))?;
        std::fs::write(
            folder.join("caller.token"),
            caller_token(&self.world.hub, tenant, RECONCILER).await?,
        )?;
        Ok(Shell {
            folder,
            api_url: broker.api_url(),
            discovery_url: broker.discovery_url(),
            env: Vec::new(),
        })
    }
}

fn link(program: &Path, at: &Path) -> std::io::Result<()> {
    match std::os::unix::fs::symlink(program, at) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Creates a Kustomization and its kind, with a schema that accepts everything. Nothing reconciles
/// it here.
async fn flux_objects(world: &OnHub) -> Result<(), TestError> {
    let group = "kustomize.toolkit.fluxcd.io";
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("kustomizations.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": "Kustomization", "plural": "kustomizations", "singular": "kustomization", "listKind": "KustomizationList" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    world
        .hub
        .admin()
        .create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &kind,
        )
        .await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        &format!("crd/kustomizations.{group}"),
    ];
    world.hub.kubectl(&established).await?;
    let apps = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Kustomization", "metadata": { "name": "apps", "namespace": "tenant-a" },
        "spec": { "kubeConfig": { "secretRef": { "name": "prod-kubeconfig" } } },
    });
    let path = format!("/apis/{group}/v1/namespaces/tenant-a/kustomizations/apps");
    world.until_served(&path, &apps).await
}

/// Grants what the ServiceAccounts may do at the targets, as the documents ask an admin to.
async fn rights_at(world: &OnHub) -> Result<(), TestError> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = json!({ "verbs": ["get", "list", "create", "patch", "delete"], "apiGroups": [""], "resources": ["configmaps", "pods"] });
    let metadata = json!({ "name": "reconciler-edits" });
    for (target, tenant) in world.targets.iter().zip(["tenant-a", "tenant-b"]) {
        let user = format!("hub:system:serviceaccount:{tenant}:{RECONCILER}");
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule] });
        target
            .admin()
            .apply(&format!("{rbac}/clusterroles/reconciler-edits"), &role)
            .await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reconciler-edits" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        });
        target
            .admin()
            .apply(
                &format!("{rbac}/clusterrolebindings/reconciler-edits"),
                &binding,
            )
            .await?;
        target
            .until_it_counts(Whom::User(&user), "default", &rule)
            .await?;
    }
    Ok(())
}

/// A shell of one user.
pub(crate) struct Shell {
    folder: PathBuf,
    pub(crate) api_url: String,
    pub(crate) discovery_url: String,
    env: Vec<(&'static str, &'static str)>,
}

impl Shell {
    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a text with bash in the user's folder. It stops at the first command that fails, also
    /// in a pipeline.
    pub(crate) async fn run(&self, text: &str) -> Result<Output, TestError> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", text])
            .current_dir(&self.folder)
            .env(
                "PATH",
                format!("{}:{path}", self.folder.join("bin").display()),
            )
            .env("HOME", &self.folder)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("KUBECONFIG", self.folder.join("hub.kubeconfig"))
            .env(TARGETS_HERE.0, TARGETS_HERE.1)
            .envs(self.env.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(tokio::time::timeout(LIMIT, bash.output())
            .await
            .map_err(|_| format!("{text}: not done after {LIMIT:?}"))??)
    }
}

/// The environment that the tests share.
pub(crate) type Here = Arc<Place>;
