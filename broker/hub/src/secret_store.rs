//! Keyferry's own Secrets, changed by compare-and-swap on their resourceVersion.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use keyferry_api::name::{Namespace, ObjectName};
use serde::Deserialize;
use serde_json::json;

use super::client::HubClient;
use super::secret::Secret;
use crate::ports::{HubError, SecretData, SecretStore, StoredSecret};

/// Stores Secrets in Keyferry's namespace.
pub struct KubeSecretStore {
    client: HubClient,
    namespace: Namespace,
}

impl KubeSecretStore {
    /// Creates the store in `namespace`.
    pub fn new(client: HubClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }
}

/// The response to a write, whose content is ignored.
#[derive(Deserialize)]
struct Ignored {}

impl SecretStore for KubeSecretStore {
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>> {
        Box::pin(async move {
            let secret: Secret = match self
                .client
                .get_object(&format!("{}/{name}", self.collection()), "Secret")
                .await
            {
                Ok(secret) => secret,
                Err(HubError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            Ok(Some(StoredSecret {
                version: secret.version().to_owned(),
                data: secret.entries()?,
            }))
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let object = secret_object(name, None, data);
            self.client
                .create::<_, Ignored>(&self.collection(), &object, "Secret")
                .await
                .map(|_| ())
        })
    }

    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let object = secret_object(name, Some(version), data);
            self.client
                .replace::<_, Ignored>(&format!("{}/{name}", self.collection()), &object, "Secret")
                .await
                .map(|_| ())
        })
    }
}

fn secret_object(name: &ObjectName, version: Option<&str>, data: &SecretData) -> serde_json::Value {
    let data: BTreeMap<&String, String> = data
        .iter()
        .map(|(key, bytes)| (key, STANDARD.encode(bytes)))
        .collect();
    let mut metadata =
        json!({ "name": name.as_str(), "labels": { "app.kubernetes.io/managed-by": "keyferry" } });
    if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data })
}
