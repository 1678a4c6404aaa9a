//! The hub's TargetClusters and TargetAccesses as last seen, and a sign for everybody whom a change of them concerns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use keyferry_core::config::{Assembled, Policy, Record, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget};
use keyferry_core::name::{AccessName, ObjectName};
use serde_json::Value;
use tokio::sync::watch;

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// TargetClusters.
    TargetClusters,
    /// TargetAccesses of all namespaces.
    TargetAccesses,
}

/// What stays out of the policy, and why.
#[derive(Clone, Default)]
pub struct Faults(Arc<ArcSwap<Assembled>>);

impl Faults {
    /// The last assembly.
    pub fn current(&self) -> Arc<Assembled> {
        self.0.load_full()
    }

    /// Takes in the next one.
    pub fn replace(&self, assembled: Assembled) {
        self.0.store(Arc::new(assembled));
    }
}

/// See the module.
pub struct ObjectStore {
    server: ServerConfiguration,
    objects: Mutex<StoredObjects>,
    changed: watch::Sender<u64>,
}

impl ObjectStore {
    /// A store that reads objects under the settings of this process.
    pub fn new(server: ServerConfiguration) -> ObjectStore {
        ObjectStore { server, objects: Mutex::default(), changed: watch::Sender::new(0) }
    }

    /// Takes in a whole list; what is not in it is gone.
    pub fn replace_all(&self, collection: Collection, all: Vec<Value>) {
        let mut objects = self.objects();
        match collection {
            Collection::TargetClusters => {
                objects.targets = all.iter().filter_map(|object| StoredTarget::read(object, &self.server)).collect();
            }
            Collection::TargetAccesses => objects.accesses = all.iter().filter_map(StoredAccess::read).collect(),
        }
        self.tell();
    }

    /// Takes in one object. A change of its status alone concerns nobody.
    pub fn set(&self, collection: Collection, object: &Value) {
        let mut objects = self.objects();
        let same = |known: Option<&Record>, read: &Record| known.is_some_and(|known| known.means_the_same_as(read));
        let unchanged = match collection {
            Collection::TargetClusters => {
                let Some((name, target)) = StoredTarget::read(object, &self.server) else { return };
                let unchanged = same(objects.targets.get(&name).map(|known| &known.record), &target.record);
                objects.targets.insert(name, target);
                unchanged
            }
            Collection::TargetAccesses => {
                let Some((name, access)) = StoredAccess::read(object) else { return };
                let unchanged = same(objects.accesses.get(&name).map(|known| &known.record), &access.record);
                objects.accesses.insert(name, access);
                unchanged
            }
        };
        if !unchanged {
            self.tell();
        }
    }

    /// Takes in that an object is gone.
    pub fn remove(&self, collection: Collection, object: &Value) {
        let mut objects = self.objects();
        match collection {
            Collection::TargetClusters => {
                if let Some((name, _)) = StoredTarget::read(object, &self.server) {
                    objects.targets.remove(&name);
                }
            }
            Collection::TargetAccesses => {
                if let Some((name, _)) = StoredAccess::read(object) {
                    objects.accesses.remove(&name);
                }
            }
        }
        self.tell();
    }

    /// What all objects mean together.
    pub fn assemble(&self) -> Assembled {
        self.objects().assemble(&self.server.cluster_resource_namespace)
    }

    /// Told of every change that may mean something.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// An access as last seen.
    pub fn access(&self, name: &AccessName) -> Option<StoredAccess> {
        self.objects().accesses.get(name).cloned()
    }

    /// Something of each access, those that are being deleted among them.
    pub fn each_access<K: Ord, V>(&self, of: impl Fn(&AccessName, &StoredAccess) -> (K, V)) -> BTreeMap<K, V> {
        self.objects().accesses.iter().map(|(name, access)| of(name, access)).collect()
    }

    /// Whether an assembly has taken in the target of this name as it is there. Just after a list it has not, and an access must not
    /// seem to be refused by it.
    pub fn is_taken_in(&self, target: &ObjectName, policy: &Policy, faults: &Assembled) -> bool {
        let there = self.target(target).is_some_and(|record| record.deleting.is_none());
        !there || policy.targets.contains_key(target) || faults.targets.contains_key(target)
    }

    /// What the API says of a target, as last seen.
    pub fn target(&self, name: &ObjectName) -> Option<Record> {
        self.objects().targets.get(name).map(|target| target.record.clone())
    }

    /// The names of all targets, those without a part in the policy among them.
    pub fn target_names(&self) -> Vec<ObjectName> {
        self.objects().targets.keys().cloned().collect()
    }

    /// The audiences of all targets, as written.
    pub fn audiences(&self) -> Vec<String> {
        self.objects().audiences()
    }

    fn objects(&self) -> MutexGuard<'_, StoredObjects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_core::config::{self, Policy};
    use keyferry_core::name::ObjectName;
    use serde_json::json;

    use super::{Collection, Faults, ObjectStore};

    #[test]
    fn a_target_that_no_assembly_has_seen_refuses_nobody_yet() {
        let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: CustomResources\nhubName: hub\n\
                    publicURL: https://keyferry.example.com\ndiscovery: {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n";
        let store = ObjectStore::new(config::read(text).unwrap().server);
        let (name, faults) = (ObjectName::new("prod").unwrap(), Faults::default());
        assert!(store.is_taken_in(&name, &Policy::default(), &faults.current()), "what is absent is absent");
        for (address, has_part) in [("https://prod.example.com", true), ("http://prod.example.com", false)] {
            let target = json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
                "metadata": { "name": "prod", "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "address": address, "audience": "prod" },
            });
            store.replace_all(Collection::TargetClusters, vec![target]);
            assert!(!store.is_taken_in(&name, &Policy::default(), &Faults::default().current()));
            let assembled = store.assemble();
            assert_eq!(assembled.policy.targets.contains_key(&name), has_part);
            assert!(store.is_taken_in(&name, &assembled.policy, &assembled));
        }
    }
}
