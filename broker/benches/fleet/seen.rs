//! What a watch of the hub has shown of a kind of objects, and when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestClient;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::process::now;
use crate::Outcome;

/// All TargetClusters.
pub const TARGET_CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
/// All TargetAccesses.
pub const ACCESSES: &str = "/apis/keyferry.dev/v1alpha1/targetaccesses";
/// The namespaces of Keyferry's kinds.
pub const NAMESPACES: &str = "/apis/keyferry.dev/v1alpha1/namespaces";
/// Secrets, and ConfigMaps, that Keyferry has written.
pub const WRITTEN: [&str; 2] = [
    "/api/v1/secrets?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dkeyferry",
    "/api/v1/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dkeyferry",
];

const LOOK: Duration = Duration::from_millis(5);

/// What was seen of one object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighting {
    /// Since when it has been ready. An object without conditions is ready when it is there.
    pub ready: Option<Instant>,
    /// Since when it has not been ready, or not been there, having been it before.
    pub ended: Option<Instant>,
}

/// See the module.
pub struct Seen {
    objects: Arc<Mutex<HashMap<String, Sighting>>>,
    task: JoinHandle<()>,
}

impl Seen {
    /// Watches a collection until it is dropped.
    pub fn watch(plane: &ControlPlane, collection: &str) -> Self {
        let objects: Arc<Mutex<HashMap<String, Sighting>>> = Arc::default();
        let (seen, admin, collection) = (
            Arc::clone(&objects),
            plane.admin().clone(),
            collection.to_owned(),
        );
        let task = tokio::spawn(async move {
            let mut version = String::new();
            // A busy hub ends the watch of whoever reads too slowly. Nothing is missed: the next
            // one begins where it ended.
            loop {
                let _ = follow(&admin, &collection, &mut version, &seen).await;
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { objects, task }
    }

    /// What was seen of an object.
    pub fn of(&self, id: &str) -> Sighting {
        self.objects().get(id).copied().unwrap_or_default()
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.objects()
            .values()
            .filter(|sighting| sighting.ready.is_some() && sighting.ended.is_none())
            .count()
    }

    /// Waits until something holds of what was seen.
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

    fn objects(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sighting>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
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
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let sighting = seen.entry(id).or_default();
    if event["type"] != "DELETED" && is_ready(object) {
        sighting.ended = None;
        sighting.ready.get_or_insert(at);
    } else if sighting.ready.is_some() {
        sighting.ended.get_or_insert(at);
    }
}

/// Whether the condition `Ready` holds, where the kind has conditions.
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
