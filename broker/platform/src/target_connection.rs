//! Opens connections to servers whose address somebody else wrote: targets, and issuers' documents.
//!
//! # Guarantees
//! - The host, or that of the proxy, is resolved once, and the [`AddressGuard`] checks every address.
//! - Connections go only to the checked addresses: a second DNS answer has no effect. A host that
//!   does not resolve is connected to nowhere.
//! - A target behind a proxy is never connected to directly.
//! - The TLS server is named by the host of the URL, or by a DNS name instead of it.

use std::sync::Arc;

use http::Method;
use keyferry_api::config::TargetCluster;
use url::Url;

use crate::address_guard::{AddressGuard, DestinationError};
use crate::connection_fault::Endpoint;
use crate::https_client::{HttpsClientBuilder, HttpsClientError};

/// A server's address, and how to verify its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetAddress {
    /// The https URL.
    pub url: String,
    /// The only CA certificates to trust, PEM. `None` means the system's roots.
    pub ca_pem: Option<Vec<u8>>,
    /// The name in the server's certificate, if it is not the URL's host.
    pub tls_server_name: Option<String>,
    /// The proxy through which the server is reached.
    pub proxy_url: Option<String>,
}

impl TargetAddress {
    /// Returns the address of a TargetCluster, whose CA certificates were read from where its spec
    /// says.
    #[must_use]
    pub fn of_target(target: &TargetCluster, ca_pem: Option<Arc<str>>) -> Self {
        Self {
            url: target.address.clone(),
            ca_pem: ca_pem.map(|pem| pem.as_bytes().to_vec()),
            tls_server_name: target.tls_server_name.clone(),
            proxy_url: target.proxy_url.clone(),
        }
    }
}

/// Why no connection can be opened. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetConnectionError {
    /// The address is not a URL with a host.
    #[error("its address is not a URL that can be used")]
    Address,
    /// The proxy is not an http or https URL.
    #[error("its proxy is not a URL that can be used")]
    Proxy,
    /// The name for the certificate is an address, or text that a URL reads otherwise.
    #[error("its tlsServerName is not a DNS name")]
    ServerName,
    /// The HTTP client would ask the proxy to connect to the name in the certificate instead of the
    /// address.
    #[error("it cannot be called with a tlsServerName through a proxyURL")]
    ProxiedServerName,
    /// An address of the host, or of the proxy, is refused.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The CA certificates cannot be used, or no client can be built.
    #[error(transparent)]
    Client(#[from] HttpsClientError),
}

/// An HTTPS client for one server.
pub struct TargetConnection {
    client: reqwest::Client,
    base: String,
    endpoint: Option<Endpoint>,
    unresolved_host: Option<String>,
}

impl TargetConnection {
    /// Resolves and checks the address, and prepares requests to it. `builder` sets the deadlines
    /// and whether connections are reused.
    ///
    /// # Errors
    /// [`TargetConnectionError`].
    pub async fn open(
        address: &TargetAddress,
        guard: &AddressGuard,
        builder: HttpsClientBuilder,
    ) -> Result<Self, TargetConnectionError> {
        use TargetConnectionError as Error;
        let url = Url::parse(&address.url).map_err(|_| Error::Address)?;
        let builder = builder.trust_authority(address.ca_pem.as_deref())?;
        match (&address.proxy_url, &address.tls_server_name) {
            (Some(_), Some(_)) => Err(Error::ProxiedServerName),
            (Some(proxy), None) => Self::open_through_proxy(proxy, &url, guard, builder).await,
            (None, server_name) => {
                Self::open_direct(url, server_name.as_deref(), guard, builder).await
            }
        }
    }

    async fn open_direct(
        mut url: Url,
        server_name: Option<&str>,
        guard: &AddressGuard,
        builder: HttpsClientBuilder,
    ) -> Result<Self, TargetConnectionError> {
        use TargetConnectionError as Error;
        let host = url.host_str().ok_or(Error::Address)?.to_owned();
        let addresses = guard.checked_addresses(&url).await?;
        let mut endpoint =
            Endpoint::of_url(&url).map(|endpoint| endpoint.with_addresses(&addresses));
        if let Some(name) = server_name {
            endpoint = endpoint.map(|endpoint| endpoint.with_server_name(name));
            url.set_host(Some(name)).map_err(|_| Error::ServerName)?;
            // The HTTP client connects to what the URL reads in the name, such as an address or a
            // name before a colon, and not to the checked addresses.
            if url.domain() != Some(name.to_ascii_lowercase().as_str()) {
                return Err(Error::ServerName);
            }
        }
        let pinned_host = url.host_str().ok_or(Error::Address)?;
        Ok(Self {
            client: builder.resolve_host_to(pinned_host, &addresses).build()?,
            base: base_of(&url),
            endpoint,
            unresolved_host: addresses.is_empty().then_some(host),
        })
    }

    async fn open_through_proxy(
        proxy: &str,
        url: &Url,
        guard: &AddressGuard,
        builder: HttpsClientBuilder,
    ) -> Result<Self, TargetConnectionError> {
        use TargetConnectionError as Error;
        let host = url.host_str().ok_or(Error::Address)?;
        let proxy_url = Url::parse(proxy).map_err(|_| Error::Proxy)?;
        let proxy_host = proxy_url.host_str().ok_or(Error::Proxy)?;
        let addresses = guard.checked_addresses(&proxy_url).await?;
        guard.check_behind_proxy(url).await?;
        let builder = builder
            .connect_through_proxy(proxy, host)
            .map_err(|_| Error::Proxy)?;
        Ok(Self {
            client: builder.resolve_host_to(proxy_host, &addresses).build()?,
            base: base_of(url),
            endpoint: None,
            unresolved_host: addresses
                .is_empty()
                .then(|| format!("{proxy_host}, of its proxy")),
        })
    }

    /// Starts a request to a path at the server. Its URL has the name in the server's certificate.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// The client, for URLs of the address's origin: connections are pinned for its host alone.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Where the connections lead; `None` through a proxy, whose own fault and the server's look
    /// the same.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// The host that does not resolve, so that every request fails.
    pub fn unresolved_host(&self) -> Option<&str> {
        self.unresolved_host.as_deref()
    }
}

fn base_of(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod address_tests;
