//! A server at an address that an apiserver accepts as a Pod's. It refuses loopback addresses, so
//! the server has one of 198.18.0.0/15 (RFC 2544) on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::runner::TestError;

/// A running HTTP server that answers one path. Dropping it ends it and removes its address.
#[derive(Debug)]
pub struct PodHost {
    address: SocketAddr,
    reads: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl PodHost {
    /// Starts the server. Needs root, to add the address.
    ///
    /// # Errors
    /// The address cannot be added, or the server does not start.
    pub async fn start(path: &str, document: &'static str) -> Result<Self, TestError> {
        // The process ID keeps two runs on one machine apart.
        let [.., a, b] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(198, 18, a, b);
        change_address("replace", ip)?;
        let listener = tokio::net::TcpListener::bind((ip, 0)).await?;
        let address = listener.local_addr()?;
        let reads = Arc::new(AtomicUsize::new(0));
        let answer = async move |State(reads): State<Arc<AtomicUsize>>| {
            reads.fetch_add(1, Ordering::SeqCst);
            document
        };
        let routes = Router::new()
            .route(path, get(answer))
            .with_state(Arc::clone(&reads));
        let serving = tokio::spawn(async move {
            // It ends with the test.
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self {
            address,
            reads,
            serving,
        })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How often the document was read.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Creates a Pod whose status has this address.
    ///
    /// # Errors
    /// Any error from the hub.
    pub async fn pod(
        &self,
        hub: &ControlPlane,
        namespace: &str,
        name: &str,
    ) -> Result<(), TestError> {
        let pod: Value = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "none" }],
            },
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        hub.admin().apply(&path, &pod).await?;
        let ip = self.address.ip().to_string();
        let status =
            json!({ "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] } });
        hub.admin()
            .patch(&format!("{path}/status"), &status)
            .await?;
        Ok(())
    }
}

impl Drop for PodHost {
    fn drop(&mut self) {
        self.serving.abort();
        if let IpAddr::V4(ip) = self.address.ip() {
            let _ = change_address("del", ip);
        }
    }
}

fn change_address(verb: &str, ip: Ipv4Addr) -> Result<(), TestError> {
    let output = Command::new("ip")
        .args(["address", verb, &format!("{ip}/32"), "dev", "lo"])
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip address {verb} {ip} dev lo: {said}; it needs root").into())
}
