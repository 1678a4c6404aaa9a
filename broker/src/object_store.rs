//! The hub's TargetClusters and TargetAccesses as last seen, and a sign for everybody whom a change
//! of them concerns.

mod listing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use keyferry_core::access_status;
use keyferry_core::config::{
    Assembled, DrainingTarget, Policy, Record, ServerConfiguration, StoredAccess, StoredObjects,
    StoredTarget,
};
use keyferry_core::name::{AccessName, ObjectName};
use serde_json::Value;
use tokio::sync::watch;

pub use self::listing::Listing;
use self::listing::{Listed, Seen};

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
    /// Versions that this process has written and its watch has not shown yet. Taken only while
    /// `objects` is held.
    written: Mutex<HashMap<AccessName, u64>>,
    changed: watch::Sender<u64>,
}

impl ObjectStore {
    /// A store that reads objects under the settings of this process.
    pub fn new(server: ServerConfiguration) -> Self {
        Self {
            server,
            objects: Mutex::default(),
            written: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// The hub's name, with which every user name at a target begins.
    pub fn hub_name(&self) -> &str {
        &self.server.hub_name
    }

    /// Notes an object of a list that is not complete yet. Nothing changes by it.
    pub fn note(&self, listing: &mut Listing, object: &Value) {
        match &mut listing.0 {
            Listed::Targets(listed) => {
                let Some((name, target)) = StoredTarget::read(object, &self.server) else {
                    return;
                };
                let seen = Seen::beside(self.objects().targets.get(&name), target);
                listed.insert(name, seen);
            }
            Listed::Accesses(listed) => {
                let Some((name, access)) = StoredAccess::read(object) else {
                    return;
                };
                let objects = self.objects();
                let known = objects.accesses.get(&name);
                let seen = Seen::beside(known, access.after(known));
                listed.insert(name, seen);
            }
        }
    }

    /// Takes in a whole list; what is not in it is gone.
    pub fn replace_all(&self, listing: Listing) {
        let mut objects = self.objects();
        match listing.0 {
            Listed::Targets(listed) => {
                objects.targets = listing::taken(listed, std::mem::take(&mut objects.targets))
            }
            Listed::Accesses(listed) => {
                objects.accesses = listing::taken(listed, std::mem::take(&mut objects.accesses));
                self.unseen().clear();
            }
        }
        self.tell();
    }

    /// Takes in one object. A change of its status alone concerns nobody.
    pub fn set(&self, collection: Collection, object: &Value) {
        let mut objects = self.objects();
        let same = |known: Option<&Record>, read: &Record| {
            known.is_some_and(|known| known.means_the_same_as(read))
        };
        let unchanged = match collection {
            Collection::TargetClusters => {
                let Some((name, target)) = StoredTarget::read(object, &self.server) else {
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
                let Some((name, access)) = StoredAccess::read(object) else {
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
                    self.unseen().remove(&name);
                }
            }
        }
        self.tell();
    }

    /// Takes in an access as the hub says it stands after a write of this process, so that the next
    /// write does not meet a version that the watch has yet to show; the access, unless it is none.
    /// What the watch has shown of a later version stays.
    pub fn written(&self, object: &Value) -> Option<StoredAccess> {
        let (name, access) = StoredAccess::read(object)?;
        let mut objects = self.objects();
        let known = objects
            .accesses
            .get(&name)
            .filter(|known| known.record.uid == access.record.uid);
        let access = access.after(known);
        // One that the watch has shown to be gone does not come back.
        let versions =
            known.and_then(|known| Some((version(&known.record)?, version(&access.record)?)));
        if let Some((seen, now)) = versions
            && now > seen
        {
            self.unseen().insert(name.clone(), now);
            objects.accesses.insert(name, access.clone());
        }
        Some(access)
    }

    /// What all objects mean together.
    pub fn assemble(&self) -> Assembled {
        self.objects()
            .assemble(&self.server.cluster_resource_namespace)
    }

    /// Told of every change that may mean something.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// An access as last seen.
    pub fn access(&self, name: &AccessName) -> Option<StoredAccess> {
        self.objects().accesses.get(name).cloned()
    }

    /// What `look` makes of each access, those that are being deleted among them. Nothing changes
    /// meanwhile, so it must be quick.
    pub fn each_access<T>(&self, mut look: impl FnMut(&AccessName, &StoredAccess) -> T) -> Vec<T> {
        self.objects()
            .accesses
            .iter()
            .map(|(name, access)| look(name, access))
            .collect()
    }

    /// Whether an assembly has taken in the target of this name as it is there. Just after a list
    /// it has not, and an access must not seem to be refused by it.
    pub fn is_taken_in(&self, target: &ObjectName, policy: &Policy, faults: &Assembled) -> bool {
        let there = self
            .target(target)
            .is_some_and(|record| record.deleting.is_none());
        !there || policy.targets.contains_key(target) || faults.targets.contains_key(target)
    }

    /// What the API says of a target, as last seen.
    pub fn target(&self, name: &ObjectName) -> Option<Record> {
        self.objects()
            .targets
            .get(name)
            .map(|target| target.record.clone())
    }

    /// A target that is being deleted and drains.
    pub fn draining(&self, name: &ObjectName) -> Option<DrainingTarget> {
        self.objects().draining(name)
    }

    /// All of them.
    pub fn all_draining(&self) -> BTreeMap<ObjectName, DrainingTarget> {
        self.objects()
            .targets
            .iter()
            .filter_map(|(name, target)| Some((name.clone(), target.draining()?)))
            .collect()
    }

    /// The accesses of each target of which an object may stand there.
    pub fn users(&self) -> BTreeMap<ObjectName, Vec<AccessName>> {
        let mut users: BTreeMap<ObjectName, Vec<AccessName>> = BTreeMap::new();
        for (name, access) in &self.objects().accesses {
            if let Some(meant) = access
                .meant()
                .filter(|_| access_status::may_have_objects(&access.record.status))
            {
                users
                    .entry(meant.target.clone())
                    .or_default()
                    .push(name.clone());
            }
        }
        users
    }

    /// The names of all targets, those without a part in the policy among them.
    pub fn target_names(&self) -> Vec<ObjectName> {
        self.objects().targets.keys().cloned().collect()
    }

    /// The audiences of all targets, as written.
    pub fn audiences(&self) -> BTreeSet<String> {
        self.objects().audiences()
    }

    fn objects(&self) -> MutexGuard<'_, StoredObjects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch brings what was there before a write of ours once more.
    fn is_older_than_written(&self, name: &AccessName, record: &Record) -> bool {
        let mut unseen = self.unseen();
        let older = unseen
            .get(name)
            .zip(version(record))
            .is_some_and(|(written, shown)| shown < *written);
        if !older {
            unseen.remove(name);
        }
        older
    }

    fn unseen(&self) -> MutexGuard<'_, HashMap<AccessName, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

/// A resourceVersion as a number, by which two of one object are ordered; nothing where a hub
/// writes them otherwise.
fn version(record: &Record) -> Option<u64> {
    record.version.parse().ok()
}

#[cfg(test)]
mod tests;
