//! An HTTPS reverse proxy in front of a control plane, with faults that tests switch on and off
//! while it runs.
//!
//! It forwards bearer tokens. It does not support client certificates or connection upgrades (exec,
//! port-forward).

mod forward;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use http::Method;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use rules::{Fault, KillMoment, KillSwitch, Rule, RuleId};

use crate::control_plane::ControlPlane;
use crate::http_client::trusting;
use crate::https::{Connection, HttpsServer, WeakConnection};
use crate::pki::{PkiError, TestCa};
use crate::rest::RestError;
use rules::Rules;

/// Why a proxy did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChaosProxyError {
    /// The certificate could not be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The client for the server behind it could not be created.
    #[error(transparent)]
    Client(#[from] RestError),
    /// The proxy could not listen.
    #[error("start a chaos proxy for {upstream}: {source}")]
    Start {
        /// The server behind it.
        upstream: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A running proxy. Dropping it ends it, and also its open connections.
#[derive(Debug)]
pub struct ChaosProxy {
    server: HttpsServer,
    state: ProxyState,
    ca_pem: String,
}

impl ChaosProxy {
    /// Starts a proxy in front of a control plane, with a certificate of that control plane's CA. A
    /// client only needs another URL.
    pub async fn in_front_of(plane: &ControlPlane) -> Result<Self, ChaosProxyError> {
        Self::start(&plane.url(), plane.ca_pem(), plane.ca()).await
    }

    /// Starts a proxy in front of any server that the first CA signed, with a certificate of the
    /// second.
    pub async fn start(
        upstream_url: &str,
        upstream_ca_pem: &str,
        ca: &TestCa,
    ) -> Result<Self, ChaosProxyError> {
        let state = ProxyState {
            upstream: upstream_url.trim_end_matches('/').to_owned(),
            client: trusting(upstream_ca_pem)?,
            rules: Arc::default(),
            counts: Arc::default(),
            paused: watch::Sender::new(false),
            connections: Arc::default(),
        };
        let certificate = ca.serving("chaos-proxy", &[])?;
        let routes = Router::new()
            .fallback(forward::forward_request)
            .with_state(state.clone());
        let server = HttpsServer::start(&certificate, routes)
            .await
            .map_err(|source| ChaosProxyError::Start {
                upstream: upstream_url.to_owned(),
                source,
            })?;
        Ok(Self {
            server,
            state,
            ca_pem: ca.cert_pem().to_owned(),
        })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// PEM of the CA that signed its certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Adds a rule after the existing ones. The first rule that matches a request applies.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.state.rules().add(rule)
    }

    /// Removes a rule. It does not release requests that the rule already affects.
    pub fn remove(&self, id: RuleId) {
        self.state.rules().remove(id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state.rules().clear();
    }

    /// Blocks every new request until [`Self::resume`].
    pub fn pause(&self) {
        self.state.paused.send_replace(true);
    }

    /// Lets the blocked requests continue.
    pub fn resume(&self) {
        self.state.paused.send_replace(false);
    }

    /// Breaks every connection that has carried a request, including the watches on it.
    pub fn cut_all(&self) {
        let connections = std::mem::take(&mut *self.state.connections.lock());
        for connection in connections.iter().filter_map(WeakConnection::upgrade) {
            connection.cut();
        }
    }

    /// The number of requests so far by method and path (without the query), blocked ones included.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.state.counts().clone()
    }

    /// The number of requests so far with this method whose path (without the query) contains the
    /// text.
    pub fn count(&self, method: &Method, path_contains: &str) -> u64 {
        self.state
            .counts()
            .iter()
            .filter(|((one, path), _)| one == method.as_str() && path.contains(path_contains))
            .map(|(_, count)| count)
            .sum()
    }
}

/// The state that the handlers share.
#[derive(Debug, Clone)]
struct ProxyState {
    upstream: String,
    client: reqwest::Client,
    rules: Arc<Mutex<Rules>>,
    counts: Arc<Mutex<BTreeMap<(String, String), u64>>>,
    paused: watch::Sender<bool>,
    connections: Arc<Mutex<Vec<WeakConnection>>>,
}

impl ProxyState {
    fn rules(&self) -> parking_lot::MutexGuard<'_, Rules> {
        self.rules.lock()
    }

    fn remember(&self, connection: &Connection) {
        let mut connections = self.connections.lock();
        connections.retain(|known| known.upgrade().is_some());
        if !connections.iter().any(|known| known.is_of(connection)) {
            connections.push(connection.downgrade());
        }
    }

    fn counts(&self) -> parking_lot::MutexGuard<'_, BTreeMap<(String, String), u64>> {
        self.counts.lock()
    }
}
