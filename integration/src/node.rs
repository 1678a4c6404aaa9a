//! A node of a real cluster: kubelet, containerd, runc, a CNI bridge, DNS and a scheduler, in
//! namespaces of its own. Its Pods are real ones.
//!
//! The node has no route out. Its Pods reach each other, the Services of its cluster, and the
//! [`External`] servers that the test connects. Its programs are built from Go modules, so the
//! machine needs root, cgroups and util-linux: a proxy of this crate replaces kube-proxy.
//! NetworkPolicies are enforced on request, which needs `iptables` and `ipset`.

mod configuration;
mod firewall;
mod images;
mod machine;
mod services;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use images::image_of;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, ControlPlaneSpec};
use crate::fleet::log_tails_below;
use crate::kubeconfig::{Credential, write_kubeconfig};
use crate::parts::{NodePart, Part, Parts};
use crate::pki::TestCa;
use crate::process::{Process, ProcessSpec};
use crate::relay::Relay;
use crate::rest::RestClient;
use crate::runner::TestError;
use crate::wait::{until, until_object};
use configuration::Configuration;
use machine::Machine;
use services::Services;

/// The name of the node.
pub const NODE: &str = "node-1";
/// The address at which Pods reach the apiserver of their own cluster, and its port.
pub const APISERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(172, 31, 0, 1), 6443);
/// The image of small Pods, with a program that reports what a Pod sees. The sandbox has the same
/// image.
pub const POD_TOOL: &str = "keyferry.test/pod-tool:1";

const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const HOSTS: &str = "hosts";
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A server outside the cluster that Pods reach, at an address of 172.31.0.0/24.
#[derive(Debug, Clone)]
pub struct External {
    /// Its name in DNS.
    pub name: String,
    /// Its address, for Pods.
    pub address: Ipv4Addr,
    /// Its port, for Pods.
    pub port: u16,
    /// Its port on this machine's loopback interface.
    pub served_at: u16,
}

/// The parts of a node that its cluster's apiserver needs at its start.
#[derive(Debug)]
pub struct NodeAccess {
    client_ca: TestCa,
    flags: Vec<String>,
}

impl NodeAccess {
    /// Creates the CA with which the apiserver identifies itself to the kubelet.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn create(folder: &Path) -> Result<Self, TestError> {
        let client_ca = TestCa::create("kubelet clients", folder)?;
        let client = client_ca.client("kube-apiserver", "system:masters")?;
        let flags = vec![
            // Beside RBAC: a kubelet may read what its own Pods name, and nothing else.
            "--authorization-mode=Node".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                client.cert_path.display()
            ),
            format!("--kubelet-client-key={}", client.key_path.display()),
        ];
        Ok(Self { client_ca, flags })
    }

    /// Adds what a control plane needs to have this node.
    pub fn cluster(&self, mut spec: ControlPlaneSpec) -> ControlPlaneSpec {
        spec.controller_manager = true;
        spec.extra_args.extend(self.flags.iter().cloned());
        let names = [APISERVER.0.to_string(), "10.96.0.1".to_owned()];
        spec.further_names.extend(names);
        spec
    }
}

/// The external servers that Pods reach.
#[derive(Debug)]
struct Connected {
    relays: Vec<Relay>,
    /// Their names, as in /etc/hosts.
    hosts: String,
}

/// A running node. Dropping it ends everything that it started, mounted and connected.
#[derive(Debug)]
pub struct Node {
    cluster: Arc<ControlPlane>,
    folder: PathBuf,
    runtime: Configuration,
    services: Services,
    external: Mutex<Connected>,
    scheduler: Process,
    kubelet: Process,
    firewall: Option<Process>,
    _dns: Process,
    containerd: Process,
    // The last field: what is still in its namespaces is killed with it.
    machine: Machine,
}

impl Node {
    /// Starts the node of a cluster and waits until it is ready for Pods. Its files are in the
    /// folder.
    ///
    /// # Errors
    /// [`crate::network_namespace::NetworkNamespaceError::Unavailable`] where the machine cannot
    /// have one, a part that cannot be built, or what did not start.
    pub async fn start(
        cluster: Arc<ControlPlane>,
        access: &NodeAccess,
        parts: &Parts,
        folder: &Path,
    ) -> Result<Self, TestError> {
        for part in NodePart::ALL {
            parts.locate(Part::Node(part)).await?;
        }
        std::fs::create_dir_all(folder)?;
        let machine = Machine::start(folder).await?;
        let own = machine.network().listen(APISERVER.into())?;
        let external = Mutex::new(Connected {
            relays: vec![Relay::listening(own, cluster.port())?],
            hosts: String::new(),
        });
        let configuration = Configuration::write(parts, folder).await?;
        let containerd = configuration.run_containerd(&machine).await?;
        let node = Self {
            services: Services::start(&machine, cluster.admin().clone())?,
            external,
            _dns: run_dns(&machine, &cluster, parts, folder).await?,
            kubelet: run_kubelet(&machine, &cluster, access, parts, folder).await?,
            scheduler: run_scheduler(&cluster, parts, folder).await?,
            firewall: None,
            containerd,
            runtime: configuration,
            folder: folder.to_owned(),
            machine,
            cluster,
        };
        node.publish_apiserver().await?;
        let tool = parts.locate(Part::Node(NodePart::PodTool)).await?;
        node.import(&configuration::pod_tool_image(&tool)?, POD_TOOL)
            .await?;
        node.until_ready().await?;
        Ok(node)
    }

    /// Enforces the NetworkPolicies of its cluster from now on. Connections by way of a Service come
    /// from the node, which no policy stops, so a policy holds for connections to a Pod's address.
    ///
    /// # Errors
    /// [`crate::parts::PartError::Unavailable`] without iptables, ipset and Debian's packages of
    /// them, or it did not start.
    pub async fn enforce_network_policies(&mut self, parts: &Parts) -> Result<(), TestError> {
        let firewall = firewall::start(&self.machine, &self.cluster, parts, &self.folder);
        self.firewall = Some(firewall.await?);
        Ok(())
    }

    /// The address of the node, which this machine reaches.
    pub fn address(&self) -> Ipv4Addr {
        self.machine.network().address()
    }

    /// Gives containerd an image, under a name that Pods use with `imagePullPolicy: Never` or
    /// `IfNotPresent`. No registry is asked.
    ///
    /// # Errors
    /// containerd refuses it.
    pub async fn import(&self, image: &keyferry_image::Image, name: &str) -> Result<(), TestError> {
        let file = self.folder.join("image.tar");
        image.write(name, std::io::BufWriter::new(std::fs::File::create(&file)?))?;
        let imported = self.import_archive(&file).await;
        std::fs::remove_file(&file)?;
        imported
    }

    /// As [`Self::import`], of an archive, under the name in it.
    ///
    /// # Errors
    /// As [`Self::import`].
    pub async fn import_archive(&self, file: &Path) -> Result<(), TestError> {
        let arguments = vec!["import".into(), file.into()];
        self.runtime.images(&self.machine, arguments).await
    }

    /// Gives an image another name.
    ///
    /// # Errors
    /// There is no such image.
    pub async fn tag(&self, image: &str, name: &str) -> Result<(), TestError> {
        let arguments = ["tag", "--force", image, name].map(Into::into).to_vec();
        self.runtime.images(&self.machine, arguments).await
    }

    /// An address of this machine that leads to a port of a Service of the node's cluster,
    /// `namespace/name`, as a load balancer outside the cluster does. It lasts as long as the node,
    /// and the Service need not exist yet.
    ///
    /// # Errors
    /// No port is free.
    pub fn open_service_port(&self, service: &str, port: u16) -> Result<SocketAddr, TestError> {
        self.services.open_service_port(service, port)
    }

    /// Lets Pods reach a server of this machine, at its address and by its name. Returns when
    /// CoreDNS, which reads its list of hosts once a second, knows the name.
    ///
    /// # Errors
    /// The address is in use, or CoreDNS does not answer with it.
    pub async fn connect(&self, server: &External) -> Result<(), TestError> {
        let network = self.machine.network();
        let listener = network.listen((server.address, server.port).into())?;
        let relay = Relay::listening(listener, server.served_at)?;
        {
            let mut external = self.external.lock();
            external.relays.push(relay);
            let host = format!("{} {}\n", server.address, server.name);
            external.hosts.push_str(&host);
            std::fs::write(self.folder.join(HOSTS), &external.hosts)?;
        }
        let known = || async { Ok(network.resolves(DNS, &server.name)) };
        until("CoreDNS knows the name", READY_WITHIN, known).await
    }

    /// The folder of an `emptyDir` of a running Pod, on this machine.
    pub fn empty_dir(&self, pod_uid: &str, volume: &str) -> PathBuf {
        self.folder
            .join("kubelet/pods")
            .join(pod_uid)
            .join("volumes/kubernetes.io~empty-dir")
            .join(volume)
    }

    /// The ends of the logs of the node and of its Pods.
    pub fn log_tails(&self) -> String {
        log_tails_below(&self.folder)
    }

    /// The names and states of its running processes, for a message.
    pub fn alive(&mut self) -> Result<(), TestError> {
        let firewall = self.firewall.iter_mut();
        for (name, process) in [
            ("kubelet", &mut self.kubelet),
            ("kube-scheduler", &mut self.scheduler),
        ]
        .into_iter()
        .chain(firewall.map(|process| ("kube-router", process)))
        {
            if let Some(status) = process.exit_status() {
                return Err(
                    format!("{name} ended with {status}: {}", process.logs_tail(20)).into(),
                );
            }
        }
        Ok(())
    }

    /// The kubelet's own figures (`/stats/summary`).
    ///
    /// # Errors
    /// The kubelet does not answer.
    pub async fn stats(&self) -> Result<Value, TestError> {
        let path = format!("/api/v1/nodes/{NODE}/proxy/stats/summary");
        Ok(self.admin().get(&path).await?)
    }

    fn admin(&self) -> &RestClient {
        self.cluster.admin()
    }

    /// Publishes the apiserver's address as the Service `kubernetes`, which real apiservers do
    /// themselves; in the tests they all advertise 127.0.0.1.
    async fn publish_apiserver(&self) -> Result<(), TestError> {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" } },
            "endpoints": [{ "addresses": [APISERVER.0.to_string()], "conditions": { "ready": true } }],
            "ports": [{ "name": "https", "port": APISERVER.1, "protocol": "TCP" }],
        });
        let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        self.admin().apply(path, &slice).await?;
        Ok(())
    }

    async fn until_ready(&self) -> Result<(), TestError> {
        let path = format!("/api/v1/nodes/{NODE}");
        until("the node is registered", READY_WITHIN, || async {
            Ok(self.admin().exists(&path).await?)
        })
        .await?;
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
            })
        };
        let ready = until_object(self.admin(), &path, "ready", READY_WITHIN, ready).await;
        ready.map_err(|error| {
            format!(
                "{error}: {}\n{}",
                self.kubelet.logs_tail(40),
                self.containerd.logs_tail(20)
            )
        })?;
        Ok(())
    }
}

async fn run_kubelet(
    machine: &Machine,
    cluster: &ControlPlane,
    access: &NodeAccess,
    parts: &Parts,
    folder: &Path,
) -> Result<Process, TestError> {
    let certificate = cluster
        .ca()
        .client(&format!("system:node:{NODE}"), "system:nodes")?;
    let kubeconfig = write_kubeconfig(
        folder.join("kubelet.kubeconfig"),
        &apiserver_url(),
        cluster.ca_pem(),
        &Credential::ClientCertificate {
            cert: &certificate.cert_path,
            key: &certificate.key_path,
        },
    )?;
    let config = folder.join("kubelet.yaml");
    let client_ca = access.client_ca.cert_path();
    let text = configuration::kubelet(machine, folder, client_ca, DNS).to_string();
    std::fs::write(&config, text)?;
    let program = parts.locate(Part::Node(NodePart::Kubelet)).await?;
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display()).into();
    let args = vec![
        flag("config", &config),
        flag("kubeconfig", &kubeconfig),
        flag("root-dir", &folder.join("kubelet")),
        flag("cert-dir", &folder.join("kubelet-pki")),
        format!("--hostname-override={NODE}").into(),
        format!("--node-ip={}", machine.network().address()).into(),
        "--v=2".into(),
    ];
    machine.spawn("kubelet", &program, args).await
}

async fn run_scheduler(
    cluster: &ControlPlane,
    parts: &Parts,
    folder: &Path,
) -> Result<Process, TestError> {
    let program = parts.locate(Part::Node(NodePart::Scheduler)).await?;
    let spec = ProcessSpec {
        name: "kube-scheduler".to_owned(),
        program,
        args: vec![
            format!("--kubeconfig={}", cluster.admin_kubeconfig().display()).into(),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ],
        env: Vec::new(),
        log: folder.join("kube-scheduler.log"),
    };
    Ok(Process::spawn(&spec).await?)
}

/// CoreDNS with the names of the cluster and of the external servers.
async fn run_dns(
    machine: &Machine,
    cluster: &ControlPlane,
    parts: &Parts,
    folder: &Path,
) -> Result<Process, TestError> {
    let certificate = cluster.ca().client("dns", "system:masters")?;
    let kubeconfig = write_kubeconfig(
        folder.join("dns.kubeconfig"),
        &apiserver_url(),
        cluster.ca_pem(),
        &Credential::ClientCertificate {
            cert: &certificate.cert_path,
            key: &certificate.key_path,
        },
    )?;
    let hosts = folder.join(HOSTS);
    std::fs::write(&hosts, "")?;
    let text = format!(
        ".:53 {{\n  bind {DNS}\n  errors\n  hosts {} {{\n    reload 1s\n    fallthrough\n  }}\n  \
         kubernetes cluster.local {{\n    kubeconfig {}\n  }}\n}}\n",
        hosts.display(),
        kubeconfig.display()
    );
    let file = folder.join("Corefile");
    std::fs::write(&file, text)?;
    let program = parts.locate(Part::Node(NodePart::CoreDns)).await?;
    let args = vec!["-conf".into(), file.into()];
    machine.spawn("coredns", &program, args).await
}

fn apiserver_url() -> String {
    format!("https://{}:{}", APISERVER.0, APISERVER.1)
}
