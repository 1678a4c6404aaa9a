//! Writes configuration files for the benchmarks.

use std::fmt::Write;
use std::path::Path;

/// The audience of callers' tokens.
pub const CALLER_AUDIENCE: &str = "keyferry.dev";

/// The loopback ports of one server.
#[derive(Clone, Copy)]
pub struct Ports {
    /// The port of the published documents.
    pub discovery: u16,
    /// The port of the token API.
    pub api: u16,
    /// The port of health and metrics.
    pub health: u16,
}

impl Ports {
    /// Three ports that are free now.
    pub fn free() -> std::io::Result<Self> {
        let listeners = [(); 3].map(|()| std::net::TcpListener::bind(("127.0.0.1", 0)));
        let mut ports = [0; 3];
        for (port, listener) in ports.iter_mut().zip(listeners) {
            *port = listener?.local_addr()?.port();
        }
        let [discovery, api, health] = ports;
        Ok(Self {
            discovery,
            api,
            health,
        })
    }
}

/// The ServerConfiguration: listeners on loopback, and the audit log in a file.
pub fn server(folder: &Path, ports: Ports) -> String {
    let folder = folder.display();
    let Ports {
        discovery,
        api,
        health,
    } = ports;
    let tls = format!("tls: {{certFile: {folder}/tls.crt, keyFile: {folder}/tls.key}}");
    format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://127.0.0.1:{discovery}\n\
         discovery:\n  address: 127.0.0.1:{discovery}\n  limits: {{connectionsPerAddress: 0}}\n  {tls}\n\
         api:\n  address: 127.0.0.1:{api}\n  limits: {{connectionsPerAddress: 0, newCallersPerAddress: 0, newCallersPerNamespace: 0}}\n  {tls}\n\
         health:\n  address: 127.0.0.1:{health}\naudit:\n  file: {folder}/audit.jsonl\n"
    )
}

/// A TargetCluster whose tokens live for `lifetime`, allowed for these ServiceAccounts of these
/// namespaces.
pub fn target(
    name: &str,
    lifetime: &str,
    namespaces: &[String],
    service_accounts: &[String],
) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: {name}}}\nspec:\n  \
         address: https://{name}.example.com\n  audience: https://{name}.example.com\n  tokenLifetime: {{default: {lifetime}}}\n  \
         allow:\n    - namespaces: [{}]\n      serviceAccounts: [{}]\n",
        namespaces.join(", "),
        service_accounts.join(", ")
    )
}

/// A TargetAccess of `namespace`, also for `callers`.
pub fn access(
    namespace: &str,
    name: &str,
    target: &str,
    service_account: &str,
    callers: &[&str],
) -> String {
    let mut text = format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         targetClusterRef: {{name: {target}}}\n  serviceAccountName: {service_account}\n"
    );
    if !callers.is_empty() {
        let _ = writeln!(text, "  callers: [{}]", callers.join(", "));
    }
    text
}
