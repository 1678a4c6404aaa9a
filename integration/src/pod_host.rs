//! A server in a network namespace, as in a Pod, and the Pod object that leads an apiserver to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::network_namespace::NetworkNamespace;
use crate::runner::TestError;

/// A running HTTP server that answers one path. Dropping it ends it and its network.
#[derive(Debug)]
pub struct PodHost {
    _network: NetworkNamespace,
    address: SocketAddr,
    reads: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl PodHost {
    /// Starts the server, with its log in the folder.
    ///
    /// # Errors
    /// The network namespace cannot be created, or the server does not start.
    pub async fn start(
        folder: &Path,
        path: &str,
        document: &'static str,
    ) -> Result<Self, TestError> {
        let network = NetworkNamespace::start(folder).await?;
        let listener = network.listen((network.address(), 0).into())?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
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
            _network: network,
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
    pub async fn create_pod(
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
    }
}
