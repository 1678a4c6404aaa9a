//! TargetClusters and TargetAccesses on the hub, and the policy that they form together.
//!
//! A mistake in one object removes only that object from the policy.

mod access_limit;
mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::cross_checks::CrossChecks;
use super::document::{Document, HubObject};
use super::mistake::Mistake;
use super::reduced::{
    Finalizers, MAX_ACCESS_SPEC_BYTES, MAX_KEPT_BYTES, ObjectSize, ReducedObject, requested_at,
};
use super::server::ServerConfiguration;
use super::{DeletionPolicy, Generation, Policy, TargetAccess, TargetCluster, access, target};
use crate::lifetime;
use crate::name::{AccessName, Namespace, ObjectName};
use crate::reason::Reason;
use crate::service_account::Uid;

pub use access_limit::MAX_ACCESSES;

/// What the API reports of an object besides its spec. Its size is bounded, whatever others write
/// into the object's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its UID.
    pub uid: Uid,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.resourceVersion`, as a precondition of writes to exactly this version.
    pub version: String,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `metadata.deletionTimestamp`, if it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Finalizers,
    /// The annotation `keyferry.dev/requestedAt`.
    pub requested_at: Option<String>,
    /// Its current status; null if it is too large.
    pub status: Value,
    /// Whether its spec and status are kept.
    pub size: ObjectSize,
}

/// A TargetCluster of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTarget {
    /// Its metadata and status from the API.
    pub record: Record,
    /// Its audience as written. It counts against other targets even while the rest of the spec is
    /// invalid.
    audience: String,
    /// `sameAs` and `role` as written, for the same reason.
    written_role: Option<(String, String)>,
    /// The checked spec. A role has not taken over yet what its base has.
    read: Result<TargetCluster, Vec<Mistake>>,
}

/// A TargetAccess of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAccess {
    /// Its metadata and status from the API.
    pub record: Record,
    /// The checked spec, or its mistakes.
    pub read: Result<TargetAccess, Vec<Mistake>>,
    /// The last valid spec, if the current one has mistakes and the valid one was seen.
    pub before: Option<Arc<TargetAccess>>,
}

/// Why an object is excluded from the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFault {
    /// The stable reason code.
    pub reason: Reason,
    /// The text for readers of the object.
    pub message: String,
    /// The generation of the spec that has the fault; the fault applies to no other spec.
    pub generation: Generation,
}

/// All objects of the hub.
#[derive(Clone, Debug, Default)]
pub struct StoredObjects {
    /// The TargetClusters by name.
    pub targets: BTreeMap<ObjectName, StoredTarget>,
    /// The TargetAccesses by namespace and name.
    pub accesses: BTreeMap<AccessName, StoredAccess>,
    /// The targets that lost their audience to another one, by UID and generation. A spec that lost
    /// its audience never gets it back.
    lost: BTreeSet<(Uid, i64)>,
}

impl Record {
    /// Whether another version of the object is equal for the policy. Annotations and finalizers
    /// are ignored: others may change them often, and each change would rebuild the policy for all
    /// tenants.
    pub fn means_the_same_as(&self, other: &Self) -> bool {
        (&self.uid, self.generation, self.deleting, self.size)
            == (&other.uid, other.generation, other.deleting, other.size)
    }

    pub(super) fn of(object: &Value) -> Option<Self> {
        let finalizers = Finalizers::of(object.get("metadata")?);
        Self::with(object, finalizers, ObjectSize::Kept)
    }

    fn of_reduced(object: &ReducedObject) -> Option<Self> {
        Self::with(&object.value, object.finalizers, object.size)
    }

    fn with(object: &Value, finalizers: Finalizers, size: ObjectSize) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        Some(Self {
            uid: Uid::new(text("uid")?).ok()?,
            generation: metadata
                .get("generation")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            version: text("resourceVersion")?.to_owned(),
            created: text("creationTimestamp")?.parse().ok()?,
            deleting: text("deletionTimestamp")
                .map(|at| at.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
            finalizers,
            requested_at: metadata
                .pointer("/annotations/keyferry.dev~1requestedAt")
                .and_then(Value::as_str)
                .map(requested_at),
            status: match size {
                ObjectSize::StatusTooLarge => Value::Null,
                _ => object.get("status").cloned().unwrap_or_default(),
            },
            size,
        })
    }

    /// Returns the checked spec if the object was kept whole. A too large one grants nothing, even
    /// if what is left of it has no mistake.
    fn kept<T>(&self, spec: T) -> Result<T, Vec<Mistake>> {
        match self.size {
            ObjectSize::Kept => Ok(spec),
            ObjectSize::SpecTooLarge | ObjectSize::StatusTooLarge => Err(Vec::new()),
        }
    }

    /// The generation of its spec, as policy and faults use it.
    pub fn spec(&self) -> Generation {
        Generation::of_object(&self.uid, self.generation)
    }

    fn document(&self, object: &Value) -> Document {
        let hub = HubObject {
            uid: self.uid.clone(),
            generation: self.spec(),
        };
        Document::of_hub(object.clone(), hub)
    }
}

impl StoredTarget {
    /// Reads an object with the settings of this process; `None` if it is not an object of the API.
    pub fn read(object: &Value, server: &ServerConfiguration) -> Option<(ObjectName, Self)> {
        Self::with(Record::of(object)?, object, server)
    }

    /// As [`StoredTarget::read`], for a reduced object.
    pub fn read_reduced(
        object: &ReducedObject,
        server: &ServerConfiguration,
    ) -> Option<(ObjectName, Self)> {
        Self::with(Record::of_reduced(object)?, &object.value, server)
    }

    fn with(
        record: Record,
        object: &Value,
        server: &ServerConfiguration,
    ) -> Option<(ObjectName, Self)> {
        let document = record.document(object);
        let name = ObjectName::new(document.text("/metadata/name")).ok()?;
        let mut mistakes = Vec::new();
        let target = target::read_target(&document, &mut mistakes);
        CrossChecks::new(server.caller_audience.as_str(), Some(server)).check_target(
            &document,
            target.as_ref(),
            &mut mistakes,
        );
        let audience = document.text("/spec/audience").to_owned();
        let written_role = roles::written_role(&document);
        let read = without_mistakes(target, mistakes);
        let read = read.and_then(|target| record.kept(target));
        Some((
            name,
            Self {
                record,
                audience,
                written_role,
                read,
            },
        ))
    }

    /// The draining target, if it is being deleted and drains.
    pub fn draining(&self) -> Option<DrainingTarget> {
        let since = self
            .record
            .deleting
            .filter(|_| self.record.finalizers.ours)?;
        let target = self
            .read
            .as_ref()
            .ok()
            .filter(|target| target.deletion_policy == DeletionPolicy::Drain)?;
        Some(DrainingTarget {
            target: target.clone(),
            since,
        })
    }

    /// The checked spec; `None` if it has mistakes. A role is without what its base has.
    pub fn meant(&self) -> Option<&TargetCluster> {
        self.read.as_ref().ok()
    }

    /// Reads a target without the server's settings, for example for a command that compares its
    /// address. A role is without what its base has: see [`TargetCluster::at_base`].
    pub fn read_alone(object: &Value) -> Option<TargetCluster> {
        let document = Record::of(object)?.document(object);
        let mut mistakes = Vec::new();
        let target = target::read_target(&document, &mut mistakes);
        without_mistakes(target, mistakes).ok()
    }

    /// The sort key for an audience conflict: the older target keeps the audience.
    fn seniority(&self) -> (Timestamp, &Uid) {
        (self.record.created, &self.record.uid)
    }

    /// Whether its status says that this generation of the spec lost its audience to another
    /// target.
    fn has_lost(&self) -> bool {
        let conditions = self
            .record
            .status
            .get("conditions")
            .and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            let is = |field: &str, text: &str| {
                condition.get(field).and_then(Value::as_str) == Some(text)
            };
            let generation = condition.get("observedGeneration").and_then(Value::as_i64);
            is("type", "AudienceConflict")
                && is("status", "True")
                && generation == Some(self.record.generation)
        })
    }
}

impl StoredAccess {
    /// Reads an object; `None` if it is not an object of the API.
    pub fn read(object: &Value) -> Option<(AccessName, Self)> {
        Self::with(Record::of(object)?, object)
    }

    /// As [`StoredAccess::read`], for a reduced object.
    pub fn read_reduced(object: &ReducedObject) -> Option<(AccessName, Self)> {
        Self::with(Record::of_reduced(object)?, &object.value)
    }

    fn with(record: Record, object: &Value) -> Option<(AccessName, Self)> {
        let document = record.document(object);
        let namespace = Namespace::new(document.text("/metadata/namespace")).ok()?;
        let name = AccessName {
            namespace,
            name: ObjectName::new(document.text("/metadata/name")).ok()?,
        };
        let mut mistakes = Vec::new();
        let access = access::read_access(&document, &mut mistakes);
        let read = without_mistakes(access, mistakes);
        let read = read.and_then(|access| record.kept(access));
        Some((
            name,
            Self {
                record,
                read,
                before: None,
            },
        ))
    }

    /// Keeps the last valid spec of the object's previous version if this one has mistakes: its
    /// delivered objects were still written from that spec.
    #[must_use]
    pub fn after(mut self, known: Option<&Self>) -> Self {
        let known = known.filter(|known| self.read.is_err() && known.record.uid == self.record.uid);
        self.before = known.and_then(|known| {
            known.meant().map(|access| {
                known
                    .before
                    .clone()
                    .unwrap_or_else(|| Arc::new(access.clone()))
            })
        });
        self
    }

    /// The checked spec, or the last valid one.
    pub fn meant(&self) -> Option<&TargetAccess> {
        self.read.as_ref().ok().or(self.before.as_deref())
    }
}

/// A TargetCluster that is being deleted and stays until everything delivered for it has expired.
/// It is not in the policy: nothing is minted or refreshed for it. Its `allow[]` still decides
/// which delivered objects may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingTarget {
    /// The checked spec.
    pub target: TargetCluster,
    /// When it was deleted.
    pub since: Timestamp,
}

impl DrainingTarget {
    /// When everything delivered for it must have been removed, whichever accesses use it: no token
    /// minted before the deletion lives longer.
    pub fn ends(&self) -> Timestamp {
        self.since
            .saturating_add(lifetime::MAX)
            .unwrap_or(self.since)
    }
}

/// The policy made of all objects, and the objects excluded from it.
#[derive(Clone, Debug, Default)]
pub struct Assembled {
    /// The policy.
    pub policy: Policy,
    /// The targets excluded from the policy, each with its fault.
    pub targets: BTreeMap<ObjectName, ObjectFault>,
    /// The accesses excluded from the policy, each with its fault.
    pub accesses: BTreeMap<AccessName, ObjectFault>,
}

impl StoredObjects {
    /// Builds the policy, with the faults of the excluded objects. An object that is being deleted
    /// is excluded without a fault.
    pub fn assemble(&mut self, own_namespace: &Namespace) -> Assembled {
        let mut assembled = Assembled::default();
        assembled.policy.own_namespace = Some(own_namespace.clone());
        self.assemble_targets(&mut assembled);
        self.assemble_roles(&mut assembled);
        self.assemble_accesses(&mut assembled);
        assembled
    }

    fn assemble_targets(&mut self, assembled: &mut Assembled) {
        let owners = self.owners(|target| Some(target.audience.as_str()));
        let role_owners = self.owners(|target| target.written_role.as_ref());
        let mut newly_lost = Vec::new();
        for (name, target) in self
            .targets
            .iter()
            .filter(|(_, target)| target.record.deleting.is_none())
        {
            let generation = (target.record.uid.clone(), target.record.generation);
            let is_owner = owners.get(target.audience.as_str()) == Some(&name);
            let has_role = target
                .written_role
                .as_ref()
                .is_none_or(|role| role_owners.get(role) == Some(&name));
            let fault = match &target.read {
                Err(mistakes) => invalid(mistakes, &target.record, MAX_KEPT_BYTES),
                // Does not name the other target: readers of this one may not be allowed to learn
                // of it.
                Ok(_) if !is_owner => {
                    newly_lost.push(generation);
                    lost("an older TargetCluster has this audience", &target.record)
                }
                Ok(_) if target.has_lost() || self.lost.contains(&generation) => {
                    lost("another TargetCluster had this audience", &target.record)
                }
                Ok(_) if !has_role => roles::conflict(&target.record),
                Ok(target) => {
                    assembled
                        .policy
                        .targets
                        .insert(name.clone(), target.clone());
                    continue;
                }
            };
            assembled.targets.insert(name.clone(), fault);
        }
        self.lost.extend(newly_lost);
        let targets = &self.targets;
        self.lost.retain(|(uid, generation)| {
            targets
                .values()
                .any(|target| target.record.uid == *uid && target.record.generation == *generation)
        });
    }

    fn assemble_accesses(&self, assembled: &mut Assembled) {
        let surplus = access_limit::surplus(&self.accesses);
        for (name, stored) in self
            .accesses
            .iter()
            .filter(|(_, access)| access.record.deleting.is_none())
        {
            let fault = match &stored.read {
                Ok(access) if surplus.contains(name) => {
                    access_limit::fault(&access.target, &stored.record)
                }
                Ok(access) => {
                    assembled
                        .policy
                        .accesses
                        .insert(name.clone(), access.clone());
                    continue;
                }
                Err(mistakes) => invalid(mistakes, &stored.record, MAX_ACCESS_SPEC_BYTES),
            };
            assembled.accesses.insert(name.clone(), fault);
        }
    }

    /// A target that is being deleted and drains; `None` if it must be removed at once, or cannot
    /// be read.
    pub fn draining(&self, name: &ObjectName) -> Option<DrainingTarget> {
        let mut draining = self.targets.get(name)?.draining()?;
        draining.target = self.target_spec(name)?;
        Some(draining)
    }

    /// The checked spec of a target, also of one that is not in the policy; a role with what its
    /// base has. `None` if it has mistakes.
    pub fn target_spec(&self, name: &ObjectName) -> Option<TargetCluster> {
        let target = self.targets.get(name)?.meant()?;
        let role = target.role.as_ref();
        let base = role.and_then(|role| self.targets.get(&role.same_as)?.meant());
        Some(base.map_or_else(|| target.clone(), |base| target.at_base(base)))
    }

    /// The audiences of all targets, as written. A target that is being deleted counts only while
    /// it drains, which ends within a day. Otherwise a finalizer of another controller could
    /// reserve an audience for ever. An object without finalizers frees its audience at once too.
    pub fn audiences(&self) -> BTreeSet<String> {
        let there = self
            .targets
            .values()
            .filter(|target| target.record.deleting.is_none() || target.draining().is_some());
        there
            .map(|target| target.audience.clone())
            .filter(|audience| !audience.is_empty())
            .collect()
    }

    /// The owner of each audience or role: the oldest target that is not being deleted.
    fn owners<'a, K: Ord + ?Sized>(
        &'a self,
        key: impl Fn(&'a StoredTarget) -> Option<&'a K>,
    ) -> BTreeMap<&'a K, &'a ObjectName> {
        let mut owners: BTreeMap<&K, (&ObjectName, &StoredTarget)> = BTreeMap::new();
        for (name, target) in self
            .targets
            .iter()
            .filter(|(_, target)| target.record.deleting.is_none())
        {
            let Some(key) = key(target) else { continue };
            let owner = owners.entry(key).or_insert((name, target));
            if target.seniority() < owner.1.seniority() {
                *owner = (name, target);
            }
        }
        owners
            .into_iter()
            .map(|(key, (name, _))| (key, name))
            .collect()
    }
}

/// Returns the checked spec, or why it cannot be used.
fn without_mistakes<T>(spec: Option<T>, mistakes: Vec<Mistake>) -> Result<T, Vec<Mistake>> {
    spec.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

fn invalid(mistakes: &[Mistake], record: &Record, max_spec: usize) -> ObjectFault {
    let (reason, message) = match record.size {
        ObjectSize::Kept => (Reason::SpecInvalid, message_of(mistakes)),
        ObjectSize::SpecTooLarge => (Reason::ObjectTooLarge, too_large("spec", max_spec)),
        ObjectSize::StatusTooLarge => (Reason::ObjectTooLarge, too_large("status", MAX_KEPT_BYTES)),
    };
    ObjectFault {
        reason,
        message,
        generation: record.spec(),
    }
}

fn too_large(member: &str, bytes: usize) -> String {
    format!(
        "its {member} needs more than {bytes} bytes of memory, so nothing is granted by \
         it; make it smaller"
    )
}

fn lost(why: &str, record: &Record) -> ObjectFault {
    let fix = "nothing is minted for this one until it is deleted and recreated, or its spec \
        changes once the audience is free";
    ObjectFault {
        reason: Reason::AudienceConflict,
        message: format!("{why}; {fix}"),
        generation: record.spec(),
    }
}

/// Joins the first eight mistakes into one line for a condition.
fn message_of(mistakes: &[Mistake]) -> String {
    let each = mistakes
        .iter()
        .take(8)
        .map(|mistake| format!("{}: {}; {}", mistake.path, mistake.problem, mistake.fix));
    let text = each.collect::<Vec<_>>().join(". ");
    text.chars().take(2000).collect()
}

#[cfg(test)]
mod tests;
