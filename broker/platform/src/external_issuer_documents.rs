//! Fetches the discovery document and the key set of an external issuer.
//!
//! The configuration names the issuer, but DNS decides where it is. So its addresses are checked
//! and pinned like those of targets, by a [`TargetConnection`].

use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::issuer::Issuer;
use keyferry_core::target_address::RefusedAddress;
use keyferry_keys::discovery::{
    DiscoveryError, KEYS_TYPE, MAX_DISCOVERY_BYTES, METADATA_TYPE, external_keys_url,
};
use keyferry_keys::jwks::{JwksError, KeySetLimits, PublicKeySet};
use url::Url;

use crate::address_guard::{AddressGuard, DestinationError};
use crate::connection_fault::{ConnectionFault, ConnectionFaultKind};
use crate::gzip::GzipError;
use crate::https_client::{BodyError, HttpsClientBuilder, HttpsClientError, read_body};
use crate::target_connection::{TargetAddress, TargetConnection, TargetConnectionError};

/// The deadline of both documents together. A caller may wait for it.
const DOCUMENTS_DEADLINE: Duration = Duration::from_secs(8);

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
    Client(HttpsClientError),
    /// There was no complete answer.
    #[error("{0}")]
    NoAnswer(&'static str),
    /// The answer is not 200.
    #[error("it answered {0}, not 200")]
    Status(u16),
    /// The answer is longer than is read.
    #[error("its answer is too long")]
    TooLong,
    /// The answer is not the gzip that it says it is.
    #[error("{}", GzipError::Malformed)]
    NotGzip,
    /// Its certificate is not accepted.
    #[error("{0}")]
    Certificate(String),
    /// The discovery document is refused.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The key set is refused.
    #[error(transparent)]
    Keys(#[from] JwksError),
}

impl ExternalKeysError {
    /// What the issuer has to do, if its own answer is at fault and not the way to it. A reader at
    /// another place gets the same answer.
    #[must_use]
    pub fn issuers_fix(&self) -> Option<&'static str> {
        match self {
            Self::Keys(error) => Some(error.fix()),
            Self::Discovery(_) => Some(
                "serve a discovery document whose issuer is the url, and whose jwks_uri is on the \
                 same origin",
            ),
            Self::Status(300..=399 | 404 | 410) => Some(
                "serve the discovery document below the url, and the keys at its jwks_uri, without a \
                 redirect",
            ),
            Self::TooLong => Some("serve a discovery document and keys within the limits"),
            Self::NotGzip => Some("send no Content-Encoding, or the one that the answer has"),
            Self::Certificate(_) => Some(
                "set certificateAuthority to the CA of the issuer's server, and have its certificate \
                 name the host of the url",
            ),
            Self::NoAddress
            | Self::AddressRefused(_)
            | Self::NetworksUnread
            | Self::Client(_)
            | Self::NoAnswer(_)
            | Self::Status(_) => None,
        }
    }
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
    guard: AddressGuard,
}

impl HttpsIssuerKeys {
    /// Creates the client. It connects only where `guard` allows.
    pub fn new(guard: AddressGuard) -> Self {
        Self { guard }
    }

    async fn read_key_set(
        &self,
        ExternalIssuerAddress {
            issuer,
            certificate_authority,
        }: &ExternalIssuerAddress,
    ) -> Result<PublicKeySet, ExternalKeysError> {
        let address = TargetAddress {
            url: issuer.discovery_url(),
            ca_pem: certificate_authority.clone().map(String::into_bytes),
            ..TargetAddress::default()
        };
        let url = Url::parse(&address.url).map_err(|_| ExternalKeysError::NoAddress)?;
        let builder = HttpsClientBuilder::new(DOCUMENTS_DEADLINE).without_reuse();
        let connection = TargetConnection::open(&address, &self.guard, builder).await?;
        if connection.unresolved_host().is_some() {
            return Err(ExternalKeysError::NoAddress);
        }
        let client = connection.client();
        let document = get_document(client, url, METADATA_TYPE, MAX_DISCOVERY_BYTES).await?;
        let keys_url = external_keys_url(&document, issuer)?;
        let accepted = format!("{KEYS_TYPE}, {METADATA_TYPE}");
        let limits = KeySetLimits::default();
        let body = get_document(client, keys_url, &accepted, limits.bytes).await?;
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
            tokio::time::timeout(DOCUMENTS_DEADLINE, self.read_key_set(issuer))
                .await
                .unwrap_or(Err(ANSWERED_LATE))
        })
    }
}

impl From<TargetConnectionError> for ExternalKeysError {
    fn from(error: TargetConnectionError) -> Self {
        match error {
            TargetConnectionError::Destination(DestinationError::Refused { refused, .. }) => {
                Self::AddressRefused(refused.kind)
            }
            TargetConnectionError::Destination(DestinationError::HubUnread) => Self::NetworksUnread,
            TargetConnectionError::Client(error) => Self::Client(error),
            TargetConnectionError::Address
            | TargetConnectionError::Proxy
            | TargetConnectionError::ServerName
            | TargetConnectionError::ProxiedServerName => Self::NoAddress,
        }
    }
}

const ANSWERED_LATE: ExternalKeysError = ExternalKeysError::NoAnswer("it did not answer in time");

async fn get_document(
    client: &reqwest::Client,
    url: Url,
    accepted: &str,
    limit: usize,
) -> Result<Vec<u8>, ExternalKeysError> {
    let request = client.get(url).header(http::header::ACCEPT, accepted);
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Err(describe_fault(&error).await),
    };
    if response.status() != http::StatusCode::OK {
        return Err(ExternalKeysError::Status(response.status().as_u16()));
    }
    match read_body(&mut response, limit).await {
        Ok(body) => Ok(body),
        Err(BodyError::TooLong(_)) => Err(ExternalKeysError::TooLong),
        Err(BodyError::Malformed) => Err(ExternalKeysError::NotGzip),
        Err(BodyError::Connection(error)) => Err(describe_fault(&error).await),
    }
}

async fn describe_fault(error: &reqwest::Error) -> ExternalKeysError {
    if error.is_timeout() {
        ANSWERED_LATE
    } else if error.is_connect() {
        // Without an endpoint, nothing more is asked than the error says.
        let fault = ConnectionFault::diagnose(error, None).await;
        match fault.kind {
            ConnectionFaultKind::UnknownAuthority
            | ConnectionFaultKind::OtherNames
            | ConnectionFaultKind::Certificate(_) => ExternalKeysError::Certificate(fault.text),
            _ => ExternalKeysError::NoAnswer("there is no connection to it"),
        }
    } else {
        ExternalKeysError::NoAnswer("the connection broke off")
    }
}

#[cfg(test)]
mod tests;
