//! Traefik on a control plane, as a controller of the Gateway API and of Ingresses, in the network
//! namespace of its Pod.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::control_plane::ControlPlane;
use crate::network_namespace::NetworkNamespace;
use crate::parts::{Part, Parts};
use crate::process::{Process, ProcessSpec};
use crate::rbac::{ServiceAccountKubeconfig, apply_manifests, service_account_kubeconfig_at};
use crate::relay::Relay;
use crate::runner::TestError;

/// The name by which a GatewayClass names Traefik.
pub const GATEWAY_CONTROLLER: &str = "traefik.io/gateway-controller";
/// The name by which an IngressClass names Traefik's reader of Ingresses with annotations of nginx.
pub const INGRESS_CONTROLLER: &str = "k8s.io/ingress-nginx";
/// Its port for TLS, which a Gateway has to name.
pub const TLS_PORT: u16 = 443;
/// Its port for plain HTTP.
pub const PLAIN_PORT: u16 = 80;
/// Where Traefik's module has the roles that its documentation tells users to apply.
const ROLES: &str = "docs/content/reference/dynamic-configuration";
const NAMESPACE: &str = "default";
/// The ServiceAccount that the role for Gateways names.
const ACCOUNT: &str = "traefik-controller";
/// The same of the role for Ingresses. One process has one account.
const INGRESS_ACCOUNT: &str = "    name: traefik-ingress-nginx-controller\n";
/// The usual entry points, the readers of both kinds of objects, and a log that has each
/// configuration and each request.
const ARGUMENTS: [&str; 10] = [
    "--global.checknewversion=false",
    "--entrypoints.web.address=:80",
    "--entrypoints.websecure.address=:443",
    "--entrypoints.websecure.http.tls=true",
    "--providers.kubernetesgateway=true",
    "--providers.kubernetesingressnginx=true",
    "--providers.kubernetesingressnginx.httpentrypoint=web",
    "--providers.kubernetesingressnginx.httpsentrypoint=websecure",
    "--log.level=DEBUG",
    "--accesslog=true",
];

/// A running Traefik. Dropping it ends it.
#[derive(Debug)]
pub struct Traefik {
    process: Process,
    log: PathBuf,
    _to_hub: Relay,
    _kubeconfig: ServiceAccountKubeconfig,
}

impl Traefik {
    /// Starts Traefik in a network namespace, with a ServiceAccount that has the rights of Traefik's
    /// documentation and no other. Its log is in the folder. The kinds of the Gateway API have to be
    /// on the hub.
    ///
    /// # Errors
    /// It cannot be built or started.
    pub async fn start(
        parts: &Parts,
        hub: &Arc<ControlPlane>,
        network: &NetworkNamespace,
        folder: &Path,
    ) -> Result<Self, TestError> {
        let program = parts.locate(Part::Traefik).await?;
        grant_rights(parts, hub, folder).await?;
        let listener = network.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let server = format!("https://{}", listener.local_addr()?);
        let to_hub = Relay::listening(listener, hub.port())?;
        let kubeconfig =
            service_account_kubeconfig_at(hub, &server, NAMESPACE, ACCOUNT, 7200).await?;
        let log = folder.join("traefik.log");
        let mut args = network.nsenter();
        args.push(program.into());
        args.extend(ARGUMENTS.map(OsString::from));
        let process = Process::spawn(&ProcessSpec {
            name: "traefik".to_owned(),
            program: "nsenter".into(),
            args,
            env: vec![("KUBECONFIG".to_owned(), kubeconfig.path().into())],
            log: log.clone(),
        })
        .await?;
        Ok(Self {
            process,
            log,
            _to_hub: to_hub,
            _kubeconfig: kubeconfig,
        })
    }

    /// All that it has logged.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn log(&self) -> Result<String, TestError> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.logs_tail(25)
    }
}

/// Applies Traefik's own roles, both for one ServiceAccount.
async fn grant_rights(parts: &Parts, hub: &ControlPlane, folder: &Path) -> Result<(), TestError> {
    let roles = parts.module(Part::Traefik).await?.join(ROLES);
    let of_ingresses = std::fs::read_to_string(roles.join("kubernetes-ingress-nginx-rbac.yml"))?;
    if of_ingresses.matches(INGRESS_ACCOUNT).count() != 1 {
        return Err("the role for Ingresses names its account otherwise".into());
    }
    let changed = folder.join("ingress-role.yaml");
    let account = format!("    name: {ACCOUNT}\n");
    std::fs::write(&changed, of_ingresses.replace(INGRESS_ACCOUNT, &account))?;
    hub.create_service_account(NAMESPACE, ACCOUNT).await?;
    let of_gateways = roles.join("kubernetes-gateway-rbac.yml");
    Ok(apply_manifests(hub, &[&of_gateways, &changed]).await?)
}
