//! Starts Keyferry as a process with a shipped configuration, on this machine's ports.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::keyferry_process::{KeyferryBinary, KeyferryProcess, ServeSpec};
use keyferry_integration::pki::{CertifiedKey, TestCa};
use keyferry_integration::ports::free_port;
use keyferry_integration::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig};
use keyferry_integration::runner::TestError;

use super::setup::{Hubs, NAMESPACE};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// The host of `publicURL` in the shipped configurations.
const HOST: &str = "keyferry.example.com";

/// The addresses of the shipped configurations and manifests, by listener.
const ADDRESSES: [(Port, &[&str]); 5] = [
    (Port::Discovery, &["0.0.0.0:8443"]),
    (Port::Api, &["0.0.0.0:9443"]),
    (Port::Health, &["0.0.0.0:8080"]),
    (Port::Redirect, &["0.0.0.0:8081", ":8081"]),
    (Port::Metrics, &["0.0.0.0:8444", ":8444"]),
];

/// A listener of Keyferry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Discovery,
    Api,
    Health,
    Redirect,
    Metrics,
}

/// A configuration, and how the Deployment starts Keyferry with it.
pub(crate) struct Shipped {
    pub(crate) name: &'static str,
    pub(crate) config: String,
    /// The variables of the container.
    pub(crate) variables: Vec<(String, String)>,
    /// The ports of this machine.
    pub(crate) ports: Ports,
}

/// A port of this machine for each listener.
#[derive(Clone, Debug)]
pub(crate) struct Ports(Vec<(Port, u16)>);

impl Ports {
    /// Ports that nothing uses.
    pub(crate) fn free() -> Result<Self, TestError> {
        let port_of = |(port, _)| Ok((port, free_port()?));
        let ports: Result<_, TestError> = ADDRESSES.into_iter().map(port_of).collect();
        ports.map(Self)
    }

    /// `127.0.0.1:<port>` of a listener.
    pub(crate) fn address(&self, port: Port) -> String {
        let own = self.0.iter().find(|(one, _)| *one == port);
        format!("127.0.0.1:{}", own.map_or(0, |(_, number)| *number))
    }
}

/// A running Keyferry, as the ServiceAccount of the installation.
pub(crate) struct Started {
    pub(crate) process: KeyferryProcess,
    _kubeconfig: ServiceAccountKubeconfig,
    ports: Ports,
}

impl Started {
    /// `127.0.0.1:<port>` of a listener.
    pub(crate) fn address(&self, port: Port) -> String {
        self.ports.address(port)
    }
}

/// A CA, and a certificate of it that is good for every listener.
pub(crate) fn certificate(folder: &std::path::Path) -> Result<(TestCa, CertifiedKey), TestError> {
    std::fs::create_dir_all(folder)?;
    let ca = TestCa::create("keyferry", folder)?;
    let certified = ca.serving("keyferry", &[HOST.to_owned()])?;
    Ok((ca, certified))
}

/// The folder of one process.
pub(crate) fn folder(hubs: &Hubs, name: &str) -> PathBuf {
    hubs.fleet().folder().join(name)
}

/// A configuration whose mounted certificates are this one.
pub(crate) fn with_certificate(mut config: String, certified: &CertifiedKey) -> String {
    for listener in ["discovery", "api", "metrics"] {
        let mounted = format!("/etc/keyferry/{listener}-tls");
        for (file, path) in [
            ("tls.crt", &certified.cert_path),
            ("tls.key", &certified.key_path),
        ] {
            config = config.replace(&format!("{mounted}/{file}"), &path.display().to_string());
        }
    }
    config
}

/// Starts the process and waits until it is ready.
pub(crate) async fn start(
    hubs: &Hubs,
    plane: &Arc<ControlPlane>,
    shipped: Shipped,
) -> Result<Started, TestError> {
    let Shipped {
        name,
        mut config,
        mut variables,
        ports,
    } = shipped;
    let folder = folder(hubs, name);
    for (port, addresses) in ADDRESSES {
        let here = ports.address(port);
        for address in addresses.iter().filter(|address| address.starts_with('0')) {
            config = config.replace(address, &here);
        }
        for (_, value) in &mut variables {
            if addresses.contains(&value.as_str()) {
                value.clone_from(&here);
            }
        }
    }
    let health = ports.address(Port::Health);
    config = config.replace("/var/log/keyferry", &folder.display().to_string());
    assert!(
        config.contains(&health) && !config.contains("0.0.0.0"),
        "{name}: an address is not replaced: {config}"
    );
    let file = folder.join("config.yaml");
    std::fs::write(&file, config)?;
    let kubeconfig = service_account_kubeconfig(plane, NAMESPACE, "keyferry", 3600).await?;
    let spec = ServeSpec {
        name: format!("keyferry-{name}"),
        folder,
        config: file,
        kubeconfig: Some(kubeconfig.path().to_owned()),
        args: Vec::new(),
        env: variables
            .into_iter()
            .map(|(variable, value)| (variable, value.into()))
            .collect(),
        ready_url: format!("http://{health}/readyz"),
        ready_within: READY_WITHIN,
    };
    Ok(Started {
        process: KeyferryBinary::build().await?.serve(&spec).await?,
        _kubeconfig: kubeconfig,
        ports,
    })
}
