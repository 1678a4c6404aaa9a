//! Fetches public documents as a target does: anonymously, by https, and following redirects.
//!
//! Every request, also one after a redirect, goes only to addresses that the [`AddressGuard`] has
//! checked.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use crate::address_guard::{AddressGuard, DestinationError};
use crate::connection_fault::Endpoint;
use crate::https_client::{HttpsClientBuilder, HttpsClientError, check_authority};
use crate::target_connection::{TargetAddress, TargetConnection, TargetConnectionError};

/// How many redirects are followed, as by Go's clients.
const MAX_REDIRECTS: usize = 10;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not a URL that can be fetched.
    #[error("it is not an https URL that can be fetched")]
    Url,
    /// It redirects too often, or to another kind of URL.
    #[error("it redirects without end, or to a URL that is not https")]
    Redirect,
    /// The look-ups and redirects took too long.
    #[error("it did not answer in time")]
    Timeout,
    /// Nothing was sent, because of the address.
    #[error(transparent)]
    Destination(DestinationError),
    /// No client could be built.
    #[error(transparent)]
    Client(HttpsClientError),
    /// The request failed.
    #[error("the request failed")]
    Request {
        /// The failure.
        error: reqwest::Error,
        /// Where the connection led.
        endpoint: Option<Endpoint>,
    },
}

/// A response whose body is not yet read.
pub struct DocumentResponse {
    /// The response.
    pub response: reqwest::Response,
    /// Where the connection leads.
    pub endpoint: Option<Endpoint>,
}

/// Fetches documents with one set of CA certificates.
pub struct PublicDocuments {
    ca_pem: Option<Vec<u8>>,
    deadline: Duration,
    guard: AddressGuard,
}

impl PublicDocuments {
    /// Prepares requests that trust only these CA certificates, or the system's if none are given.
    ///
    /// # Errors
    /// [`HttpsClientError`]: no client can be built.
    pub fn new(
        ca_pem: Option<&[u8]>,
        deadline: Duration,
        guard: AddressGuard,
    ) -> Result<Self, HttpsClientError> {
        check_authority(ca_pem)?;
        Ok(Self {
            ca_pem: ca_pem.map(<[u8]>::to_vec),
            deadline,
            guard,
        })
    }

    /// Fetches a URL with GET. The deadline holds for all look-ups and redirects together.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub async fn get(&self, url: &str) -> Result<DocumentResponse, DocumentError> {
        self.get_linked(url, url).await
    }

    /// Fetches a URL that the document at `from` names, as [`Self::get`] does. What the user named is
    /// exempt from the guard's rules only for requests to the origin of `from`: another server's
    /// document or redirect must not lead there.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub async fn get_linked(
        &self,
        url: &str,
        from: &str,
    ) -> Result<DocumentResponse, DocumentError> {
        tokio::time::timeout(self.deadline, self.follow_redirects(url, from))
            .await
            .map_err(|_| DocumentError::Timeout)?
    }

    async fn follow_redirects(
        &self,
        url: &str,
        from: &str,
    ) -> Result<DocumentResponse, DocumentError> {
        let end = Instant::now() + self.deadline;
        let mut url = Url::parse(url).map_err(|_| DocumentError::Url)?;
        let from = Url::parse(from).map_err(|_| DocumentError::Url)?.origin();
        if url.scheme() != "https" {
            return Err(DocumentError::Url);
        }
        let strict = self.guard.clone().without_own();
        for _ in 0..=MAX_REDIRECTS {
            let left = end.saturating_duration_since(Instant::now());
            let guard = if url.origin() == from {
                &self.guard
            } else {
                &strict
            };
            let answer = self.send_request(&url, guard, left).await?;
            let Some(next) = redirect_target(&answer.response, &url) else {
                return Ok(answer);
            };
            if next.scheme() != "https" {
                break;
            }
            url = next;
        }
        Err(DocumentError::Redirect)
    }

    async fn send_request(
        &self,
        url: &Url,
        guard: &AddressGuard,
        left: Duration,
    ) -> Result<DocumentResponse, DocumentError> {
        let address = TargetAddress {
            url: url.to_string(),
            ca_pem: self.ca_pem.clone(),
            ..TargetAddress::default()
        };
        let builder = HttpsClientBuilder::new(left).without_reuse();
        let connection = TargetConnection::open(&address, guard, builder).await?;
        let endpoint = connection.endpoint().cloned();
        match connection.client().get(url.clone()).send().await {
            Ok(response) => Ok(DocumentResponse { response, endpoint }),
            Err(error) => Err(DocumentError::Request { error, endpoint }),
        }
    }
}

impl From<TargetConnectionError> for DocumentError {
    fn from(error: TargetConnectionError) -> Self {
        match error {
            TargetConnectionError::Destination(refused) => Self::Destination(refused),
            TargetConnectionError::Client(error) => Self::Client(error),
            TargetConnectionError::Address
            | TargetConnectionError::Proxy
            | TargetConnectionError::ServerName
            | TargetConnectionError::ProxiedServerName => Self::Url,
        }
    }
}

/// Returns where a response redirects to.
fn redirect_target(response: &reqwest::Response, from: &Url) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(http::header::LOCATION)?;
    // Not all clients limit the header to ASCII.
    from.join(std::str::from_utf8(location.as_bytes()).ok()?)
        .ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
