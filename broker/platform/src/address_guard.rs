//! Finds the addresses of a host, and refuses those to which Keyferry does not connect.
//!
//! # Guarantees
//! A name is resolved once, every address is checked, and the caller connects only to the returned
//! addresses. A second DNS answer has no effect.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use keyferry_core::target_address::{AddressRules, HubNetworks, RefusedDestination};
use url::Url;

use crate::name_resolver::{NameResolver, SystemResolver};

/// The port of a SOCKS proxy whose URL names none (RFC 1928).
const SOCKS_PORT: u16 = 1080;

/// Why nothing was sent to a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// An address of the host is refused.
    #[error("{}{refused}", name_unless_address(host))]
    Refused {
        /// The host of the URL.
        host: String,
        /// Its address.
        refused: RefusedDestination,
    },
    /// The hub's networks are not known, so no address could be checked.
    #[error("the hub's own networks could not be read, so nothing was sent to it")]
    HubUnread,
}

/// Names the host, unless it is the address itself.
fn name_unless_address(host: &str) -> String {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(_) => "its address is ".to_owned(),
        Err(_) => format!("{host} leads to "),
    }
}

/// The hub's networks could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub's own networks could not be read")]
pub struct HubNetworksUnread;

/// Tells the hub's own networks.
pub trait HubNetworkSource: Send + Sync {
    /// Returns the hub's networks, as far as the hub names them.
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>>;
}

/// Decides which addresses may be connected to, for one server or one run of a command.
///
/// The default allows no network beyond the rules, and knows no hub.
#[derive(Clone)]
pub struct AddressGuard {
    rules: AddressRules,
    hub: Arc<dyn HubNetworkSource>,
    resolver: Arc<dyn NameResolver>,
    own: Vec<Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    host: String,
    port: u16,
}

impl Origin {
    fn of_url(url: &Url) -> Option<Self> {
        Some(Self {
            host: url.host_str()?.to_owned(),
            port: url.port_or_known_default().unwrap_or(SOCKS_PORT),
        })
    }
}

impl AddressGuard {
    /// Creates a guard.
    pub fn new(
        rules: AddressRules,
        hub: Arc<dyn HubNetworkSource>,
        resolver: Arc<dyn NameResolver>,
    ) -> Self {
        Self {
            rules,
            hub,
            resolver,
            own: Vec::new(),
        }
    }

    /// Does not check the host and port of a URL that the user gives on the command line or in
    /// their own kubeconfig: nobody else chose it. A text that is no URL changes nothing.
    #[must_use]
    pub fn with_own(mut self, url: &str) -> Self {
        self.own
            .extend(Url::parse(url).ok().as_ref().and_then(Origin::of_url));
        self
    }

    /// Checks every place again, also what [`Self::with_own`] exempts.
    #[must_use]
    pub fn without_own(self) -> Self {
        Self {
            own: Vec::new(),
            ..self
        }
    }

    /// Resolves the host of a URL, and checks every address. The result is empty if it does not
    /// resolve.
    ///
    /// # Errors
    /// [`DestinationError`]: nothing may be sent there.
    pub async fn checked_addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, DestinationError> {
        let Some(origin) = Origin::of_url(url) else {
            return Ok(Vec::new());
        };
        let host = origin.host.trim_matches(['[', ']']);
        // The HTTP client connects to an address in the URL itself, whatever a resolver answers.
        let addresses = match host.parse() {
            Ok(address) => vec![SocketAddr::new(address, origin.port)],
            Err(_) => self.resolver.addresses(host, origin.port).await,
        };
        if addresses.is_empty() || self.own.contains(&origin) {
            return Ok(addresses);
        }
        self.rules
            .check_addresses(
                addresses.iter().map(SocketAddr::ip),
                &self.hub_networks().await?,
            )
            .map_err(|refused| DestinationError::Refused {
                host: origin.host.clone(),
                refused,
            })?;
        Ok(addresses)
    }

    /// Checks the host of a URL that a proxy resolves.
    ///
    /// # Errors
    /// [`DestinationError`]: the host surely is one to which nothing may be sent.
    pub async fn check_behind_proxy(&self, url: &Url) -> Result<(), DestinationError> {
        let Some(origin) = Origin::of_url(url).filter(|origin| !self.own.contains(origin)) else {
            return Ok(());
        };
        self.rules
            .check_behind_proxy(&origin.host, &self.hub_networks().await?)
            .map_err(|refused| DestinationError::Refused {
                host: origin.host.clone(),
                refused,
            })
    }

    async fn hub_networks(&self) -> Result<HubNetworks, DestinationError> {
        let networks = self.hub.networks().await;
        networks.map_err(|_| DestinationError::HubUnread)
    }
}

impl Default for AddressGuard {
    fn default() -> Self {
        Self::new(
            AddressRules::default(),
            Arc::new(HubNetworks::default()),
            Arc::new(SystemResolver),
        )
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AddressGuard")
            .field("rules", &self.rules)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

/// Networks that are known from the start, or of no hub at all.
impl HubNetworkSource for HubNetworks {
    fn networks(&self) -> BoxFuture<'_, Result<HubNetworks, HubNetworksUnread>> {
        let networks = self.clone();
        Box::pin(async move { Ok(networks) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::{ScriptedResolver, strict_guard};

    fn guard() -> AddressGuard {
        strict_guard(ScriptedResolver::new(&[&["127.0.0.1"]]))
    }

    async fn check(guard: &AddressGuard, url: &str) -> Result<Vec<SocketAddr>, String> {
        let addresses = guard.checked_addresses(&Url::parse(url).unwrap()).await;
        addresses.map_err(|refused| refused.to_string())
    }

    #[tokio::test]
    async fn a_refusal_names_the_host_and_its_address() {
        for (url, message) in [
            (
                "https://prod.example.test",
                "prod.example.test leads to 127.0.0.1, a loopback address, so nothing was sent; if \
                 it is right, --allow-target-cidr 127.0.0.0/8 allows it",
            ),
            (
                "https://[::1]:6443",
                "its address is ::1, a loopback address, so nothing was sent; if it is right, \
                 --allow-target-cidr ::1/128 allows it",
            ),
            (
                "https://169.254.169.254",
                "its address is 169.254.169.254, a link-local address, so nothing was sent",
            ),
        ] {
            assert_eq!(check(&guard(), url).await.unwrap_err(), message);
        }
    }

    #[tokio::test]
    async fn an_address_keeps_its_port_or_that_of_its_scheme() {
        for (url, port) in [
            ("https://203.0.113.9:6443", 6443),
            ("https://203.0.113.9", 443),
            ("http://203.0.113.9", 80),
            ("socks5://203.0.113.9", 1080),
        ] {
            let address = SocketAddr::new("203.0.113.9".parse().unwrap(), port);
            assert_eq!(check(&guard(), url).await, Ok(vec![address]), "{url}");
        }
    }

    #[tokio::test]
    async fn what_the_user_gave_is_exempt_at_its_own_host_and_port() {
        let own = guard().with_own("https://127.0.0.1:6443").with_own("none");
        for (url, exempt) in [
            ("https://127.0.0.1:6443", true),
            ("https://127.0.0.1:6444", false),
            ("https://localhost:6443", false),
        ] {
            assert_eq!(check(&own, url).await.is_ok(), exempt, "{url}");
            let parsed = Url::parse(url).unwrap();
            let behind_proxy = own.check_behind_proxy(&parsed).await;
            assert_eq!(behind_proxy.is_ok(), exempt, "{url} behind a proxy");
            assert!(check(&own.clone().without_own(), url).await.is_err());
        }
    }
}
