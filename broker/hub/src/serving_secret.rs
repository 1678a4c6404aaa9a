//! Reads and watches the Secrets with serving certificates, and with the CAs of callers.
//!
//! The watch asks for metadata only and for one name, so that Keyferry needs `get` and `watch` on
//! that Secret and neither `list` nor any other Secret. An event only means that the Secret must be
//! re-read.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_platform::random::Random;
use kube::api::WatchParams;
use kube::core::WatchEvent;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use secrecy::SecretSlice;

use super::client::HubClient;
use super::secret::Secret;
use super::watch_fault;
use crate::ports::{HubError, HubObjects, ServingSecret, ServingSecrets};

/// How long the hub keeps a watch open, in seconds. It is shorter than the idle limit of common
/// load balancers, which drop a watch silently.
const WATCH_SECONDS: u32 = 200;
/// The pause before the Secret is re-read after a failed watch. Without the right to watch, it is
/// also the interval of reads.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Where the Secrets with certificates are, and how their faults are reported.
#[derive(Clone)]
pub struct CertificateSecrets {
    /// Keyferry's namespace.
    pub namespace: Namespace,
    /// Reads and watches them.
    pub secrets: Arc<dyn ServingSecrets>,
    /// Writes Events about them.
    pub objects: Arc<dyn HubObjects>,
    /// Draws the names of Events.
    pub random: Arc<dyn Random>,
}

/// How a watch ended.
enum WatchEnd {
    /// The Secret is due to be read, after an event or a timeout.
    Read,
    /// By a failure, which is described.
    Failed(String),
}

/// Reads and watches Secrets of Keyferry's namespace by name.
pub struct KubeServingSecrets {
    client: HubClient,
    watches: Client,
    namespace: Namespace,
    /// The last failure of each watch, so that it is logged once.
    failures: Mutex<BTreeMap<ObjectName, String>>,
}

impl KubeServingSecrets {
    /// Creates the reader for Secrets in `namespace`; `watches` is a client for watches.
    pub fn new(client: HubClient, watches: Client, namespace: Namespace) -> Self {
        Self {
            client,
            watches,
            namespace,
            failures: Mutex::default(),
        }
    }

    /// Watches the Secret until an event of another version than this, or the end of the watch.
    async fn watch_secret(&self, name: &ObjectName, version: Option<&str>) -> WatchEnd {
        let api: Api<v1::Secret> =
            Api::namespaced(self.watches.clone(), &self.namespace.to_string());
        let terms = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_SECONDS);
        // Version 0 begins with the current state. The object's own version would soon be too old:
        // the hub keeps events for minutes, and a certificate stays unchanged for weeks.
        let events = match api.watch_metadata(&terms, "0").await {
            Ok(events) => events,
            Err(error) => return WatchEnd::Failed(watch_fault::describe_error(&error)),
        };
        // If the Secret was deleted before the watch began, the watch shows no event.
        if !self.is_at(name, version).await {
            return WatchEnd::Read;
        }
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Added(secret))
                    if secret.resource_version().as_deref() == version => {}
                Ok(WatchEvent::Error(status)) => {
                    return WatchEnd::Failed(watch_fault::status_message(&status));
                }
                Ok(_) => return WatchEnd::Read,
                Err(error) => return WatchEnd::Failed(watch_fault::describe_error(&error)),
            }
        }
        WatchEnd::Read
    }

    /// Whether the Secret still has this version, or is still absent. True if the hub does not say.
    async fn is_at(&self, name: &ObjectName, version: Option<&str>) -> bool {
        match self.get_secret(name).await {
            Ok(secret) => Some(secret.version()) == version,
            Err(HubError::NotFound(_)) => version.is_none(),
            Err(_) => true,
        }
    }

    async fn get_secret(&self, name: &ObjectName) -> Result<Secret, HubError> {
        let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace);
        self.client.get_object(&path, "Secret").await
    }
}

impl ServingSecrets for KubeServingSecrets {
    fn read<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<ServingSecret, HubError>> {
        Box::pin(async move {
            let secret = self.get_secret(name).await?;
            let bytes = |key| Ok(secret.entry(key)?.map(|bytes| bytes.to_vec()));
            Ok(ServingSecret {
                version: secret.version().to_owned(),
                uid: secret.uid().to_owned(),
                kind: secret.kind().to_owned(),
                certificate: bytes("tls.crt")?,
                key: bytes("tls.key")?.map(SecretSlice::from),
                authority: bytes("ca.crt")?,
            })
        })
    }

    fn wait_for_change<'a>(
        &'a self,
        name: &'a ObjectName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match self.watch_secret(name, version).await {
                WatchEnd::Read => {
                    self.failures.lock().remove(name);
                }
                WatchEnd::Failed(failure) => {
                    let failure = format!("watching Secret {}/{name}: {failure}", self.namespace);
                    let last = self.failures.lock().insert(name.clone(), failure.clone());
                    if last.as_ref() != Some(&failure) {
                        tracing::warn!(
                            error = failure,
                            "a Secret with certificates is read at intervals until the watch works; \
                             fix: if it is forbidden, allow Keyferry to watch this Secret"
                        );
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        })
    }
}
