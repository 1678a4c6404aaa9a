//! Reads ClusterTrustBundles, and `ca.crt` of `certSecretRef` Secrets, never another entry.

use futures::future::BoxFuture;
use keyferry_api::name::{Namespace, ObjectName, TrustBundleName};
use serde::Deserialize;

use super::client::HubClient;
use super::secret::Secret;
use crate::ports::{CertificateEntry, CertificateSecrets, HubError, TrustBundleError};

/// The versions of ClusterTrustBundle with the same fields, the best first: v1 since Kubernetes
/// 1.37, v1beta1 since 1.33 if it is turned on.
const TRUST_BUNDLE_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

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
            certificate_entry(&secret)
        })
    }

    fn trust_bundle<'a>(
        &'a self,
        name: &'a TrustBundleName,
    ) -> BoxFuture<'a, Result<Vec<u8>, TrustBundleError>> {
        Box::pin(async move {
            let version = self.served_version().await?;
            let version = version.ok_or(TrustBundleError::NotServed)?;
            let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles/{name}");
            let bundle: Bundle = self
                .client
                .get_object(&path, "ClusterTrustBundle")
                .await
                .map_err(|error| match error {
                    HubError::NotFound(_) => TrustBundleError::Absent(name.clone()),
                    error => error.into(),
                })?;
            Ok(bundle.spec.trust_bundle.into_bytes())
        })
    }
}

impl KubeCertificateSecrets {
    /// The version in which the hub serves ClusterTrustBundles. A 404 for an object does not show
    /// whether the hub has the kind.
    async fn served_version(&self) -> Result<Option<&'static str>, HubError> {
        for version in TRUST_BUNDLE_VERSIONS {
            let path = format!("/apis/certificates.k8s.io/{version}");
            match self
                .client
                .get_object::<Resources>(&path, "list of resources")
                .await
            {
                Ok(list) if list.has_resource("clustertrustbundles") => return Ok(Some(version)),
                Ok(_) | Err(HubError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// An APIResourceList.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

impl Resources {
    fn has_resource(&self, name: &str) -> bool {
        self.resources.iter().any(|resource| resource.name == name)
    }
}

#[derive(Deserialize)]
struct Bundle {
    spec: BundleSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleSpec {
    trust_bundle: String,
}

fn certificate_entry(secret: &Secret) -> Result<CertificateEntry, HubError> {
    let current = secret.entry("ca.crt")?;
    let legacy_key = current.is_none() && secret.has_entry("caFile");
    let pem = match current {
        Some(pem) => Some(pem),
        None => secret.entry("caFile")?,
    };
    let client_certificate = ["tls.crt", "tls.key", "certFile", "keyFile"]
        .iter()
        .any(|key| secret.has_entry(key));
    Ok(CertificateEntry {
        pem: pem.map(|pem| pem.to_vec()),
        legacy_key,
        client_certificate,
    })
}
