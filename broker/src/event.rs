//! Events (events.k8s.io/v1) on what became of an object. They are for people: one that cannot be written is no failure.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_core::condition::Finding;
use keyferry_core::name::{AccessName, ObjectName};
use serde_json::{Value, json};

use crate::ports::HubObjects;
use crate::random::Random;

/// The most bytes of a note that the API takes.
const MOST: usize = 1000;

/// The object that an Event is about.
pub struct Subject {
    reference: Value,
    namespace: String,
}

impl Subject {
    /// A TargetAccess.
    pub fn access(name: &AccessName, uid: &str) -> Subject {
        let reference = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "name": name.name.as_str(), "namespace": name.namespace.as_str(), "uid": uid,
        });
        Subject { reference, namespace: name.namespace.to_string() }
    }

    /// A TargetCluster. Events of cluster-scoped objects stand in the namespace `default`.
    pub fn target(name: &ObjectName, uid: &str) -> Subject {
        let reference = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "name": name.as_str(), "uid": uid });
        Subject { reference, namespace: "default".to_owned() }
    }
}

/// Writes one.
pub async fn tell(objects: &Arc<dyn HubObjects>, random: &dyn Random, about: &Subject, finding: &Finding, now: Timestamp) {
    let name = format!("keyferry.{}", random.request_id().to_ascii_lowercase());
    let note: String = finding.message.chars().take(MOST).collect();
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": name, "namespace": about.namespace },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "keyferry.dev/keyferry", "reportingInstance": "keyferry",
        "action": "Reconcile", "reason": finding.reason.as_str(), "regarding": about.reference, "note": note,
        "type": if finding.holds() { "Normal" } else { "Warning" },
    });
    let collection = format!("/apis/events.k8s.io/v1/namespaces/{}/events", about.namespace);
    if let Err(error) = objects.post(&collection, &event).await {
        tracing::debug!(%error, "an Event could not be written");
    }
}
