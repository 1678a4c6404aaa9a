//! The Lease by which one replica leads. It is no fence: it only keeps replicas from doing the same thing at once.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_core::name::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::HubClient;
use crate::ports::HubError;

const NAME: &str = "keyferry";
/// How long a holder leads without renewing.
pub const TERM: Duration = Duration::from_secs(30);

/// One replica's side of the Lease.
pub struct Lease {
    client: HubClient,
    namespace: Namespace,
    holder: String,
    /// What another holder's Lease looked like and since when, on our own clock: its times are by the holder's.
    seen: Option<(Spec, Duration)>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: Option<u64>,
    #[serde(default)]
    renew_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Ignored {}

impl Lease {
    /// The Lease in `namespace`, for the replica of this name.
    pub fn new(client: HubClient, namespace: Namespace, holder: String) -> Lease {
        Lease { client, namespace, holder, seen: None }
    }

    /// Takes or renews the Lease; whether this replica leads for the next [`TERM`], counted from before the call.
    ///
    /// # Errors
    /// [`HubError`]; then nothing is known.
    pub async fn take(&mut self, wall: Timestamp, mono: Duration) -> Result<bool, HubError> {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let path = format!("{collection}/{NAME}");
        let outcome = match self.client.get_object::<Object>(&path, "Lease").await {
            Err(HubError::NotFound(_)) => self.client.create::<_, Ignored>(&collection, &self.object(None, wall), "Lease").await,
            Err(error) => return Err(error),
            Ok(object) if self.is_held_by_another(&object.spec, mono) => return Ok(false),
            Ok(object) => {
                let version = Some(object.metadata.resource_version.as_str());
                self.client.replace::<_, Ignored>(&path, &self.object(version, wall), "Lease").await
            }
        };
        match outcome {
            Ok(_) => Ok(true),
            // Somebody else was faster.
            Err(HubError::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_held_by_another(&mut self, spec: &Spec, mono: Duration) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == self.holder {
            self.seen = None;
            return false;
        }
        match &self.seen {
            Some((seen, since)) if seen == spec => {
                let term = spec.lease_duration_seconds.map_or(TERM, Duration::from_secs);
                mono.saturating_sub(*since) < term
            }
            _ => {
                self.seen = Some((spec.clone(), mono));
                true
            }
        }
    }

    fn object(&self, version: Option<&str>, wall: Timestamp) -> serde_json::Value {
        let mut metadata = json!({ "name": NAME });
        if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        let renewed = wall.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": { "holderIdentity": self.holder, "leaseDurationSeconds": TERM.as_secs(), "renewTime": renewed },
        })
    }
}
