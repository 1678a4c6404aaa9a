//! Fetches the discovery document and the key set of an external issuer.
//!
//! The configuration names the issuer, but DNS decides where it is. So its addresses are checked
//! like those of targets, and the connection goes to a checked address: a second DNS answer has no
//! effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::issuer::Issuer;
use keyferry_core::target_address::{AddressRules, RefusedAddress};
use keyferry_keys::discovery::{
    DiscoveryError, KEYS_TYPE, MAX_DISCOVERY_BYTES, METADATA_PATH, METADATA_TYPE, external_keys_url,
};
use keyferry_keys::jwks::{JwksError, KeySetLimits, PublicKeySet};
use url::Url;

use crate::https_client::{BodyError, HttpsClientBuilder, HttpsClientError, read_body};
use crate::name_resolver::NameResolver;
use crate::ports::HubNetworkSource;

/// The deadline of both documents together. A caller may wait for it.
const DEADLINE: Duration = Duration::from_secs(8);

/// Why the keys of an external issuer could not be read. No part of the answer is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExternalKeysError {
    /// The name does not resolve.
    #[error("its name does not resolve")]
    NoAddress,
    /// The name leads to an address to which the server does not connect.
    #[error("its name leads to {0}; --allow-target-cidr admits a network")]
    AddressRefused(RefusedAddress),
    /// The hub's own networks could not be read, so no address can be checked.
    #[error("the hub's own networks could not be read, so nothing was sent to it")]
    NetworksUnread,
    /// No client can be made with its certificate authority.
    #[error(transparent)]
    Client(#[from] HttpsClientError),
    /// There was no complete answer.
    #[error("{0}")]
    NoAnswer(&'static str),
    /// The answer is not 200.
    #[error("it answered {0}, not 200")]
    Status(u16),
    /// The discovery document is refused.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The key set is refused.
    #[error(transparent)]
    Keys(#[from] JwksError),
}

/// An external issuer, and whose certificates its server must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIssuerAddress {
    /// The issuer; its discovery document is below it.
    pub issuer: Issuer,
    /// PEM certificates to trust instead of the system's roots.
    pub certificate_authority: Option<String>,
}

/// Fetches the keys of external issuers, without a cache.
pub trait ExternalIssuerKeys: Send + Sync {
    /// Fetches the key set of one issuer.
    fn fetch<'a>(
        &'a self,
        issuer: &'a ExternalIssuerAddress,
    ) -> BoxFuture<'a, Result<PublicKeySet, ExternalKeysError>>;
}

/// Fetches over HTTPS, each time on a connection of its own.
pub struct HttpsIssuerKeys {
    rules: AddressRules,
    networks: Arc<dyn HubNetworkSource>,
    resolver: Arc<dyn NameResolver>,
}

impl HttpsIssuerKeys {
    /// Creates the client. It connects only where `rules` and the hub's networks allow.
    pub fn within(
        rules: AddressRules,
        networks: Arc<dyn HubNetworkSource>,
        resolver: Arc<dyn NameResolver>,
    ) -> Self {
        Self {
            rules,
            networks,
            resolver,
        }
    }

    async fn read(
        &self,
        ExternalIssuerAddress {
            issuer,
            certificate_authority,
        }: &ExternalIssuerAddress,
    ) -> Result<PublicKeySet, ExternalKeysError> {
        let place = format!("{}{METADATA_PATH}", issuer.as_str().trim_end_matches('/'));
        let url = Url::parse(&place).map_err(|_| ExternalKeysError::NoAddress)?;
        let host = url.host_str().ok_or(ExternalKeysError::NoAddress)?;
        let port = url
            .port_or_known_default()
            .ok_or(ExternalKeysError::NoAddress)?;
        let bare = host.trim_matches(['[', ']']);
        let addresses = self.resolver.addresses(bare, port).await;
        if addresses.is_empty() {
            return Err(ExternalKeysError::NoAddress);
        }
        let hub = self.networks.networks().await;
        let hub = hub.map_err(|_| ExternalKeysError::NetworksUnread)?;
        let refused = addresses
            .iter()
            .find_map(|address| self.rules.refusal(address.ip(), &hub));
        if let Some(kind) = refused {
            return Err(ExternalKeysError::AddressRefused(kind));
        }
        let mut builder = HttpsClientBuilder::new(DEADLINE).without_reuse();
        if let Some(pem) = certificate_authority {
            builder = builder.trusting_only(pem.as_bytes())?;
        }
        let client = builder.resolving(host, &addresses).build()?;
        let document = get(&client, url.clone(), METADATA_TYPE, MAX_DISCOVERY_BYTES).await?;
        let keys_url = external_keys_url(&document, issuer)?;
        let accepted = format!("{KEYS_TYPE}, {METADATA_TYPE}");
        let limits = KeySetLimits::default();
        let body = get(&client, keys_url, &accepted, limits.bytes).await?;
        let (keys, _) = PublicKeySet::from_upstream(&body, limits)?;
        Ok(keys)
    }
}

impl ExternalIssuerKeys for HttpsIssuerKeys {
    fn fetch<'a>(
        &'a self,
        issuer: &'a ExternalIssuerAddress,
    ) -> BoxFuture<'a, Result<PublicKeySet, ExternalKeysError>> {
        Box::pin(async move {
            tokio::time::timeout(DEADLINE, self.read(issuer))
                .await
                .unwrap_or(Err(LATE))
        })
    }
}

const LATE: ExternalKeysError = ExternalKeysError::NoAnswer("it did not answer in time");

async fn get(
    client: &reqwest::Client,
    url: Url,
    accepted: &str,
    limit: usize,
) -> Result<Vec<u8>, ExternalKeysError> {
    let request = client.get(url).header(http::header::ACCEPT, accepted);
    let mut response = request.send().await.map_err(|error| fault(&error))?;
    if response.status() != http::StatusCode::OK {
        return Err(ExternalKeysError::Status(response.status().as_u16()));
    }
    read_body(&mut response, limit)
        .await
        .map_err(|error| match error {
            BodyError::TooLong(_) => ExternalKeysError::NoAnswer("its answer is too long"),
            BodyError::Connection(error) => fault(&error),
        })
}

fn fault(error: &reqwest::Error) -> ExternalKeysError {
    if error.is_timeout() {
        LATE
    } else if error.is_connect() {
        ExternalKeysError::NoAnswer(
            "there is no connection to it, or its certificate is not signed by its CA",
        )
    } else {
        ExternalKeysError::NoAnswer("the connection broke off")
    }
}

/// Checks that a client can be made for an issuer, so that a mistake is found at the start.
///
/// # Errors
/// [`HttpsClientError`].
pub fn check_authority(certificate_authority: Option<&str>) -> Result<(), HttpsClientError> {
    let builder = HttpsClientBuilder::new(DEADLINE);
    match certificate_authority {
        Some(pem) => builder.trusting_only(pem.as_bytes())?.build(),
        None => builder.build(),
    }
    .map(|_| ())
}

#[cfg(test)]
mod tests;
