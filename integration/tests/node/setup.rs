//! A hub with a real node, and two targets outside of it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::built_image::BuiltImage;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::node::{External, Node, NodeAccess};
use keyferry_integration::parts::Minor;
use keyferry_integration::previous_version::PreviousVersion;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::audience;
use keyferry_integration::world::{Ground, TrustingTarget};
use serde_json::{Value, json};

/// The name of the image in the documentation.
pub(crate) const IMAGE: &str = "images.example.com/keyferry:0.1.0";
/// The image of the previous version.
pub(crate) const PREVIOUS_IMAGE: &str = "images.example.com/keyferry:previous";
/// Keyferry's namespace.
pub(crate) const SYSTEM: &str = "keyferry-system";
/// The tenant of the examples, and its ServiceAccount.
pub(crate) const TENANT: &str = "tenant-a";
pub(crate) const ACCOUNT: &str = "reconciler";

/// The issuer of the hub's tokens.
pub(crate) const ISSUER: &str = "https://hub.keyferry.test";
const POD_WITHIN: Duration = Duration::from_secs(90);
/// What a kubelet sets on a machine that it has for itself.
const SETTINGS: [&str; 4] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
];

/// A hub, its only node, and two targets that trust it.
pub(crate) struct Cluster {
    // The node ends before its apiserver.
    pub(crate) node: Node,
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) targets: [ControlPlane; 2],
    /// The address of this machine at which targets reach Keyferry's discovery Service.
    pub(crate) discovery: SocketAddr,
    /// The same for the token API, for a load from outside.
    pub(crate) api: SocketAddr,
    /// The machine's settings before the node started.
    pub(crate) settings: BTreeMap<&'static str, String>,
    /// Keyferry's image, which the node has.
    image: Option<BuiltImage>,
    /// The previous version, whose image the node has.
    previous: Option<PreviousVersion>,
    pub(crate) ground: Ground,
    _access: tempfile::TempDir,
}

impl Fixture for Cluster {
    fn log_tails(&self) -> String {
        format!("{}{}", self.ground.log_tails(), self.node.log_tails())
    }
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let settings = settings();
        let ground = Ground::start().await?;
        Self::build(ground, settings)
            .await
            .map_err(NotStarted::failed)
    }

    /// Starts with the images of Keyferry and of its previous version, which take minutes to build
    /// the first time.
    pub(crate) async fn with_images() -> Result<Self, NotStarted> {
        let settings = settings();
        let ground = Ground::start().await?;
        // Built before anything runs, so that nothing times out beside it.
        let built = images(&ground).await.map_err(NotStarted::failed)?;
        let cluster = Self::build(ground, settings).await;
        let mut cluster = cluster.map_err(NotStarted::failed)?;
        cluster.take(built).await.map_err(NotStarted::failed)?;
        Ok(cluster)
    }

    async fn take(&mut self, built: (BuiltImage, PreviousVersion)) -> TestResult {
        let (image, previous) = built;
        let parts = self.ground.parts();
        self.node.enforce_network_policies(parts).await?;
        self.node.import_archive(&image.file).await?;
        self.node.import_archive(&previous.image).await?;
        self.image = Some(image);
        self.previous = Some(previous);
        Ok(())
    }

    /// Keyferry's image.
    pub(crate) fn image(&self) -> Result<&BuiltImage, TestError> {
        Ok(self.image.as_ref().ok_or("the image was not built")?)
    }

    /// Keyferry's previous version.
    pub(crate) fn previous(&self) -> Result<&PreviousVersion, TestError> {
        let previous = self.previous.as_ref();
        Ok(previous.ok_or("the previous version was not built")?)
    }

    async fn build(
        ground: Ground,
        settings: BTreeMap<&'static str, String>,
    ) -> Result<Self, TestError> {
        let folder = tempfile::tempdir()?;
        let access = NodeAccess::create(folder.path())?;
        let hub = access.cluster(ControlPlaneSpec {
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        });
        let hub = Arc::new(ground.control_plane(hub).await?);
        let files = ground.folder().join("node");
        let node = Node::start(Arc::clone(&hub), &access, ground.parts(), &files).await?;
        let discovery = node.open_service_port(&format!("{SYSTEM}/keyferry-discovery"), 443)?;
        let api = node.open_service_port(&format!("{SYSTEM}/keyferry"), 443)?;
        let url = format!("https://{discovery}/.well-known/openid-configuration");
        let target = async |name: &'static str, minor| {
            let trusting = TrustingTarget {
                name,
                minor,
                issuer: ISSUER,
                audience: &audience(name),
                discovery_url: &url,
                subjects: &[format!("{TENANT}:{ACCOUNT}")],
            };
            ground.target(trusting).await
        };
        let (a, b) = tokio::try_join!(
            target("target-a", Minor::newest()),
            target("target-b", Minor::V1_33)
        )?;
        for (target, last) in [(&a, 11), (&b, 12)] {
            node.connect(&External {
                name: format!("{}.keyferry.test", target.name()),
                address: Ipv4Addr::new(172, 31, 0, last),
                port: 6443,
                served_at: target.port(),
            })
            .await?;
        }
        Ok(Self {
            node,
            image: None,
            previous: None,
            hub,
            targets: [a, b],
            discovery,
            api,
            settings,
            ground,
            _access: folder,
        })
    }

    /// Creates a Pod and waits until it is ready.
    pub(crate) async fn run(&self, pod: &Value) -> Result<Value, TestError> {
        let field = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let path = pod_path(field("namespace"), field("name"));
        self.hub.admin().apply(&path, pod).await?;
        self.until_ready(field("namespace"), field("name")).await
    }

    /// Waits until a Pod is ready, and returns it.
    pub(crate) async fn until_ready(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Value, TestError> {
        let ready = |pod: &Value| has_condition(pod, "Ready");
        let path = pod_path(namespace, name);
        until_object(self.hub.admin(), &path, "ready", POD_WITHIN, ready).await
    }

    /// Runs a command in a container of a Pod, and returns what it printed.
    pub(crate) async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        command: &[&str],
    ) -> Result<String, TestError> {
        let mut args = vec!["exec", "-n", namespace, pod, "--"];
        args.extend(command);
        self.kubectl(&args).await
    }

    /// The output of kubectl as the hub's admin.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String, TestError> {
        let output = self.hub.kubectl(args).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("kubectl {}: {said}", args.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

async fn images(ground: &Ground) -> Result<(BuiltImage, PreviousVersion), TestError> {
    let file = ground.folder().join("keyferry.tar");
    let kept = BuiltImage::kept_build();
    let image = BuiltImage::build(IMAGE, &file, &kept).await?;
    let folder = kept.with_file_name("previous");
    let previous = PreviousVersion::build(PREVIOUS_IMAGE, &folder).await?;
    Ok((image, previous))
}

/// Puts the Secrets with Keyferry's serving certificates into its namespace. They are for 127.0.0.1
/// too, where the targets get the published documents.
pub(crate) async fn put_tls(cluster: &Cluster, namespace: &str) -> TestResult {
    let names = ["keyferry", "keyferry-discovery"].map(|name| format!("{name}.{namespace}.svc"));
    let pair = cluster.ground.ca().serving(namespace, &names)?;
    for name in ["keyferry-discovery-tls", "keyferry-api-tls"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": name, "namespace": namespace },
            "stringData": { "tls.crt": pair.cert_pem, "tls.key": pair.key_pem },
        });
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        cluster.hub.admin().apply(&path, &secret).await?;
    }
    Ok(())
}

/// Whether an object has a condition with status True.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

/// The machine's settings that a kubelet sets.
pub(crate) fn settings() -> BTreeMap<&'static str, String> {
    let read = |name: &'static str| {
        let path = PathBuf::from("/proc/sys").join(name);
        (name, std::fs::read_to_string(path).unwrap_or_default())
    };
    SETTINGS.map(read).into()
}

fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}
