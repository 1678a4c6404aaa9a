//! Each access as gauges, by cert-manager's habits: whether it is ready, when its token ends, whether the target took one.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use keyferry_core::name::AccessName;
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
    known: Arc<Mutex<BTreeSet<AccessName>>>,
}

impl Accesses {
    pub(super) fn register(registry: &mut Registry) -> Accesses {
        let this = Accesses::default();
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
        registry.register("probe_success", "Whether the target took a token of a TargetAccess when it was last tried", this.probes.clone());
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
            Some(accepted) => drop(self.probes.get_or_create(&labels(name)).set(i64::from(accepted))),
            None => drop(self.probes.remove(&labels(name))),
        }
    }

    pub(super) fn forget(&self, name: &AccessName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        for condition in ["True", "False"] {
            let mut labels = labels(name);
            labels.push(("condition", condition.to_owned()));
            self.ready.remove(&labels);
        }
        self.expires.remove(&labels(name));
        self.probes.remove(&labels(name));
    }

    /// This process no longer knows how the accesses are: another one leads, and says so.
    pub(super) fn forget_all(&self) {
        let known = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        for name in &known {
            self.forget(name);
        }
    }

    fn has_room(&self, name: &AccessName) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(name) || (known.len() < MOST && known.insert(name.clone()))
    }
}

fn labels(name: &AccessName) -> Labels {
    vec![("namespace", name.namespace.to_string()), ("name", name.name.to_string())]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use keyferry_core::name::{Namespace, ObjectName};

    use super::*;

    #[test]
    fn one_that_no_longer_leads_says_nothing_of_any_access() {
        let mut registry = Registry::default();
        let accesses = Accesses::register(&mut registry);
        let name = |name: &str| AccessName { namespace: Namespace::new("tenant-a").unwrap(), name: ObjectName::new(name).unwrap() };
        accesses.set(&name("a"), false, Some(100));
        accesses.set(&name("b"), true, None);
        accesses.probed(&name("b"), Some(true));
        let text = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        assert_eq!(text(&registry).matches("namespace=").count(), 6, "{}", text(&registry));
        accesses.forget_all();
        assert_eq!(text(&registry).matches("namespace=").count(), 0, "{}", text(&registry));
        accesses.set(&name("a"), true, None);
        assert!(text(&registry).contains("access_ready_status{namespace=\"tenant-a\",name=\"a\",condition=\"True\"} 1\n"));
    }
}
