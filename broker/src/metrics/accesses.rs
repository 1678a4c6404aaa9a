//! Each access as gauges, by cert-manager's habits: whether it is ready, when its token ends,
//! whether the target took one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keyferry_core::name::{AccessName, Namespace, ObjectName};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<i64, AtomicI64>>;

/// Most accesses that have series of their own: tenants decide how many there are.
const MOST: usize = 10_000;

/// See the module. A clone writes into the same series.
#[derive(Clone, Default)]
pub(super) struct Accesses {
    ready: Gauges,
    expires: Gauges,
    probes: Gauges,
    known: Arc<Mutex<Known>>,
}

impl Accesses {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "access_ready_status",
            "Whether a TargetAccess is ready: 1 for the condition that it is in, 0 for the other",
            this.ready.clone(),
        );
        registry.register(
            "access_token_expiration_timestamp_seconds",
            "When the first of the tokens in the objects of a TargetAccess expires",
            this.expires.clone(),
        );
        registry.register(
            "probe_success",
            "Whether the target took a token of a TargetAccess when it was last tried",
            this.probes.clone(),
        );
        this
    }

    pub(super) fn set(&self, name: &AccessName, ready: bool, expires: Option<i64>) {
        if !self.has_room(name) {
            return;
        }
        for (condition, holds) in [("True", ready), ("False", !ready)] {
            let mut labels = labels(name);
            labels.push(("condition", condition.to_owned()));
            self.ready.get_or_create(&labels).set(i64::from(holds));
        }
        match expires {
            Some(at) => drop(self.expires.get_or_create(&labels(name)).set(at)),
            None => drop(self.expires.remove(&labels(name))),
        }
    }

    pub(super) fn probed(&self, name: &AccessName, accepted: Option<bool>) {
        match accepted.filter(|_| self.has_room(name)) {
            Some(accepted) => drop(
                self.probes
                    .get_or_create(&labels(name))
                    .set(i64::from(accepted)),
            ),
            None => drop(self.probes.remove(&labels(name))),
        }
    }

    pub(super) fn forget(&self, name: &AccessName) {
        self.known().remove(name);
        self.remove(name);
    }

    /// This process no longer knows how the accesses are: another one leads, and says so.
    pub(super) fn forget_all(&self) {
        let known = std::mem::take(&mut *self.known());
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
        let Room { granted, evicted } = self.known().room_for(name);
        if let Some(evicted) = evicted {
            self.remove(&evicted);
        }
        granted
    }

    fn remove(&self, name: &AccessName) {
        for condition in ["True", "False"] {
            let mut labels = labels(name);
            labels.push(("condition", condition.to_owned()));
            self.ready.remove(&labels);
        }
        self.expires.remove(&labels(name));
        self.probes.remove(&labels(name));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The accesses that have series. Where there are too many, the namespace with the most gives way:
/// whoever makes thousands hides no others'.
#[derive(Default)]
struct Known {
    of: BTreeMap<Namespace, BTreeSet<ObjectName>>,
    count: usize,
}

/// Whether an access may have series, and whose go for it.
struct Room {
    granted: bool,
    evicted: Option<AccessName>,
}

impl Known {
    fn room_for(&mut self, name: &AccessName) -> Room {
        let own = self.of.get(&name.namespace);
        if own.is_some_and(|names| names.contains(&name.name)) {
            return Room {
                granted: true,
                evicted: None,
            };
        }
        let mut evicted = None;
        if self.count >= MOST {
            let own = own.map_or(0, BTreeSet::len);
            let most = self.of.iter().max_by_key(|(_, names)| names.len());
            // With one more each would have no fewer than the other: no change, or they would take
            // turns for ever.
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
                    return Room {
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
        Room {
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

fn labels(name: &AccessName) -> Labels {
    vec![
        ("namespace", name.namespace.to_string()),
        ("name", name.name.to_string()),
    ]
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
        accesses.set(&name("a"), false, Some(100));
        accesses.set(&name("b"), true, None);
        accesses.probed(&name("b"), Some(true));
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
        accesses.set(&name("a"), true, None);
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
        for number in 0..MOST + 5 {
            accesses.set(&of("crowd", number), true, None);
        }
        let shown = |name: &AccessName| {
            accesses
                .known()
                .of
                .get(&name.namespace)
                .is_some_and(|names| names.contains(&name.name))
        };
        let count = || {
            accesses
                .known()
                .of
                .values()
                .map(BTreeSet::len)
                .sum::<usize>()
        };
        assert_eq!(count(), MOST);
        for number in 0..3 {
            accesses.set(&of("quiet", number), false, Some(7));
            accesses.probed(&of("other", number), Some(true));
        }
        assert!((0..3).all(|number| shown(&of("quiet", number)) && shown(&of("other", number))));
        assert!(!shown(&of("crowd", MOST - 1)) && shown(&of("crowd", MOST - 7)));
        assert_eq!((count(), accesses.known().count), (MOST, MOST));
        // They do not push others out by being looked at again.
        for number in 0..MOST + 5 {
            accesses.set(&of("crowd", number), true, None);
        }
        assert!((0..3).all(|number| shown(&of("quiet", number)) && shown(&of("other", number))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(
            text.matches("access_ready_status{").count(),
            2 * (MOST - 3),
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
        for number in 0..MOST {
            accesses.set(&of("crowd", number), true, None);
        }
        assert!(!accesses.has_room(&of("crowd", MOST)));
        accesses.forget(&of("crowd", 0));
        accesses.forget(&of("crowd", 0));
        assert!(
            accesses.has_room(&of("crowd", MOST)) && !accesses.has_room(&of("crowd", MOST + 1))
        );
    }
}
