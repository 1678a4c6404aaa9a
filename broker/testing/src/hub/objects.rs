//! The objects of a hub, with the resourceVersions and the history that list and watch need.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::Timestamp;
use tokio::sync::watch;

use super::claims::random_uuid;
use super::object::{Object, Resource};
use crate::clock::Clock;
use crate::locked;

/// A change of an object.
#[derive(Clone)]
pub(super) struct Change {
    /// ADDED, MODIFIED or DELETED.
    pub(super) kind: &'static str,
    pub(super) object: Object,
}

/// The history no longer reaches back to the asked resourceVersion.
pub(super) struct Expired;

/// How a compare-and-swap ended.
pub(super) enum Swap {
    Done(Object),
    /// There is no object to replace.
    Absent,
    /// The object has another version, or one exists where none was expected.
    Changed,
}

pub(super) struct Objects {
    inner: Mutex<Inner>,
    latest: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<(Resource, String, String), Object>,
    history: Vec<Change>,
    version: u64,
    compacted: u64,
}

impl Objects {
    pub(super) fn new(clock: Clock) -> Self {
        let inner = Inner {
            version: 1,
            ..Inner::default()
        };
        Self {
            inner: Mutex::new(inner),
            latest: watch::Sender::new(1),
            clock,
        }
    }

    pub(super) fn put_namespace(&self, name: &str, mut labels: BTreeMap<String, String>) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        let now = (self.clock)();
        self.change(|inner| {
            let key = (Resource::Namespaces, String::new(), name.to_owned());
            let mut object = inner.existing_or_new(&key, now);
            if inner.objects.contains_key(&key) && object.labels == labels {
                return;
            }
            object.labels = labels;
            inner.store(key, object);
        });
    }

    /// Adds an object, or replaces the data of an existing one; creates its namespace if needed.
    /// Returns the UID.
    pub(super) fn put(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        data: BTreeMap<String, Vec<u8>>,
    ) -> String {
        if self.get(Resource::Namespaces, "", namespace).is_none() {
            self.put_namespace(namespace, BTreeMap::new());
        }
        let now = (self.clock)();
        self.change(|inner| {
            let key = (resource, namespace.to_owned(), name.to_owned());
            let mut object = inner.existing_or_new(&key, now);
            let uid = object.uid.clone();
            if !inner.objects.contains_key(&key) || object.data != data {
                object.data = data;
                inner.store(key, object);
            }
            uid
        })
    }

    /// Creates an object (`expected` none) or replaces the one of that version.
    pub(super) fn swap(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        expected: Option<u64>,
        data: BTreeMap<String, Vec<u8>>,
    ) -> Swap {
        let now = (self.clock)();
        self.change(|inner| {
            let key = (resource, namespace.to_owned(), name.to_owned());
            match (
                inner.objects.get(&key).map(|object| object.version),
                expected,
            ) {
                (None, Some(_)) => return Swap::Absent,
                (found, expected) if found != expected => return Swap::Changed,
                _ => {}
            }
            let object = Object {
                data,
                ..inner.existing_or_new(&key, now)
            };
            inner.store(key.clone(), object);
            inner
                .objects
                .get(&key)
                .cloned()
                .map_or(Swap::Absent, Swap::Done)
        })
    }

    pub(super) fn delete(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.change(|inner| inner.remove(&key))
    }

    pub(super) fn delete_namespace(&self, name: &str) {
        self.change(|inner| {
            let inside: Vec<_> = inner
                .objects
                .keys()
                .filter(|(_, namespace, _)| namespace == name)
                .cloned()
                .collect();
            for key in inside {
                inner.remove(&key);
            }
            inner.remove(&(Resource::Namespaces, String::new(), name.to_owned()));
        });
    }

    pub(super) fn compact(&self) {
        let mut inner = locked(&self.inner);
        inner.compacted = inner.version;
        inner.history.clear();
    }

    pub(super) fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Object> {
        let key = (resource, namespace.to_owned(), name.to_owned());
        locked(&self.inner).objects.get(&key).cloned()
    }

    /// All objects of a resource, with the resourceVersion of the list. An empty `namespace` means
    /// every namespace.
    pub(super) fn list(&self, resource: Resource, namespace: &str) -> (Vec<Object>, u64) {
        let inner = locked(&self.inner);
        let listed = inner
            .objects
            .values()
            .filter(|object| object.is(resource, namespace))
            .cloned()
            .collect();
        (listed, inner.version)
    }

    /// The changes after `version`, and the version they lead to.
    pub(super) fn changes_since(
        &self,
        resource: Resource,
        namespace: &str,
        version: u64,
    ) -> Result<(Vec<Change>, u64), Expired> {
        let inner = locked(&self.inner);
        if version < inner.compacted {
            return Err(Expired);
        }
        let changes = inner
            .history
            .iter()
            .filter(|change| change.object.version > version)
            .filter(|change| change.object.is(resource, namespace))
            .cloned()
            .collect();
        Ok((changes, inner.version))
    }

    /// Subscribes to new resourceVersions.
    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = locked(&self.inner);
        let result = edit(&mut inner);
        self.latest.send_replace(inner.version);
        result
    }
}

impl Inner {
    fn existing_or_new(&self, key: &(Resource, String, String), now: Timestamp) -> Object {
        if let Some(object) = self.objects.get(key) {
            return object.clone();
        }
        Object {
            resource: key.0,
            namespace: key.1.clone(),
            name: key.2.clone(),
            // Without random bytes nothing in this hub works; creating its keys would have failed
            // first.
            uid: random_uuid().unwrap_or_default(),
            labels: BTreeMap::new(),
            data: BTreeMap::new(),
            created: now,
            version: 0,
        }
    }

    fn store(&mut self, key: (Resource, String, String), mut object: Object) {
        self.version += 1;
        object.version = self.version;
        let kind = match self.objects.insert(key, object.clone()) {
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        self.history.push(Change { kind, object });
    }

    fn remove(&mut self, key: &(Resource, String, String)) -> bool {
        let Some(mut object) = self.objects.remove(key) else {
            return false;
        };
        self.version += 1;
        object.version = self.version;
        self.history.push(Change {
            kind: "DELETED",
            object,
        });
        true
    }
}
