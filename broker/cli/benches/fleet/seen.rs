//! Records what a watch of the hub has shown of one kind of objects, and when.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestClient;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::harness::Outcome;
use crate::harness::process::now;

/// The API path of all TargetClusters.
pub const TARGET_CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
/// The API path of all TargetAccesses.
pub const ACCESSES: &str = "/apis/keyferry.dev/v1alpha1/targetaccesses";
/// The API path of the namespaces of Keyferry's kinds.
pub const NAMESPACES: &str = "/apis/keyferry.dev/v1alpha1/namespaces";
/// The API paths of the Secrets and ConfigMaps that Keyferry has written.
pub const WRITTEN: [&str; 2] = [
    "/api/v1/secrets?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dkeyferry",
    "/api/v1/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dkeyferry",
];

const LOOK: Duration = Duration::from_millis(5);

/// What the watch has shown of one object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighting {
    /// Since when it has been ready. An object without conditions is ready as soon as it exists.
    pub ready: Option<Instant>,
    /// Since when it has been no longer ready, or no longer existing, after it was ready.
    pub ended: Option<Instant>,
}

/// A running watch of a collection, and what it has shown.
pub struct Seen {
    objects: Arc<Mutex<HashMap<String, Sighting>>>,
    task: JoinHandle<()>,
}

impl Seen {
    /// Starts to watch a collection. Dropping the value ends the watch.
    pub fn watch(plane: &ControlPlane, collection: &str) -> Self {
        let objects: Arc<Mutex<HashMap<String, Sighting>>> = Arc::default();
        let (seen, admin, collection) = (
            Arc::clone(&objects),
            plane.admin().clone(),
            collection.to_owned(),
        );
        let task = tokio::spawn(async move {
            let mut version = String::new();
            // A busy hub ends the watch of a client that reads too slowly. No event is missed,
            // because the next watch continues where the last one ended.
            loop {
                let _ = follow(&admin, &collection, &mut version, &seen).await;
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { objects, task }
    }

    /// What the watch has shown of an object.
    pub fn of(&self, id: &str) -> Sighting {
        self.objects().get(id).copied().unwrap_or_default()
    }

    /// The number of ready objects.
    pub fn ready(&self) -> usize {
        self.objects()
            .values()
            .filter(|sighting| sighting.ready.is_some() && sighting.ended.is_none())
            .count()
    }

    /// Waits until a check of what the watch has shown is true.
    pub async fn until(
        &self,
        limit: Duration,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> Outcome<()> {
        let end = now() + limit;
        while !holds(self) {
            if now() > end {
                return Err(format!(
                    "{what} was not seen within {limit:?}; {} objects are ready",
                    self.ready()
                )
                .into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn objects(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Sighting>> {
        self.objects.lock()
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    admin: &RestClient,
    collection: &str,
    version: &mut String,
    seen: &Mutex<HashMap<String, Sighting>>,
) -> Outcome<()> {
    let between = if collection.contains('?') { '&' } else { '?' };
    let path =
        format!("{collection}{between}watch=true&timeoutSeconds=7200&resourceVersion={version}");
    let mut response = admin
        .request(Method::GET, &path)
        .send()
        .await?
        .error_for_status()?;
    let mut unread = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        unread.extend_from_slice(&chunk);
        let Some(end) = unread.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        let whole: Vec<u8> = unread.drain(..=end).collect();
        for line in whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let event: Value = serde_json::from_slice(line)?;
            if event["type"] == "ERROR" {
                return Err(format!(
                    "the watch of {collection} failed: {}",
                    event["object"]["message"]
                )
                .into());
            }
            event["object"]["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .clone_into(version);
            note(seen, &event);
        }
    }
    Ok(())
}

fn note(seen: &Mutex<HashMap<String, Sighting>>, event: &Value) {
    let (object, at) = (&event["object"], now());
    let Some(name) = object["metadata"]["name"].as_str() else {
        return;
    };
    let id = format!(
        "{}/{name}",
        object["metadata"]["namespace"].as_str().unwrap_or_default()
    );
    let mut seen = seen.lock();
    let sighting = seen.entry(id).or_default();
    if event["type"] != "DELETED" && is_ready(object) {
        sighting.ended = None;
        sighting.ready.get_or_insert(at);
    } else if sighting.ready.is_some() {
        sighting.ended.get_or_insert(at);
    }
}

/// Whether the condition `Ready` is true, if the kind has conditions.
pub fn is_ready(object: &Value) -> bool {
    if object["apiVersion"] != "keyferry.dev/v1alpha1" {
        return true;
    }
    let conditions = object["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
