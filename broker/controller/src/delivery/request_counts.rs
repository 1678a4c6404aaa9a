//! How many client certificates each access and each namespace requested lately, and their limits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_core::client_certificate::{self, COUNTING_WINDOW};

/// The most requests for one access within [`COUNTING_WINDOW`]. Its author can rename deliveries,
/// and each name asks for a certificate; an access has at most 16 at once.
const MAX_REQUESTS_PER_ACCESS: usize = 32;
/// The most requests for all accesses of one namespace within [`COUNTING_WINDOW`]. Its tenant can
/// create accesses without end, also by deleting others.
pub(super) const MAX_REQUESTS_PER_NAMESPACE: usize = 64;

/// When requests were made. A deleted access stays until its requests no longer count, so deleting
/// and recreating it does not reset its limit. Another name does not reset its namespace's.
#[derive(Default)]
pub(super) struct RequestCounts {
    of_access: HashMap<AccessName, VecDeque<Timestamp>>,
    of_namespace: HashMap<Namespace, VecDeque<Timestamp>>,
    /// The namespaces whose earlier requests were read from the hub since this replica leads.
    pub(super) restored: HashSet<Namespace>,
}

/// Which limit holds a request up, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestLimit {
    pub(super) limit: usize,
    pub(super) of: &'static str,
    pub(super) wait: Duration,
}

impl RequestCounts {
    /// Counts one more request of an access and of its namespace.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn count_request(
        &mut self,
        access: &AccessName,
        now: Timestamp,
    ) -> Result<(), RequestLimit> {
        forget_old(&mut self.of_access, now);
        forget_old(&mut self.of_namespace, now);
        let of_namespace = self
            .of_namespace
            .entry(access.namespace.clone())
            .or_default();
        let of_access = self.of_access.entry(access.clone()).or_default();
        for (times, limit, of) in [
            (&*of_namespace, MAX_REQUESTS_PER_NAMESPACE, "this namespace"),
            (&*of_access, MAX_REQUESTS_PER_ACCESS, "this access"),
        ] {
            if let Some(first) = times.front().filter(|_| times.len() >= limit) {
                let age = now.duration_since(*first).try_into().unwrap_or_default();
                let wait = COUNTING_WINDOW.saturating_sub(age);
                return Err(RequestLimit { limit, of, wait });
            }
        }
        of_namespace.push_back(now);
        of_access.push_back(now);
        Ok(())
    }

    /// Adds the requests that the hub still has, made by any leader. What this process counted
    /// itself stays where the hub has fewer, because their objects can be deleted.
    pub(super) fn restore_counts(&mut self, namespace: &Namespace, times: Vec<Timestamp>) {
        let counted = self.of_namespace.entry(namespace.clone()).or_default();
        if times.len() > counted.len() {
            *counted = times.into();
        }
        self.restored.insert(namespace.clone());
    }
}

fn forget_old<K: Eq + Hash>(counts: &mut HashMap<K, VecDeque<Timestamp>>, now: Timestamp) {
    counts.retain(|_, times| {
        times.retain(|time| client_certificate::is_counted(*time, now));
        !times.is_empty()
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn access(name: &str) -> AccessName {
        AccessName::parse(name).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn accesses_under_new_names_share_the_limit_of_their_namespace() {
        let mut counts = RequestCounts::default();
        for number in 0..64 {
            let name = access(&format!("tenant-a/loop-{number}"));
            assert_eq!(counts.count_request(&name, at(number)), Ok(()), "{name}");
        }
        let reached = counts
            .count_request(&access("tenant-a/new"), at(100))
            .unwrap_err();
        assert_eq!((reached.limit, reached.of), (64, "this namespace"));
        assert_eq!(reached.wait, Duration::from_secs(3500));
        // What is refused is not counted, and another namespace is not concerned.
        assert_eq!(
            counts.count_request(&access("tenant-b/new"), at(100)),
            Ok(())
        );
        assert_eq!(
            counts.count_request(&access("tenant-a/new"), at(3600)),
            Ok(())
        );
        assert!(
            counts
                .count_request(&access("tenant-a/new"), at(3600))
                .is_err()
        );
    }

    #[test]
    fn one_access_cannot_use_up_its_namespace() {
        let mut counts = RequestCounts::default();
        for _ in 0..32 {
            counts
                .count_request(&access("tenant-a/one"), at(0))
                .unwrap();
        }
        let reached = counts
            .count_request(&access("tenant-a/one"), at(1))
            .unwrap_err();
        assert_eq!((reached.limit, reached.of), (32, "this access"));
        assert_eq!(
            counts.count_request(&access("tenant-a/other"), at(1)),
            Ok(())
        );
    }

    #[test]
    fn the_requests_of_an_earlier_leader_count() {
        let mut counts = RequestCounts::default();
        let name = access("tenant-a/new");
        counts.restore_counts(&name.namespace, (0..64).map(at).collect());
        assert!(counts.count_request(&name, at(100)).is_err());
        assert_eq!(
            counts.count_request(&access("tenant-b/new"), at(100)),
            Ok(())
        );
        // Objects that were deleted meanwhile do not lower what this process counted itself.
        let mut counts = RequestCounts::default();
        for number in 0..64 {
            let name = access(&format!("tenant-a/loop-{number}"));
            counts.count_request(&name, at(number)).unwrap();
        }
        counts.restore_counts(&name.namespace, vec![at(0)]);
        assert!(counts.count_request(&name, at(100)).is_err());
    }
}
