//! Replaces the serving certificate of a running control plane.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::authentication::swap;
use super::{ControlPlane, ControlPlaneError};
use crate::http_client::{names_unknown_issuer, trusting};
use crate::pki::TestCa;
use crate::rest::{RestClient, RestError};

/// kube-apiserver watches the files. If it misses a change, it re-reads them within a minute.
const EXCHANGED_WITHIN: Duration = Duration::from_secs(90);

impl ControlPlane {
    /// Replaces the serving certificate by one of this CA with a new key, and waits until new
    /// connections receive it. The process and its connections keep running. The clients of the
    /// harness ([`Self::admin`], [`Self::as_bearer`], kubectl) still trust the first CA alone: see
    /// [`Self::admin_trusting`]. Returns when the last connection was opened that still received
    /// the old one: no client met the new one before.
    pub async fn exchange_serving_certificate(
        &self,
        authority: &TestCa,
    ) -> Result<Timestamp, ControlPlaneError> {
        let fresh = authority.serving("kube-apiserver-exchanged", &self.dns_names())?;
        let mut not_before = Timestamp::now();
        // Between the two writes, certificate and key do not match. kube-apiserver notices this and
        // waits for the second one.
        swap(&self.serving.key_path, &fresh.key_pem)?;
        swap(&self.serving.cert_path, &fresh.cert_pem)?;
        let deadline = Instant::now() + EXCHANGED_WITHIN;
        loop {
            let opened = Timestamp::now();
            if self.is_trusted_by(authority.cert_pem()).await? {
                return Ok(not_before);
            }
            not_before = opened;
            if Instant::now() >= deadline {
                return Err(ControlPlaneError::ExchangeLate {
                    name: self.spec.name.clone(),
                    seconds: EXCHANGED_WITHIN.as_secs(),
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether a client that trusts only this CA accepts the certificate that new connections
    /// receive now.
    ///
    /// # Errors
    /// The connection fails for another reason than the certificate's CA.
    pub async fn is_trusted_by(&self, ca_pem: &str) -> Result<bool, ControlPlaneError> {
        let path = "/version";
        // A new client, because an existing one may reuse a connection from before.
        match trusting(ca_pem)?
            .get(format!("{}{path}", self.url()))
            .send()
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if names_unknown_issuer(&error) => Ok(false),
            Err(source) => Err(RestError::Transport {
                method: http::Method::GET,
                path: path.to_owned(),
                source: source.without_url(),
            }
            .into()),
        }
    }

    /// As [`Self::admin`], once the serving certificate has come from this CA.
    pub fn admin_trusting(&self, ca_pem: &str) -> Result<RestClient, ControlPlaneError> {
        let certificate = self.ca.client("harness-admin-later", "system:masters")?;
        Ok(RestClient::with_certificate(
            &self.url(),
            ca_pem,
            &certificate,
        )?)
    }
}
