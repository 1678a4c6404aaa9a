//! An HTTPS reverse proxy in front of a control plane, with faults that are switched on and off
//! while it runs.
//!
//! It passes bearer tokens on and knows no client certificates; connection upgrades (exec,
//! port-forward) are not passed on.

mod forward;
mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use http::Method;
use tokio::sync::watch;

pub use rules::{Fault, Rule, RuleId};

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
    /// No certificate.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// No client for the server behind it.
    #[error(transparent)]
    Client(#[from] RestError),
    /// It could not listen.
    #[error("start a chaos proxy for {upstream}: {source}")]
    Start {
        /// The server behind it.
        upstream: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A running proxy; ends when dropped, open connections included.
#[derive(Debug)]
pub struct ChaosProxy {
    server: HttpsServer,
    state: ProxyState,
    ca_pem: String,
}

impl ChaosProxy {
    /// In front of a control plane, with a certificate of that control plane's authority: a client
    /// needs to change nothing but the URL.
    pub async fn in_front_of(plane: &ControlPlane) -> Result<Self, ChaosProxyError> {
        Self::start(&plane.url(), plane.ca_pem(), plane.ca()).await
    }

    /// In front of any server that the first authority signed, with a certificate of the second.
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
            .fallback(forward::answer)
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

    /// PEM of the authority that signed its certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Adds a rule after those that are there; of the rules that match a request, the first one
    /// counts.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.state.rules().add(rule)
    }

    /// Takes a rule away. Requests that it has hold of already are not let go.
    pub fn remove(&self, id: RuleId) {
        self.state.rules().remove(id);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.state.rules().clear();
    }

    /// Holds every request that comes from now on until [`Self::resume`].
    pub fn pause(&self) {
        self.state.paused.send_replace(true);
    }

    /// Lets the held requests go on.
    pub fn resume(&self) {
        self.state.paused.send_replace(false);
    }

    /// Breaks every connection that has carried a request, with the watches that are open on them.
    pub fn cut_all(&self) {
        let connections = std::mem::take(
            &mut *self
                .state
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for connection in connections.iter().filter_map(WeakConnection::upgrade) {
            connection.cut();
        }
    }

    /// Requests so far by method and path (without the query), held ones included.
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.state.counts().clone()
    }

    /// Requests so far with the method whose path (without the query) contains the text.
    pub fn count(&self, method: &Method, path_contains: &str) -> u64 {
        self.state
            .counts()
            .iter()
            .filter(|((one, path), _)| one == method.as_str() && path.contains(path_contains))
            .map(|(_, count)| count)
            .sum()
    }
}

/// What the handlers share.
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
    fn rules(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, connection: &Connection) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.retain(|known| known.upgrade().is_some());
        if !connections.iter().any(|known| known.is_of(connection)) {
            connections.push(connection.downgrade());
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
