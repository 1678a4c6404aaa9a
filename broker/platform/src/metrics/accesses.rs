//! Gauges of each access, after cert-manager's conventions: whether it is ready, when its token
//! expires, and whether the target accepted one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::name::{AccessName, Namespace, ObjectName};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;

use super::table::{MetricDescription, NamedGauges, metrics};

/// How many accesses get their own series: tenants decide how many there are.
const MAX_SERIES: usize = 10_000;

metrics! {
    /// The series.
    AccessGauges {
        ready: NamedGauges = "access_ready_status" ["namespace", "name", "condition"]
            "1 for the current condition of a TargetAccess (True or False), 0 for the other",
        expires: NamedGauges = "access_token_expiration_timestamp_seconds" ["namespace", "name"]
            "When the earliest-expiring token in the objects of a TargetAccess expires",
        probes: NamedGauges = "probe_success" ["namespace", "name"]
            "1 if the target accepted a token of the TargetAccess at the last probe",
    }
}

/// The gauges of all accesses. A clone updates the same series.
#[derive(Clone)]
pub(super) struct Accesses {
    gauges: AccessGauges,
    series: Arc<Mutex<AccessSeries>>,
}

impl Accesses {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            gauges: AccessGauges::register(registry),
            series: Arc::default(),
        }
    }

    pub(super) fn describe() -> Vec<MetricDescription> {
        AccessGauges::describe()
    }

    pub(super) fn set_access(&self, name: &AccessName, ready: bool, expires: Option<i64>) {
        if !self.has_room(name) {
            return;
        }
        for (condition, holds) in [("True", ready), ("False", !ready)] {
            let labels = with_condition(name, condition);
            self.gauges.ready.of(labels).set(i64::from(holds));
        }
        match expires {
            Some(at) => drop(self.gauges.expires.of(access_labels(name)).set(at)),
            None => self.gauges.expires.remove(access_labels(name)),
        }
    }

    pub(super) fn set_probe_result(&self, name: &AccessName, accepted: Option<bool>) {
        match accepted.filter(|_| self.has_room(name)) {
            Some(accepted) => drop(
                self.gauges
                    .probes
                    .of(access_labels(name))
                    .set(i64::from(accepted)),
            ),
            None => self.gauges.probes.remove(access_labels(name)),
        }
    }

    pub(super) fn forget(&self, name: &AccessName) {
        self.lock_series().remove(name);
        self.remove(name);
    }

    /// Removes all series: another process leads and reports the accesses.
    pub(super) fn forget_all(&self) {
        let known = std::mem::take(&mut *self.lock_series());
        for (namespace, names) in known.of {
            names.into_iter().for_each(|name| {
                self.remove(&AccessName {
                    namespace: namespace.clone(),
                    name,
                })
            });
        }
    }

    fn has_room(&self, name: &AccessName) -> bool {
        let SeriesAdmission { granted, evicted } = self.lock_series().room_for(name);
        if let Some(evicted) = evicted {
            self.remove(&evicted);
        }
        granted
    }

    fn remove(&self, name: &AccessName) {
        for condition in ["True", "False"] {
            self.gauges.ready.remove(with_condition(name, condition));
        }
        self.gauges.expires.remove(access_labels(name));
        self.gauges.probes.remove(access_labels(name));
    }

    fn lock_series(&self) -> MutexGuard<'_, AccessSeries> {
        self.series.lock()
    }
}

/// The accesses that have series. If there are too many, the namespace with the most loses one, so
/// a tenant with thousands of accesses cannot hide others'.
#[derive(Default)]
struct AccessSeries {
    of: BTreeMap<Namespace, BTreeSet<ObjectName>>,
    count: usize,
}

/// Whether an access may have series, and which access loses its own for that.
struct SeriesAdmission {
    granted: bool,
    evicted: Option<AccessName>,
}

impl AccessSeries {
    fn room_for(&mut self, name: &AccessName) -> SeriesAdmission {
        let own = self.of.get(&name.namespace);
        if own.is_some_and(|names| names.contains(&name.name)) {
            return SeriesAdmission {
                granted: true,
                evicted: None,
            };
        }
        let mut evicted = None;
        if self.count >= MAX_SERIES {
            let own = own.map_or(0, BTreeSet::len);
            let most = self.of.iter().max_by_key(|(_, names)| names.len());
            // With one more, this namespace would have as many as the other: then nothing changes,
            // or the two would evict each other for ever.
            evicted =
                most.filter(|(_, names)| own + 1 < names.len())
                    .and_then(|(namespace, names)| {
                        Some(AccessName {
                            namespace: namespace.clone(),
                            name: names.last()?.clone(),
                        })
                    });
            match &evicted {
                Some(evicted) => self.remove(evicted),
                None => {
                    return SeriesAdmission {
                        granted: false,
                        evicted: None,
                    };
                }
            }
        }
        self.of
            .entry(name.namespace.clone())
            .or_default()
            .insert(name.name.clone());
        self.count += 1;
        SeriesAdmission {
            granted: true,
            evicted,
        }
    }

    fn remove(&mut self, name: &AccessName) {
        let Some(names) = self.of.get_mut(&name.namespace) else {
            return;
        };
        self.count -= usize::from(names.remove(&name.name));
        if names.is_empty() {
            self.of.remove(&name.namespace);
        }
    }
}

fn access_labels(name: &AccessName) -> [String; 2] {
    [name.namespace.to_string(), name.name.to_string()]
}

fn with_condition(name: &AccessName, condition: &str) -> [String; 3] {
    let [namespace, name] = access_labels(name);
    [namespace, name, condition.to_owned()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn one_that_no_longer_leads_says_nothing_of_any_access() {
        let mut registry = Registry::default();
        let accesses = Accesses::register(&mut registry);
        let name = |name: &str| AccessName {
            namespace: Namespace::new("tenant-a").unwrap(),
            name: ObjectName::new(name).unwrap(),
        };
        accesses.set_access(&name("a"), false, Some(100));
        accesses.set_access(&name("b"), true, None);
        accesses.set_probe_result(&name("b"), Some(true));
        let text = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        assert_eq!(
            text(&registry).matches("namespace=").count(),
            6,
            "{}",
            text(&registry)
        );
        accesses.forget_all();
        assert_eq!(
            text(&registry).matches("namespace=").count(),
            0,
            "{}",
            text(&registry)
        );
        accesses.set_access(&name("a"), true, None);
        assert!(text(&registry).contains(
            "access_ready_status{namespace=\"tenant-a\",name=\"a\",condition=\"True\"} 1\n"
        ));
    }

    fn of(namespace: &str, number: usize) -> AccessName {
        AccessName {
            namespace: Namespace::new(namespace).unwrap(),
            name: ObjectName::new(format!("a{number:05}")).unwrap(),
        }
    }

    #[test]
    fn who_makes_too_many_hides_his_own_alone() {
        let mut registry = Registry::default();
        let accesses = Accesses::register(&mut registry);
        for number in 0..MAX_SERIES + 5 {
            accesses.set_access(&of("crowd", number), true, None);
        }
        let shown = |name: &AccessName| {
            accesses
                .lock_series()
                .of
                .get(&name.namespace)
                .is_some_and(|names| names.contains(&name.name))
        };
        let count = || {
            accesses
                .lock_series()
                .of
                .values()
                .map(BTreeSet::len)
                .sum::<usize>()
        };
        assert_eq!(count(), MAX_SERIES);
        for number in 0..3 {
            accesses.set_access(&of("quiet", number), false, Some(7));
            accesses.set_probe_result(&of("other", number), Some(true));
        }
        assert!((0..3).all(|number| shown(&of("quiet", number)) && shown(&of("other", number))));
        assert!(!shown(&of("crowd", MAX_SERIES - 1)) && shown(&of("crowd", MAX_SERIES - 7)));
        assert_eq!(
            (count(), accesses.lock_series().count),
            (MAX_SERIES, MAX_SERIES)
        );
        // A repeated update does not evict others.
        for number in 0..MAX_SERIES + 5 {
            accesses.set_access(&of("crowd", number), true, None);
        }
        assert!((0..3).all(|number| shown(&of("quiet", number)) && shown(&of("other", number))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(
            text.matches("access_ready_status{").count(),
            2 * (MAX_SERIES - 3),
            "each that is shown, in both conditions, and no other"
        );
        assert!(text.contains(
            "access_ready_status{namespace=\"quiet\",name=\"a00000\",condition=\"False\"} 1\n"
        ));
    }

    #[test]
    fn where_one_is_gone_there_is_room_again() {
        let mut registry = Registry::default();
        let accesses = Accesses::register(&mut registry);
        for number in 0..MAX_SERIES {
            accesses.set_access(&of("crowd", number), true, None);
        }
        assert!(!accesses.has_room(&of("crowd", MAX_SERIES)));
        accesses.forget(&of("crowd", 0));
        accesses.forget(&of("crowd", 0));
        assert!(
            accesses.has_room(&of("crowd", MAX_SERIES))
                && !accesses.has_room(&of("crowd", MAX_SERIES + 1))
        );
    }
}
