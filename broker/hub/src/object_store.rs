//! The hub's TargetClusters and TargetAccesses as last seen, and a change notification for
//! subscribers.

mod listing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use keyferry_api::config::{
    Assembled, DrainingTarget, Policy, Record, ReducedObject, ServerConfiguration, StoredAccess,
    StoredObjects, StoredTarget,
};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_core::access_status;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

pub use self::listing::Collection;
pub use self::listing::Listing;
use self::listing::{Listed, ListedObject};

/// The last assembly of all objects: which of them are excluded from the policy, and why.
#[derive(Clone, Default)]
pub struct Faults(Arc<ArcSwap<Assembled>>);

impl Faults {
    /// Returns the last assembly.
    pub fn last_assembly(&self) -> Arc<Assembled> {
        self.0.load_full()
    }

    /// Replaces the last assembly.
    pub fn replace(&self, assembled: Assembled) {
        self.0.store(Arc::new(assembled));
    }
}

/// Caches the hub's TargetClusters and TargetAccesses, and notifies subscribers of changes.
pub struct ObjectStore {
    server: ServerConfiguration,
    objects: Mutex<StoredObjects>,
    /// Versions that this process has written and its watch has not shown yet. Lock `objects`
    /// before this.
    written: Mutex<HashMap<AccessName, u64>>,
    changed: watch::Sender<u64>,
}

impl ObjectStore {
    /// Creates an empty store that reads objects with the settings of this process.
    pub fn new(server: ServerConfiguration) -> Self {
        Self {
            server,
            objects: Mutex::default(),
            written: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Returns the hub's name, the prefix of every username at a target.
    pub fn hub_name(&self) -> &str {
        &self.server.hub_name
    }

    /// Adds an object to a list that is not complete yet. The store does not change.
    pub fn note_listed(&self, listing: &mut Listing, object: &ReducedObject) {
        match &mut listing.0 {
            Listed::Targets(listed) => {
                let Some((name, target)) = StoredTarget::read_reduced(object, &self.server) else {
                    return;
                };
                let seen =
                    ListedObject::merge_newer(self.lock_objects().targets.get(&name), target);
                listed.insert(name, seen);
            }
            Listed::Accesses(listed) => {
                let Some((name, access)) = StoredAccess::read_reduced(object) else {
                    return;
                };
                let objects = self.lock_objects();
                let known = objects.accesses.get(&name);
                let seen = ListedObject::merge_newer(known, access.after(known));
                listed.insert(name, seen);
            }
        }
    }

    /// Replaces all objects of a kind by a complete list.
    pub fn replace_all(&self, listing: Listing) {
        let mut objects = self.lock_objects();
        match listing.0 {
            Listed::Targets(listed) => {
                objects.targets =
                    listing::merge_listing(listed, std::mem::take(&mut objects.targets))
            }
            Listed::Accesses(listed) => {
                objects.accesses =
                    listing::merge_listing(listed, std::mem::take(&mut objects.accesses));
                self.lock_unseen().clear();
            }
        }
        self.notify_subscribers();
    }

    /// Stores one object. A change of its status alone notifies no subscriber.
    pub fn store_object(&self, collection: Collection, object: &ReducedObject) {
        let mut objects = self.lock_objects();
        let same = |known: Option<&Record>, read: &Record| {
            known.is_some_and(|known| known.means_the_same_as(read))
        };
        let unchanged = match collection {
            Collection::TargetClusters => {
                let Some((name, target)) = StoredTarget::read_reduced(object, &self.server) else {
                    return;
                };
                let unchanged = same(
                    objects.targets.get(&name).map(|known| &known.record),
                    &target.record,
                );
                objects.targets.insert(name, target);
                unchanged
            }
            Collection::TargetAccesses => {
                let Some((name, access)) = StoredAccess::read_reduced(object) else {
                    return;
                };
                if self.is_older_than_written(&name, &access.record) {
                    return;
                }
                let known = objects.accesses.get(&name);
                let unchanged = same(known.map(|known| &known.record), &access.record);
                let access = access.after(known);
                objects.accesses.insert(name, access);
                unchanged
            }
        };
        if !unchanged {
            self.notify_subscribers();
        }
    }

    /// Removes a deleted object.
    pub fn remove_object(&self, collection: Collection, object: &ReducedObject) {
        let mut objects = self.lock_objects();
        match collection {
            Collection::TargetClusters => {
                if let Some((name, _)) = StoredTarget::read_reduced(object, &self.server) {
                    objects.targets.remove(&name);
                }
            }
            Collection::TargetAccesses => {
                if let Some((name, _)) = StoredAccess::read_reduced(object) {
                    objects.accesses.remove(&name);
                    self.lock_unseen().remove(&name);
                }
            }
        }
        self.notify_subscribers();
    }

    /// Stores an access as the hub returned it after a write of this process, so that the next
    /// write does not use an old version. Returns the access; `None` if the object is not one. A
    /// later version that the watch has shown stays.
    pub fn store_written(&self, object: &ReducedObject) -> Option<StoredAccess> {
        let (name, access) = StoredAccess::read_reduced(object)?;
        let mut objects = self.lock_objects();
        let known = objects
            .accesses
            .get(&name)
            .filter(|known| known.record.uid == access.record.uid);
        let access = access.after(known);
        // An access that the watch has shown as deleted is not restored.
        let versions = known.and_then(|known| {
            Some((
                numeric_version(&known.record)?,
                numeric_version(&access.record)?,
            ))
        });
        if let Some((seen, now)) = versions
            && now > seen
        {
            self.lock_unseen().insert(name.clone(), now);
            objects.accesses.insert(name, access.clone());
        }
        Some(access)
    }

    /// Assembles the policy from all objects.
    pub fn assemble_policy(&self) -> Assembled {
        self.lock_objects()
            .assemble(&self.server.cluster_resource_namespace)
    }

    /// Subscribes to changes that may affect the policy or a delivery.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns an access as last seen.
    pub fn access(&self, name: &AccessName) -> Option<StoredAccess> {
        self.lock_objects().accesses.get(name).cloned()
    }

    /// Applies `look` to each access, including those being deleted. The store is locked meanwhile,
    /// so `look` must be quick and must not ask the store, which would wait for itself.
    pub fn each_access<T>(&self, mut look: impl FnMut(&AccessName, &StoredAccess) -> T) -> Vec<T> {
        self.lock_objects()
            .accesses
            .iter()
            .map(|(name, access)| look(name, access))
            .collect()
    }

    /// Whether the policy or its faults already reflect this target. Just after a list they may
    /// not, and an access must not appear refused because of that.
    pub fn is_in_policy(&self, target: &ObjectName, policy: &Policy, faults: &Assembled) -> bool {
        let there = self
            .target(target)
            .is_some_and(|record| record.deleting.is_none());
        !there || policy.targets.contains_key(target) || faults.targets.contains_key(target)
    }

    /// Returns the API record of a target as last seen.
    pub fn target(&self, name: &ObjectName) -> Option<Record> {
        self.lock_objects()
            .targets
            .get(name)
            .map(|target| target.record.clone())
    }

    /// Returns when a check was last requested by annotation, for each target where one was.
    pub fn requested_checks(&self) -> BTreeMap<ObjectName, String> {
        self.lock_objects()
            .targets
            .iter()
            .filter_map(|(name, target)| Some((name.clone(), target.record.requested_at.clone()?)))
            .collect()
    }

    /// Returns a target that is being deleted and drains.
    pub fn draining_target(&self, name: &ObjectName) -> Option<DrainingTarget> {
        self.lock_objects().draining(name)
    }

    /// Returns all targets that are being deleted and drain.
    pub fn all_draining(&self) -> BTreeMap<ObjectName, DrainingTarget> {
        let objects = self.lock_objects();
        let names = objects.targets.keys();
        names
            .filter_map(|name| Some((name.clone(), objects.draining(name)?)))
            .collect()
    }

    /// Returns, for each target, the accesses that may still have objects on the hub. Those of a role
    /// count for its base too, so that the objects of both outlive the base's deletion.
    pub fn accesses_by_target(&self) -> BTreeMap<ObjectName, Vec<AccessName>> {
        let objects = self.lock_objects();
        let base_of = |target: &ObjectName| {
            let role = objects.targets.get(target)?.meant()?.role.as_ref()?;
            Some(role.same_as.clone())
        };
        let mut users: BTreeMap<ObjectName, Vec<AccessName>> = BTreeMap::new();
        for (name, access) in &objects.accesses {
            if let Some(meant) = access
                .meant()
                .filter(|_| access_status::may_have_objects(&access.record.status))
            {
                for target in base_of(&meant.target)
                    .into_iter()
                    .chain([meant.target.clone()])
                {
                    users.entry(target).or_default().push(name.clone());
                }
            }
        }
        users
    }

    /// Returns the names of all targets, including those excluded from the policy.
    pub fn target_names(&self) -> Vec<ObjectName> {
        self.lock_objects().targets.keys().cloned().collect()
    }

    /// Returns the audiences of all targets as written.
    pub fn audiences(&self) -> BTreeSet<String> {
        self.lock_objects().audiences()
    }

    fn lock_objects(&self) -> MutexGuard<'_, StoredObjects> {
        self.objects.lock()
    }

    /// Whether a record is older than our last write: the watch may still show an earlier version.
    fn is_older_than_written(&self, name: &AccessName, record: &Record) -> bool {
        let mut unseen = self.lock_unseen();
        let older = unseen
            .get(name)
            .zip(numeric_version(record))
            .is_some_and(|(written, shown)| shown < *written);
        if !older {
            unseen.remove(name);
        }
        older
    }

    fn lock_unseen(&self) -> MutexGuard<'_, HashMap<AccessName, u64>> {
        self.written.lock()
    }

    fn notify_subscribers(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

/// Parses a resourceVersion as a number, to order two versions of one object; `None` if a hub uses
/// another format.
fn numeric_version(record: &Record) -> Option<u64> {
    record.version.parse().ok()
}

#[cfg(any(test, feature = "testing"))]
impl ObjectStore {
    /// Replaces the collection by a list of these objects.
    pub fn list(&self, collection: Collection, all: &[serde_json::Value]) {
        let mut listing = Listing::of_collection(collection);
        all.iter()
            .for_each(|object| self.note_listed(&mut listing, &ReducedObject::of(object)));
        self.replace_all(listing);
    }
}

#[cfg(test)]
mod tests;
