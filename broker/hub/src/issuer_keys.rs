//! Key sets of managed issuers: one Secret per target in Keyferry's namespace, replaced by its
//! `resourceVersion`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_keys::managed_issuer;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::client::HubClient;
use crate::ports::{HubError, IssuerKeyStore, StoredKeys, StoredObject};

/// The annotation that requests a rotation. Any text that differs from the previous one counts.
pub const ROTATE_ANNOTATION: &str = "keyferry.dev/rotate-requested-at";

/// The only entry of `data`.
const DOCUMENT_KEY: &str = "keys.json";
const SECRET_TYPE: &str = "keyferry.dev/issuer-keys";

/// Stores key sets in the Secrets `keyferry-issuer-<target>` of one namespace.
pub struct KubeIssuerKeys {
    client: HubClient,
    namespace: Namespace,
}

impl KubeIssuerKeys {
    /// Creates the store in `namespace`.
    pub fn new(client: HubClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    /// Requests a rotation of a target's key; a running Keyferry carries it out.
    ///
    /// # Errors
    /// [`HubError`]; [`HubError::NotFound`] where the target has no key set.
    pub async fn request_rotation(
        &self,
        target: &ObjectName,
        request: &str,
    ) -> Result<(), HubError> {
        let change = json!({ "metadata": { "annotations": { ROTATE_ANNOTATION: request } } });
        let _: Marked = self
            .client
            .merge_patch(&self.path(target)?, &change, "Secret")
            .await?;
        Ok(())
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    fn path(&self, target: &ObjectName) -> Result<String, HubError> {
        Ok(format!("{}/{}", self.collection(), secret_name(target)?))
    }
}

fn secret_name(target: &ObjectName) -> Result<ObjectName, HubError> {
    managed_issuer::secret_name(target)
        .map_err(|_| HubError::Refused("the target's name is too long for a Secret's".to_owned()))
}

/// The response to a patch, whose content is ignored.
#[derive(Deserialize)]
struct Marked {}

#[derive(Deserialize)]
struct Secret {
    metadata: Map<String, Value>,
    #[serde(default)]
    data: std::collections::BTreeMap<String, SecretString>,
    #[serde(default, rename = "type")]
    kind_of: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    #[serde(rename = "type")]
    kind_of: &'a str,
    data: std::collections::BTreeMap<&'static str, &'a str>,
}

impl IssuerKeyStore for KubeIssuerKeys {
    fn read<'a>(
        &'a self,
        target: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredKeys>, HubError>> {
        Box::pin(async move {
            match self
                .client
                .get_object::<Secret>(&self.path(target)?, "Secret")
                .await
            {
                Ok(secret) => stored_keys(secret).map(Some),
                Err(HubError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn write<'a>(
        &'a self,
        target: &'a ObjectName,
        document: &'a str,
        replaces: Option<&'a StoredObject>,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let encoded = Zeroizing::new(STANDARD.encode(document));
            let metadata = match replaces {
                Some(object) => object.rest.get("metadata").cloned().unwrap_or_default(),
                None => json!({
                    "name": secret_name(target)?,
                    "namespace": self.namespace,
                    "labels": { "app.kubernetes.io/managed-by": "keyferry" },
                }),
            };
            let kind_of = replaces
                .and_then(|object| object.rest.get("type")?.as_str())
                .unwrap_or(SECRET_TYPE);
            let data = [(DOCUMENT_KEY, encoded.as_str())].into();
            let secret = Written {
                api_version: "v1",
                kind: "Secret",
                metadata,
                kind_of,
                data,
            };
            let _: Marked = match replaces {
                // The UID and the resourceVersion that were read are sent back: another object or a
                // newer version is a conflict.
                Some(_) => {
                    self.client
                        .replace(&self.path(target)?, &secret, "Secret")
                        .await?
                }
                None => {
                    self.client
                        .create(&self.collection(), &secret, "Secret")
                        .await?
                }
            };
            Ok(())
        })
    }
}

fn stored_keys(secret: Secret) -> Result<StoredKeys, HubError> {
    const UNREADABLE_SECRET: HubError = HubError::Unreadable("Secret");
    let Secret {
        mut metadata,
        data,
        kind_of,
    } = secret;
    let text = |metadata: &Map<String, Value>, member: &str| {
        metadata
            .get(member)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let uid = text(&metadata, "uid")
        .filter(|uid| !uid.is_empty())
        .ok_or(UNREADABLE_SECRET)?;
    // Without a resourceVersion, the write would replace whatever is there.
    text(&metadata, "resourceVersion")
        .filter(|version| !version.is_empty())
        .ok_or(UNREADABLE_SECRET)?;
    metadata.remove("managedFields");
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let rotation_request = annotations
        .and_then(|annotations| text(annotations, ROTATE_ANNOTATION))
        .filter(|text| !text.is_empty());
    let document = data
        .get(DOCUMENT_KEY)
        .map(|encoded| STANDARD.decode(encoded.expose_secret()).map(Zeroizing::new));
    let document = document.transpose().map_err(|_| UNREADABLE_SECRET)?;
    let rest = json!({ "metadata": metadata, "type": kind_of });
    Ok(StoredKeys {
        object: StoredObject { uid, rest },
        document,
        rotation_request,
    })
}
