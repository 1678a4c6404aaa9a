//! The Lease that elects the leading replica. It is not a lock for safety: it only keeps replicas
//! from doing the same work concurrently.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use keyferry_api::name::Namespace;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ports::{HubError, HubObjects};

const LEASE_NAME: &str = "keyferry";
/// How long a holder leads without a renewal.
pub const LEASE_TERM: Duration = Duration::from_secs(30);
/// The longest term of another holder that is accepted. The writer of a Lease chooses its term. A
/// term of a year would stop deliveries, withdrawals and the AudiencePairing for a year.
const LONGEST_TERM: Duration = Duration::from_secs(60);

/// One replica's side of the Lease.
pub struct LeaderLease {
    objects: Arc<dyn HubObjects>,
    namespace: Namespace,
    holder: String,
    other: OtherHolder,
}

/// The last seen Lease of another holder, and since when, by this replica's own clock. The times in
/// the Lease come from the holder's clock, which may differ.
#[derive(Default)]
struct OtherHolder {
    last_change: Option<(LeaseSpec, Duration)>,
}

/// Which replica leads, as one read of the Lease shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This replica leads for the next [`LEASE_TERM`], counted from before the call.
    This,
    /// Another replica leads and has renewed since the last read.
    Another,
    /// Another replica still has the Lease or has just taken it, and no renewal has been seen yet.
    Unseen,
}

impl LeaderLease {
    /// Creates this replica's side of the Lease in `namespace`; `holder` is the replica's name.
    pub fn new(objects: Arc<dyn HubObjects>, namespace: Namespace, holder: String) -> Self {
        Self {
            objects,
            namespace,
            holder,
            other: OtherHolder::default(),
        }
    }

    /// Takes or renews the Lease and returns which replica leads.
    ///
    /// # Errors
    /// [`HubError`]; then the leader is unknown.
    pub async fn take_or_renew(
        &mut self,
        wall: Timestamp,
        mono: Duration,
    ) -> Result<Leader, HubError> {
        let collection = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        );
        let path = format!("{collection}/{LEASE_NAME}");
        let outcome = match self.objects.get(&path).await? {
            None => {
                let lease = self.lease_object(None, wall);
                self.objects.create_plain(&collection, &lease).await
            }
            Some(read) => {
                let object =
                    Lease::deserialize(read.value()).map_err(|_| HubError::Unreadable("Lease"))?;
                let spec = object.spec.unwrap_or_default();
                if let Some(leader) = self.other.current_leader(&self.holder, &spec, mono) {
                    return Ok(leader);
                }
                // Without a version, the write would be no compare-and-swap.
                let version = object.metadata.resource_version;
                let version = version.ok_or(HubError::Unreadable("Lease"))?;
                let lease = self.lease_object(Some(version), wall);
                self.objects.replace_plain(&path, &lease).await
            }
        };
        match outcome {
            Ok(()) => Ok(Leader::This),
            // Another replica was faster.
            Err(HubError::Conflict(_)) => Ok(Leader::Unseen),
            Err(error) => Err(error),
        }
    }

    fn lease_object(&self, version: Option<String>, wall: Timestamp) -> Value {
        json!(Lease {
            metadata: ObjectMeta {
                name: Some(LEASE_NAME.to_owned()),
                resource_version: version,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(LEASE_TERM.as_secs()).ok(),
                renew_time: Some(MicroTime(wall)),
                ..LeaseSpec::default()
            }),
        })
    }
}

impl OtherHolder {
    /// Returns the leader according to this Lease, or `None` if the Lease is free.
    fn current_leader(&mut self, own: &str, spec: &LeaseSpec, mono: Duration) -> Option<Leader> {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == own {
            self.last_change = None;
            return None;
        }
        match &self.last_change {
            Some((seen, since)) if seen == spec => {
                // At most the longest accepted term. At least the term for which this replica leads
                // after a renewal, even if the Lease states less.
                let term = spec
                    .lease_duration_seconds
                    .and_then(|seconds| u64::try_from(seconds).ok())
                    .map_or(LEASE_TERM, Duration::from_secs)
                    .clamp(LEASE_TERM, LONGEST_TERM);
                (mono.saturating_sub(*since) < term).then_some(Leader::Unseen)
            }
            seen => {
                let renewed = seen
                    .as_ref()
                    .is_some_and(|(seen, _)| seen.holder_identity == spec.holder_identity);
                self.last_change = Some((spec.clone(), mono));
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

    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::{Leader, OtherHolder};

    fn spec(holder: &str, term: Option<i32>, renewed: i64) -> LeaseSpec {
        let renew_time = jiff::Timestamp::from_second(renewed).ok().map(MicroTime);
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: term,
            renew_time,
            ..LeaseSpec::default()
        }
    }

    fn by(other: &mut OtherHolder, seconds: u64, spec: &LeaseSpec) -> Option<Leader> {
        other.current_leader("us", spec, Duration::from_secs(seconds))
    }

    #[test]
    fn a_term_of_years_is_believed_for_a_minute() {
        for (term, taken_after) in [
            (Some(i32::MAX), 60),
            (Some(-1), 30),
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
        // A new name each time is not a renewal.
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
