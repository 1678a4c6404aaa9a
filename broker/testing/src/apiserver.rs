//! One embedded apiserver: its TLS, authentication, impersonation, authorization, discovery of the
//! API and reviews. A [`ServerPolicy`] says what a hub and a target do differently.

pub(crate) mod admission;
mod forbidden;
pub(crate) mod index;
mod kubeconfig;
pub(crate) mod listener;
pub(crate) mod policy;
pub(crate) mod request_attributes;
pub(crate) mod reviews;

use std::fmt;
use std::sync::Arc;

use crate::EmbeddedError;
use crate::pki::Authority;
use listener::{Bound, Running};
use policy::ServerPolicy;

/// A running apiserver on loopback, with the policy of a hub or of a target. Dropping it closes its
/// port.
pub struct EmbeddedApiserver<P> {
    pub(crate) policy: Arc<P>,
    server: Running,
    url: String,
    ca_pem: String,
    /// What its kubeconfigs call it.
    name: &'static str,
}

impl<P> EmbeddedApiserver<P> {
    /// Starts a server on a free port of 127.0.0.1, with the policy that is made for its URL.
    /// `authority` signs its server certificate; none = a new one.
    pub(crate) fn start_with(
        authority: Option<Authority>,
        policy: impl FnOnce(String) -> Result<P, EmbeddedError>,
    ) -> Result<Self, EmbeddedError>
    where
        P: ServerPolicy,
    {
        let authority = match authority {
            Some(authority) => authority,
            None => Authority::new(&format!("keyferry embedded {} CA", P::NAME))?,
        };
        let bound = Bound::loopback()?;
        let url = bound.url();
        let policy = Arc::new(policy(url.clone())?);
        let router = P::router(Arc::clone(&policy));
        let server = bound.serve(&authority.loopback_identity()?, router)?;
        Ok(Self {
            policy,
            server,
            url,
            ca_pem: authority.ca_pem().to_owned(),
            name: P::NAME,
        })
    }

    /// Closes the port and all connections; waits until that is done.
    pub async fn stop(&self) {
        self.server.stop().await;
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The CA certificate of the server's own TLS, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}

impl<P> fmt::Debug for EmbeddedApiserver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedApiserver")
            .field("name", &self.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
