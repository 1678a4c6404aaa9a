//! Reads and writes delivery objects, statuses and the AudiencePairing: one call each, by path.

use futures::future::BoxFuture;
use keyferry_core::delivery::{FIELD_MANAGER, ObjectBody, ReadObject};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::client::HubClient;
use crate::ports::{HubError, HubObjects};

const WHAT: &str = "object";

/// Reads and writes objects of a hub.
pub struct KubeObjects {
    client: HubClient,
}

impl KubeObjects {
    /// Creates the reader and writer for the hub behind this client.
    pub fn new(client: HubClient) -> Self {
        Self { client }
    }
}

#[derive(Deserialize)]
struct KindOnly {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
}

#[derive(Deserialize)]
struct Written {
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

fn managed(path: &str) -> String {
    format!("{path}?fieldManager={FIELD_MANAGER}")
}

impl HubObjects for KubeObjects {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>> {
        Box::pin(async move {
            match self.client.get_object::<Value>(path, WHAT).await {
                Ok(object) => Ok(Some(ReadObject::new(object))),
                Err(HubError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create<'a>(
        &'a self,
        collection: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(async move {
            let written: Written = self
                .client
                .create(&managed(collection), object, WHAT)
                .await?;
            Ok(written.metadata.resource_version)
        })
    }

    fn replace<'a>(
        &'a self,
        path: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(async move {
            let written: Written = self.client.replace(&managed(path), object, WHAT).await?;
            Ok(written.metadata.resource_version)
        })
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid, "resourceVersion": version },
            });
            match self
                .client
                .delete::<_, KindOnly>(path, &options, WHAT)
                .await
            {
                Ok(_) | Err(HubError::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn post<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .create::<_, KindOnly>(&managed(collection), object, WHAT)
                .await
                .map(drop)
        })
    }

    fn put<'a>(&'a self, path: &'a str, object: &'a Value) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .replace::<_, KindOnly>(&managed(path), object, WHAT)
                .await
                .map(drop)
        })
    }

    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<Value, HubError>> {
        Box::pin(async move { self.client.merge_patch(&managed(path), change, WHAT).await })
    }

    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .apply::<_, KindOnly>(&format!("{path}/status"), FIELD_MANAGER, object, WHAT)
                .await
                .map(drop)
        })
    }
}
