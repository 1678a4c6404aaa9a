//! The embedded hub: the subset of kube-apiserver that the broker calls, over real TLS, with
//! real keys, programmable from outside.
//!
//! The broker token may do everything. Any other caller is a ServiceAccount of this hub with a
//! token for the hub's own issuer, and may do what a [`Grant`] says.

mod access;
mod api;
mod callers;
mod claims;
#[cfg(feature = "faults")]
mod faults;
mod keys;
mod kubeconfig;
mod object;
mod objects;
mod oidc;
mod reviews;
mod routes;
mod state;
mod token_request;
mod tokens;
mod verify;
mod watch;
mod world;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::clock::{self, Clock};
use super::pki::Authority;
use super::server::{Bound, Running};
use super::{EmbeddedError, locked};
pub use access::{Grant, Subject};
pub use claims::PodBinding;
#[cfg(feature = "faults")]
pub use faults::Fault;
pub use keys::KeyAlgorithm;
pub(super) use kubeconfig::document as kubeconfig_document;
pub use routes::Route;
use state::HubState;
pub(super) use state::random_token;

/// Which callers may read the hub's discovery documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryAccess {
    /// All callers, so that a target can read them directly from the hub.
    #[default]
    Anonymous,
    /// Only callers with a token, as Kubernetes ships; others get 403.
    Authenticated,
}

/// The options of a hub. `HubOptions::default()` is a current hub with everything enabled.
#[derive(Clone)]
pub struct HubOptions {
    /// `--service-account-issuer`; none = the hub's own URL.
    pub issuer: Option<String>,
    /// Type of every signing key. Default ES256.
    pub algorithm: KeyAlgorithm,
    /// Whether TokenRequest compares `metadata.uid`; hubs up to 1.33 do not. Default true.
    pub checks_uid: bool,
    /// `--service-account-max-token-expiration`; longer requests are shortened. Default none.
    pub max_token_lifetime: Option<Duration>,
    /// Which callers may read discovery and JWKS. Default all.
    pub discovery_access: DiscoveryAccess,
    /// The CA that signs the hub's server certificate, and so the one a target needs to read
    /// discovery from this hub; none = a new one, readable as [`EmbeddedHub::ca_pem`].
    pub discovery_ca: Option<Authority>,
    /// The clock for tokens and objects. Default the machine's clock.
    pub clock: Clock,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            issuer: None,
            algorithm: KeyAlgorithm::default(),
            checks_uid: true,
            max_token_lifetime: None,
            discovery_access: DiscoveryAccess::default(),
            discovery_ca: None,
            clock: clock::system(),
        }
    }
}

/// A running hub. Dropping it closes its port.
pub struct EmbeddedHub {
    state: Arc<HubState>,
    server: Running,
    ca_pem: String,
}

impl EmbeddedHub {
    /// Starts a hub on a free port of 127.0.0.1. Needs a tokio runtime.
    ///
    /// # Errors
    /// When a key or certificate cannot be made, or no port can be opened.
    pub async fn start(options: HubOptions) -> Result<Self, EmbeddedError> {
        let authority = match &options.discovery_ca {
            Some(authority) => authority.clone(),
            None => Authority::new("keyferry embedded hub CA")?,
        };
        let bound = Bound::loopback()?;
        let state = Arc::new(HubState::new(bound.url(), options)?);
        let server = bound.serve(
            &authority.loopback_identity()?,
            api::router(Arc::clone(&state)),
        )?;
        Ok(Self {
            state,
            server,
            ca_pem: authority.ca_pem().to_owned(),
        })
    }

    /// Closes the port and all connections; waits until that is done.
    pub async fn stop(&self) {
        self.server.stop().await;
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.state.url
    }

    /// The issuer in every token of this hub, and its one API audience.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// URL of the discovery document.
    #[must_use]
    pub fn discovery_url(&self) -> String {
        format!("{}{}", self.state.url, oidc::DISCOVERY_PATH)
    }

    /// The CA certificate of the hub's own TLS, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The bearer token that may do everything; random at each start.
    #[must_use]
    pub fn broker_token(&self) -> &SecretString {
        &self.state.broker_token
    }

    /// Allows what the grant says, from now on.
    pub fn grant(&self, grant: Grant) {
        locked(&self.state.grants).push(grant);
    }

    /// Revokes every grant equal to this one.
    pub fn revoke(&self, grant: &Grant) {
        locked(&self.state.grants).retain(|held| held != grant);
    }

    #[cfg(feature = "faults")]
    /// Makes `route` misbehave until another fault is set or all are cleared.
    pub fn set_fault(&self, route: Route, fault: Fault) {
        self.state.faults.set(route, fault);
    }

    #[cfg(feature = "faults")]
    /// Makes the next `times` requests of `route` misbehave.
    pub fn set_fault_for(&self, route: Route, fault: Fault, times: u32) {
        self.state.faults.set_for(route, fault, times);
    }

    #[cfg(feature = "faults")]
    /// Makes every route misbehave alike: an outage.
    pub fn set_fault_everywhere(&self, fault: &Fault) {
        for route in Route::ALL {
            self.state.faults.set(route, fault.clone());
        }
    }

    #[cfg(feature = "faults")]
    /// Ends all misbehaviour.
    pub fn clear_faults(&self) {
        self.state.faults.clear();
    }

    /// Requests of one route since the start, also those that met a fault.
    #[must_use]
    pub fn requests(&self, route: Route) -> u64 {
        self.state.requests.of(route)
    }

    /// TokenRequests since the start.
    #[must_use]
    pub fn token_requests(&self) -> u64 {
        self.requests(Route::TokenRequest)
    }

    /// TokenReviews since the start.
    #[must_use]
    pub fn token_reviews(&self) -> u64 {
        self.requests(Route::TokenReview)
    }

    /// SubjectAccessReviews and SelfSubjectAccessReviews since the start.
    #[must_use]
    pub fn access_reviews(&self) -> u64 {
        self.requests(Route::AccessReview)
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("url", &self.state.url)
            .finish_non_exhaustive()
    }
}
