//! Exchanging the serving certificate of a running control plane.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;

use super::authentication::swap;
use super::{ControlPlane, ControlPlaneError};
use crate::http_client::trusting;
use crate::pki::TestCa;
use crate::rest::{RestClient, RestError};

/// kube-apiserver watches the files, and reads them once a minute when it misses a change.
const EXCHANGED_WITHIN: Duration = Duration::from_secs(90);

impl ControlPlane {
    /// Puts a certificate of this authority, with a key of its own, in the place of the serving
    /// certificate, and waits until new connections are shown it. The process goes on running, and
    /// so do its connections. The clients of the harness ([`Self::admin`], [`Self::as_bearer`],
    /// kubectl) still trust the first authority alone: see [`Self::admin_trusting`].
    pub async fn exchange_serving_certificate(
        &self,
        authority: &TestCa,
    ) -> Result<(), ControlPlaneError> {
        let fresh = authority.serving("kube-apiserver-exchanged", &self.dns_names())?;
        // Between the two the pair does not match, which kube-apiserver notices, and waits for the
        // other.
        swap(&self.serving.key_path, &fresh.key_pem)?;
        swap(&self.serving.cert_path, &fresh.cert_pem)?;
        let deadline = Instant::now() + EXCHANGED_WITHIN;
        while !self.is_trusted_by(authority.cert_pem()).await? {
            if Instant::now() >= deadline {
                return Err(ControlPlaneError::ExchangeLate {
                    name: self.spec.name.clone(),
                    seconds: EXCHANGED_WITHIN.as_secs(),
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Whether a client that trusts only this authority takes the certificate that a new connection
    /// is shown now.
    ///
    /// # Errors
    /// The connection fails for another reason than the certificate's authority.
    pub async fn is_trusted_by(&self, ca_pem: &str) -> Result<bool, ControlPlaneError> {
        let path = "/version";
        // A client of its own has no connection from before.
        match trusting(ca_pem)?
            .get(format!("{}{path}", self.url()))
            .send()
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if names_unknmanaged_issuer(&error) => Ok(false),
            Err(source) => Err(RestError::Transport {
                method: http::Method::GET,
                path: path.to_owned(),
                source: source.without_url(),
            }
            .into()),
        }
    }

    /// As [`Self::admin`], for the time after the serving certificate has come from this authority.
    pub fn admin_trusting(&self, ca_pem: &str) -> Result<RestClient, ControlPlaneError> {
        let certificate = self.ca.client("harness-admin-later", "system:masters")?;
        Ok(RestClient::with_certificate(
            &self.url(),
            ca_pem,
            &certificate,
        )?)
    }
}

fn names_unknmanaged_issuer(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(one) = cause {
        if one.to_string().contains("UnknownIssuer") {
            return true;
        }
        cause = one.source();
    }
    false
}
