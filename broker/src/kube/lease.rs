//! The Lease by which one replica leads. It is no admission policy: it only keeps replicas from doing the same
//! thing at once.

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
/// The longest term of another holder that is believed. A Lease says what its writer likes: one of
/// a year would stop deliveries, withdrawals and the AudiencePairing for a year.
const LONGEST_TERM: Duration = Duration::from_secs(60);

/// One replica's side of the Lease.
pub struct Lease {
    client: HubClient,
    namespace: Namespace,
    holder: String,
    other: OtherHolder,
}

/// What another holder's Lease looked like and since when, on our own clock: its times are by the
/// holder's.
#[derive(Default)]
struct OtherHolder {
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

/// Who leads, as one look at the Lease shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This replica, for the next [`TERM`], counted from before the call.
    This,
    /// Another one, which has renewed since the last look.
    Another,
    /// Another one holds the Lease still, or has just taken it, and has not been seen to renew.
    Unseen,
}

impl Lease {
    /// The Lease in `namespace`, for the replica of this name.
    pub fn new(client: HubClient, namespace: Namespace, holder: String) -> Self {
        Self {
            client,
            namespace,
            holder,
            other: OtherHolder::default(),
        }
    }

    /// Takes or renews the Lease, and says who leads.
    ///
    /// # Errors
    /// [`HubError`]; then nothing is known.
    pub async fn take(&mut self, wall: Timestamp, mono: Duration) -> Result<Leader, HubError> {
        let collection = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        );
        let path = format!("{collection}/{NAME}");
        let outcome = match self.client.get_object::<Object>(&path, "Lease").await {
            Err(HubError::NotFound(_)) => {
                self.client
                    .create::<_, Ignored>(&collection, &self.object(None, wall), "Lease")
                    .await
            }
            Err(error) => return Err(error),
            Ok(object) => {
                if let Some(leader) = self.other.leader(&self.holder, &object.spec, mono) {
                    return Ok(leader);
                }
                let version = Some(object.metadata.resource_version.as_str());
                self.client
                    .replace::<_, Ignored>(&path, &self.object(version, wall), "Lease")
                    .await
            }
        };
        match outcome {
            Ok(_) => Ok(Leader::This),
            // Another replica was faster.
            Err(HubError::Conflict(_)) => Ok(Leader::Unseen),
            Err(error) => Err(error),
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

impl OtherHolder {
    /// Who leads by this Lease; nothing if it is free for the taking.
    fn leader(&mut self, own: &str, spec: &Spec, mono: Duration) -> Option<Leader> {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == own {
            self.seen = None;
            return None;
        }
        match &self.seen {
            Some((seen, since)) if seen == spec => {
                // Neither longer than is believed, nor shorter than this replica leads itself after
                // a renewal that others undercut.
                let term = spec
                    .lease_duration_seconds
                    .map_or(TERM, Duration::from_secs)
                    .clamp(TERM, LONGEST_TERM);
                (mono.saturating_sub(*since) < term).then_some(Leader::Unseen)
            }
            seen => {
                let renewed = seen
                    .as_ref()
                    .is_some_and(|(seen, _)| seen.holder_identity == spec.holder_identity);
                self.seen = Some((spec.clone(), mono));
                Some(if renewed {
                    Leader::Another
                } else {
                    Leader::Unseen
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Leader, OtherHolder, Spec};

    fn spec(holder: &str, term: Option<u64>, renewed: i64) -> Spec {
        let renew_time = jiff::Timestamp::from_second(renewed).ok();
        Spec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: term,
            renew_time,
        }
    }

    fn by(other: &mut OtherHolder, seconds: u64, spec: &Spec) -> Option<Leader> {
        other.leader("us", spec, Duration::from_secs(seconds))
    }

    #[test]
    fn a_term_of_years_is_believed_for_a_minute() {
        for (term, taken_after) in [
            (Some(u64::MAX), 60),
            (Some(2_147_483_647), 60),
            (Some(45), 45),
            (Some(30), 30),
            (Some(1), 30),
            (None, 30),
        ] {
            let (mut other, lease) = (OtherHolder::default(), spec("another", term, 0));
            assert_eq!(
                by(&mut other, 100, &lease),
                Some(Leader::Unseen),
                "{term:?}"
            );
            assert_eq!(
                by(&mut other, 99 + taken_after, &lease),
                Some(Leader::Unseen),
                "{term:?}"
            );
            assert_eq!(by(&mut other, 100 + taken_after, &lease), None, "{term:?}");
        }
    }

    #[test]
    fn a_leader_is_seen_by_its_renewals() {
        let mut other = OtherHolder::default();
        assert_eq!(
            by(&mut other, 0, &spec("another", Some(30), 0)),
            Some(Leader::Unseen)
        );
        assert_eq!(
            by(&mut other, 10, &spec("another", Some(30), 10)),
            Some(Leader::Another)
        );
        // A new name each time is nobody's renewal.
        assert_eq!(
            by(&mut other, 20, &spec("a-third", Some(30), 20)),
            Some(Leader::Unseen)
        );
        assert_eq!(
            by(&mut other, 30, &spec("a-fourth", Some(30), 30)),
            Some(Leader::Unseen)
        );
        assert_eq!(by(&mut other, 40, &spec("us", Some(30), 40)), None);
        assert_eq!(by(&mut other, 50, &spec("", Some(30), 50)), None);
    }
}
