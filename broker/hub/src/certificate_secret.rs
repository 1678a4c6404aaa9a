//! Reads `certSecretRef` Secrets; only `ca.crt` is ever read out.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use keyferry_api::name::{Namespace, ObjectName};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::client::HubClient;
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

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, SecretString>,
}

impl CertificateSecrets for KubeCertificateSecrets {
    fn certificate<'a>(
        &'a self,
        secret: &'a ObjectName,
    ) -> BoxFuture<'a, Result<CertificateEntry, HubError>> {
        Box::pin(async move {
            let path = format!("/api/v1/namespaces/{}/secrets/{secret}", self.namespace);
            let secret: Secret = self.client.get_object(&path, "Secret").await?;
            entry(&secret.data)
        })
    }
}

fn entry(data: &BTreeMap<String, SecretString>) -> Result<CertificateEntry, HubError> {
    let (encoded, legacy_key) = match (data.get("ca.crt"), data.get("caFile")) {
        (Some(current), _) => (Some(current), false),
        (None, Some(legacy)) => (Some(legacy), true),
        (None, None) => (None, false),
    };
    let pem = encoded
        .map(|text| STANDARD.decode(text.expose_secret()))
        .transpose()
        .map_err(|_| HubError::Unreadable("Secret"))?;
    let client_certificate = ["tls.crt", "tls.key", "certFile", "keyFile"]
        .iter()
        .any(|key| data.contains_key(*key));
    Ok(CertificateEntry {
        pem,
        legacy_key,
        client_certificate,
    })
}
