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
#[derive(Clone)]
pub struct LeaderLease {
    objects: Arc<dyn HubObjects>,
    namespace: Namespace,
    holder: String,
    other: OtherHolder,
}

/// The last seen Lease of another holder, and since when, by this replica's own clock. The times in
/// the Lease come from the holder's clock, which may differ.
#[derive(Clone, Default)]
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
        let outcome = match self.read().await? {
            None => {
                let lease = lease_object(None, self.held_spec(wall));
                self.objects.create_plain(&self.leases_path(), &lease).await
            }
            Some((spec, version)) => {
                if let Some(leader) = self.other.current_leader(&self.holder, &spec, mono) {
                    return Ok(leader);
                }
                let lease = lease_object(Some(version), self.held_spec(wall));
                self.objects.replace_plain(&self.lease_path(), &lease).await
            }
        };
        match outcome {
            Ok(()) => Ok(Leader::This),
            // Another replica was faster.
            Err(HubError::Conflict(_)) => Ok(Leader::Unseen),
            Err(error) => Err(error),
        }
    }

    /// Gives the Lease back if this replica has it, so that the next leader need not wait for its
    /// end. For a replica that stops: nothing of it may still act as the leader.
    ///
    /// # Errors
    /// [`HubError`]; then the Lease may still be this replica's, until it ends.
    pub async fn give_back(&self) -> Result<(), HubError> {
        match self.read().await? {
            Some((spec, version)) if spec.holder_identity.as_ref() == Some(&self.holder) => {
                let free = LeaseSpec {
                    holder_identity: None,
                    ..spec
                };
                let lease = lease_object(Some(version), free);
                self.objects.replace_plain(&self.lease_path(), &lease).await
            }
            _ => Ok(()),
        }
    }

    /// Reads the Lease with its resourceVersion, without which a write would be no compare-and-swap.
    async fn read(&self) -> Result<Option<(LeaseSpec, String)>, HubError> {
        let Some(read) = self.objects.get(&self.lease_path()).await? else {
            return Ok(None);
        };
        let unreadable = || HubError::Unreadable("Lease");
        let lease = Lease::deserialize(read.value()).map_err(|_| unreadable())?;
        let version = lease.metadata.resource_version.ok_or_else(unreadable)?;
        Ok(Some((lease.spec.unwrap_or_default(), version)))
    }

    fn held_spec(&self, wall: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: i32::try_from(LEASE_TERM.as_secs()).ok(),
            renew_time: Some(MicroTime(wall)),
            ..LeaseSpec::default()
        }
    }

    fn leases_path(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn lease_path(&self) -> String {
        format!("{}/{LEASE_NAME}", self.leases_path())
    }
}

fn lease_object(version: Option<String>, spec: LeaseSpec) -> Value {
    json!(Lease {
        metadata: ObjectMeta {
            name: Some(LEASE_NAME.to_owned()),
            resource_version: version,
            ..ObjectMeta::default()
        },
        spec: Some(spec),
    })
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
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::{Leader, LeaderLease, OtherHolder};
    use crate::ports::HubError;
    use crate::testing::{Failing, FakeObjects};

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

    fn lease_of(objects: &Arc<FakeObjects>, holder: &str) -> LeaderLease {
        let namespace = "keyferry-system".to_owned().try_into().unwrap();
        LeaderLease::new(Arc::clone(objects) as _, namespace, holder.to_owned())
    }

    async fn leader_at(lease: &mut LeaderLease, seconds: u64) -> Leader {
        let wall = Timestamp::from_second(1_800_000_000).unwrap();
        let mono = Duration::from_secs(seconds);
        lease.take_or_renew(wall, mono).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_given_back_is_taken_at_once() {
        let objects = Arc::<FakeObjects>::default();
        let (mut first, mut second) = (lease_of(&objects, "first"), lease_of(&objects, "second"));
        assert_eq!(leader_at(&mut first, 0).await, Leader::This);
        assert_eq!(leader_at(&mut second, 1).await, Leader::Unseen);
        first.give_back().await.unwrap();
        assert_eq!(leader_at(&mut second, 2).await, Leader::This);
        assert_eq!(leader_at(&mut first, 3).await, Leader::Unseen);
    }

    #[tokio::test]
    async fn the_lease_of_another_holder_is_not_given_back() {
        let objects = Arc::<FakeObjects>::default();
        let (first, mut second) = (lease_of(&objects, "first"), lease_of(&objects, "second"));
        first.give_back().await.unwrap();
        assert_eq!(leader_at(&mut second, 0).await, Leader::This);
        let held = objects.all("leases");
        first.give_back().await.unwrap();
        assert_eq!(objects.all("leases"), held);
        // A write of its own arrives late, or another replica has just taken it.
        objects.fail(Some(Failing::ConflictAt(1)));
        let refused = second.give_back().await;
        assert!(matches!(refused, Err(HubError::Conflict(_))), "{refused:?}");
        assert_eq!(objects.all("leases"), held);
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
