//! Reads and writes delivery objects, statuses and the AudiencePairing: one call each, by path.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::config::ReducedObject;
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::{FIELD_MANAGER, FluxObject, ObjectBody, ReadObject};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::client::HubClient;
use crate::ports::{HubError, HubObjects};
use crate::slim_object::{ClusterObject, NamespacedObject};

const OBJECT_NAME: &str = "object";
/// How many of Flux's objects of one kind and namespace are read.
const MAX_FLUX_OBJECTS: usize = 500;
/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 100;
/// How long a count of requests may take. Everyone who may create requests decides how long the
/// list is.
const COUNT_DEADLINE: Duration = Duration::from_secs(30);

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

fn managed_path(path: &str) -> String {
    format!("{path}?fieldManager={FIELD_MANAGER}")
}

impl HubObjects for KubeObjects {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>> {
        Box::pin(async move {
            let object = if path.contains("/namespaces/") {
                let read = self
                    .client
                    .get_object::<NamespacedObject>(path, OBJECT_NAME);
                read.await.map(NamespacedObject::into_whole)
            } else {
                let read = self.client.get_object::<ClusterObject>(path, OBJECT_NAME);
                read.await.map(ClusterObject::into_whole)
            };
            match object {
                Ok(object) => object.map(Some).ok_or(HubError::TooLarge),
                Err(HubError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn is_used_by_flux<'a>(
        &'a self,
        path: &'a str,
        uses: &'a (dyn Fn(&FluxObject) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async move {
            let what = "list of Flux's objects";
            let used = |object: FluxObject| uses(&object).then_some(());
            let read = self
                .client
                .list_at_most(path, MAX_FLUX_OBJECTS, what, used)
                .await?;
            Ok(!read.is_complete || !read.kept.is_empty())
        })
    }

    fn certificate_request_times<'a>(
        &'a self,
        path: &'a str,
        most: usize,
        counted_time: &'a (dyn Fn(&CountedRequest) -> Option<Timestamp> + Send + Sync),
    ) -> BoxFuture<'a, Result<Vec<Timestamp>, HubError>> {
        Box::pin(async move {
            let what = "list of CertificateSigningRequests";
            let time = |request: CountedRequest| counted_time(&request);
            let reading = self
                .client
                .list_until_kept(path, PAGE_OBJECTS, most, what, time);
            let read = tokio::time::timeout(COUNT_DEADLINE, reading).await;
            read.unwrap_or(Err(HubError::Unreadable(what)))
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
                .create(&managed_path(collection), object, OBJECT_NAME)
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
            let written: Written = self
                .client
                .replace(&managed_path(path), object, OBJECT_NAME)
                .await?;
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
                .delete::<_, KindOnly>(path, &options, OBJECT_NAME)
                .await
            {
                Ok(_) | Err(HubError::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn create_plain<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .create::<_, KindOnly>(&managed_path(collection), object, OBJECT_NAME)
                .await
                .map(drop)
        })
    }

    fn replace_plain<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .replace::<_, KindOnly>(&managed_path(path), object, OBJECT_NAME)
                .await
                .map(drop)
        })
    }

    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<ReducedObject, HubError>> {
        Box::pin(async move {
            self.client
                .merge_patch(&managed_path(path), change, OBJECT_NAME)
                .await
        })
    }

    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            self.client
                .apply::<_, KindOnly>(
                    &format!("{path}/status"),
                    FIELD_MANAGER,
                    object,
                    OBJECT_NAME,
                )
                .await
                .map(drop)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A hub that serves this list, of which a page has as many objects as are asked for.
    async fn hub_with(items: Vec<Value>) -> KubeObjects {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                let request = String::from_utf8(request).unwrap();
                let number = |key: &str| -> Option<usize> {
                    let (_, rest) = request.split_once(key)?;
                    let end = rest.find(|c: char| !c.is_ascii_digit())?;
                    rest.get(..end)?.parse().ok()
                };
                let from = number("continue=").unwrap_or_default();
                let to = items.len().min(from + number("limit=").unwrap());
                let next = (to < items.len()).then(|| to.to_string());
                let page = items.get(from..to).unwrap();
                let list = json!({ "metadata": { "continue": next }, "items": page }).to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n",
                    list.len()
                );
                let _ = stream.write_all((head + &list).as_bytes()).await;
            }
        });
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        KubeObjects::new(HubClient::new(config).unwrap())
    }

    fn kustomization(kubeconfig: &str) -> Value {
        json!({
            "metadata": { "name": "apps" },
            "spec": { "kubeConfig": { "secretRef": { "name": kubeconfig } } },
        })
    }

    async fn is_used(objects: &KubeObjects) -> bool {
        let uses = |object: &FluxObject| object.names_any("prod");
        objects.is_used_by_flux("/list", &uses).await.unwrap()
    }

    #[tokio::test]
    async fn objects_of_flux_that_were_not_read_count_as_users() {
        let others = |count| vec![kustomization("other"); count];
        assert!(!is_used(&hub_with(others(0)).await).await);
        assert!(!is_used(&hub_with(others(MAX_FLUX_OBJECTS)).await).await);
        assert!(is_used(&hub_with(others(MAX_FLUX_OBJECTS + 1)).await).await);
        let mut with_user = others(250);
        with_user.push(kustomization("prod"));
        // The tenant decides how large its objects are: this list is larger than an answer may be.
        for object in &mut with_user {
            object["metadata"]["finalizers"] = json!(["x".repeat(20_000)]);
        }
        assert!(is_used(&hub_with(with_user).await).await);
    }

    #[tokio::test]
    async fn a_list_of_requests_keeps_its_selection_and_counts_every_page() {
        let request = |user: &str| {
            json!({
                "metadata": {
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": { "keyferry.dev/access": "tenant-a/apps" },
                },
                "spec": {
                    "signerName": "kubernetes.io/kube-apiserver-client", "username": user,
                },
            })
        };
        let namespace = keyferry_api::name::Namespace::new("tenant-a").unwrap();
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut all = vec![request("mallory"); 250];
        all.extend(vec![request("keyferry"); 3]);
        let objects = hub_with(all).await;
        let counted = |request: &CountedRequest| request.counted_time("keyferry", &namespace, now);
        let times = objects.certificate_request_times("/list?labelSelector=a", 64, &counted);
        assert_eq!(times.await.unwrap().len(), 3);
        // At the limit, the rest is not read. It could not be: it has no objects.
        let mut all = vec![request("mallory"); 97];
        all.extend(vec![request("keyferry"); 3]);
        all.extend(vec![json!("no object"); 100]);
        let objects = hub_with(all).await;
        let counted = |request: &CountedRequest| request.counted_time("keyferry", &namespace, now);
        let at_most = |most| objects.certificate_request_times("/list?a=b", most, &counted);
        assert_eq!(at_most(3).await.unwrap().len(), 3);
        assert!(at_most(4).await.is_err());
    }
}
