//! The embedded hub: the subset of kube-apiserver that the broker calls, over real TLS, with
//! real keys, programmable from outside.
//!
//! The broker token may do everything. Any other caller is a ServiceAccount of this hub with a
//! token for the hub's own issuer, and may do what a [`Grant`] says.

mod access;
mod api;
mod claims;
#[cfg(feature = "faults")]
mod faults;
mod keys;
mod object;
mod objects;
mod oidc;
mod policy;
mod routes;
mod token_request;
mod tokens;
mod verify;
mod watch;
mod world;
mod write;

use std::time::Duration;

use secrecy::SecretString;

use super::clock::{self, Clock};
use super::pki::Authority;
use super::{EmbeddedError, locked};
use crate::apiserver::EmbeddedApiserver;
pub use access::{Grant, Subject};
pub use claims::PodBinding;
#[cfg(feature = "faults")]
pub use faults::Fault;
pub use keys::KeyAlgorithm;
pub use policy::HubPolicy;
pub use routes::Route;

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

/// An apiserver with the policy of a hub.
pub type EmbeddedHub = EmbeddedApiserver<HubPolicy>;

impl EmbeddedHub {
    /// Starts a hub on a free port of 127.0.0.1. Needs a tokio runtime.
    ///
    /// # Errors
    /// When a key or certificate cannot be made, or no port can be opened.
    #[allow(
        clippy::unused_async,
        reason = "its callers await it; it needs their runtime"
    )]
    pub async fn start(options: HubOptions) -> Result<Self, EmbeddedError> {
        let authority = options.discovery_ca.clone();
        Self::start_with(authority, |url| HubPolicy::new(url, options))
    }

    /// The issuer in every token of this hub, and its one API audience.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.policy.issuer
    }

    /// URL of the discovery document.
    #[must_use]
    pub fn discovery_url(&self) -> String {
        format!("{}{}", self.policy.url, oidc::DISCOVERY_PATH)
    }

    /// The bearer token that may do everything; random at each start.
    #[must_use]
    pub fn broker_token(&self) -> &SecretString {
        &self.policy.broker_token
    }

    /// A kubeconfig with the broker token in it. Holds a secret.
    #[must_use]
    pub fn kubeconfig(&self) -> SecretString {
        self.kubeconfig_for(self.broker_token())
    }

    /// Allows what the grant says, from now on.
    pub fn grant(&self, grant: Grant) {
        locked(&self.policy.grants).push(grant);
    }

    /// Revokes every grant equal to this one.
    pub fn revoke(&self, grant: &Grant) {
        locked(&self.policy.grants).retain(|held| held != grant);
    }

    #[cfg(feature = "faults")]
    /// Makes `route` misbehave until another fault is set or all are cleared.
    pub fn set_fault(&self, route: Route, fault: Fault) {
        self.policy.faults.set(route, fault);
    }

    #[cfg(feature = "faults")]
    /// Makes the next `times` requests of `route` misbehave.
    pub fn set_fault_for(&self, route: Route, fault: Fault, times: u32) {
        self.policy.faults.set_for(route, fault, times);
    }

    #[cfg(feature = "faults")]
    /// Makes every route misbehave alike: an outage.
    pub fn set_fault_everywhere(&self, fault: &Fault) {
        for route in Route::ALL {
            self.policy.faults.set(route, fault.clone());
        }
    }

    #[cfg(feature = "faults")]
    /// Ends all misbehaviour.
    pub fn clear_faults(&self) {
        self.policy.faults.clear();
    }

    /// Requests of one route since the start, also those that met a fault.
    #[must_use]
    pub fn requests(&self, route: Route) -> u64 {
        self.policy.requests.of(route)
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
