//! Reads `certSecretRef` Secrets; only `ca.crt` is ever read out.

use futures::future::BoxFuture;
use keyferry_api::name::{Namespace, ObjectName};

use super::client::HubClient;
use super::secret::Secret;
use crate::ports::{CertificateEntry, CertificateSecrets, HubError};

/// Reads CA certificates from Secrets in Keyferry's namespace.
pub struct KubeCertificateSecrets {
    client: HubClient,
    namespace: Namespace,
}

impl KubeCertificateSecrets {
    /// Creates the reader for Secrets in `namespace`.
    pub fn new(client: HubClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }
}

impl CertificateSecrets for KubeCertificateSecrets {
    fn certificate<'a>(
        &'a self,
        secret: &'a ObjectName,
    ) -> BoxFuture<'a, Result<CertificateEntry, HubError>> {
        Box::pin(async move {
            let path = format!("/api/v1/namespaces/{}/secrets/{secret}", self.namespace);
            let secret: Secret = self.client.get_object(&path, "Secret").await?;
            entry(&secret)
        })
    }
}

fn entry(secret: &Secret) -> Result<CertificateEntry, HubError> {
    let current = secret.entry("ca.crt")?;
    let legacy_key = current.is_none() && secret.has("caFile");
    let pem = match current {
        Some(pem) => Some(pem),
        None => secret.entry("caFile")?,
    };
    let client_certificate = ["tls.crt", "tls.key", "certFile", "keyFile"]
        .iter()
        .any(|key| secret.has(key));
    Ok(CertificateEntry {
        pem: pem.map(|pem| pem.to_vec()),
        legacy_key,
        client_certificate,
    })
}
