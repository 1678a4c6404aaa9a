//! The AudiencePairing that the hub's admission policy reads, kept to what policy allows. Only the leader writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keyferry_core::pairing;
use keyferry_core::service_account::ServiceAccount;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::leadership::LeadershipReader;
use crate::live::LiveObjects;
use crate::object_store::ObjectStore;
use crate::policy_store::PolicyReader;
use crate::ports::{HubError, HubObjects};

/// How often it is seen whether a ServiceAccount or a Namespace has changed the pairs.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the object is read though the pairs are the same: somebody may have changed it.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// What it is made of.
pub struct PairingParts {
    /// The policy in force.
    pub policy: PolicyReader,
    /// The hub's targets, for their audiences.
    pub store: Arc<ObjectStore>,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// Reads and writes.
    pub objects: Arc<dyn HubObjects>,
    /// Whether this replica leads.
    pub leadership: LeadershipReader,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The ServiceAccount that may try every audience.
    pub canary: ServiceAccount,
}

/// Keeps it until the task is dropped.
pub async fn follow(parts: PairingParts) {
    let mut changes = parts.policy.changes();
    let (mut written, mut read_at, mut told) = (None, Duration::ZERO, false);
    loop {
        let now = parts.clock.now();
        if parts.leadership.leads(now) && parts.live.is_complete() {
            let pairs = pairing::pairs(&parts.policy.current(), &*parts.live, parts.store.audiences(), &parts.canary);
            if written.as_ref() != Some(&pairs) || now.mono.saturating_sub(read_at) > READ_AGAIN {
                match write(&parts, &pairs).await {
                    Ok(()) => (written, read_at, told) = (Some(pairs), now.mono, false),
                    Err(error) => {
                        written = None;
                        if !std::mem::replace(&mut told, true) {
                            tracing::warn!(%error, "the AudiencePairing could not be written; the admission policy goes by an older one or by none");
                        }
                    }
                }
            }
        } else {
            written = None;
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

async fn write(parts: &PairingParts, pairs: &BTreeMap<String, BTreeSet<String>>) -> Result<(), HubError> {
    let path = format!("{}/{}", pairing::COLLECTION, pairing::NAME);
    let Some(read) = parts.objects.get(&path).await? else {
        return parts.objects.post(pairing::COLLECTION, &pairing::object(pairs, None)).await;
    };
    if read.value().get("pairs") == Some(&json!(pairs)) {
        return Ok(());
    }
    let version = read.value().pointer("/metadata/resourceVersion").and_then(Value::as_str);
    if !parts.leadership.leads(parts.clock.now()) {
        return Err(HubError::Busy);
    }
    parts.objects.put(&path, &pairing::object(pairs, version)).await
}
