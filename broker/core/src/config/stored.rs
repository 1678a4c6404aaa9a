//! TargetClusters and TargetAccesses as they stand on the hub, and the policy that all of them
//! together make.
//!
//! One object's mistake takes that object out of the policy and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::document::{Document, HubObject};
use super::mistake::Mistake;
use super::server::ServerConfiguration;
use super::{DeletionPolicy, Generation, Policy, TargetAccess, TargetCluster, access, target};
use crate::foreign_text;
use crate::lifetime;
use crate::name::{AccessName, Namespace, ObjectName};
use crate::reason::Reason;
use crate::service_account::Uid;

/// The finalizer by which Keyferry keeps an object that is deleted, until what was delivered by it
/// may go.
pub const FINALIZER: &str = "keyferry.dev/drain";

/// The finalizers of an object, as far as decisions need them. Others may add as many and as long
/// ones as the API takes, so none is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finalizers {
    /// Whether Keyferry's own is among them.
    pub ours: bool,
    /// A hash of the others in their order; 0 where there are none.
    pub others: u64,
}

/// What the API says of an object beside its spec. Its size is bounded whatever others write into
/// the object's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its UID.
    pub uid: Uid,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.resourceVersion`, for writes that are to meet this very object.
    pub version: String,
    /// When it was made.
    pub created: Timestamp,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Finalizers,
    /// The annotation `keyferry.dev/requestedAt`.
    pub requested_at: Option<String>,
    /// Its status as it stands.
    pub status: Value,
}

/// A TargetCluster of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTarget {
    /// What the API says of it.
    pub record: Record,
    /// Its audience as written, which nobody else may have even while the rest cannot be read.
    audience: String,
    read: Result<TargetCluster, Vec<Mistake>>,
}

/// A TargetAccess of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAccess {
    /// What the API says of it.
    pub record: Record,
    /// What it means, or its mistakes.
    pub read: Result<TargetAccess, Vec<Mistake>>,
    /// What it meant when it last had no mistake, where it has one now and that was seen.
    pub before: Option<Arc<TargetAccess>>,
}

/// Why an object has no part in the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The stable code.
    pub reason: Reason,
    /// For whoever reads the object.
    pub message: String,
    /// The spec that this was found of; it says nothing about another one.
    pub generation: Generation,
}

/// All objects of the hub.
#[derive(Clone, Debug, Default)]
pub struct StoredObjects {
    /// By name.
    pub targets: BTreeMap<ObjectName, StoredTarget>,
    /// By namespace and name.
    pub accesses: BTreeMap<AccessName, StoredAccess>,
    /// Who lost an audience to another, by UID and generation: a spec that lost stays without it.
    lost: BTreeSet<(Uid, i64)>,
}

impl Record {
    /// Whether another reading of the object means the same for the policy. Annotations and
    /// finalizers do not count: their writers may be many and quick, and the policy is made anew
    /// for everybody.
    pub fn means_the_same_as(&self, other: &Self) -> bool {
        (&self.uid, self.generation, self.deleting)
            == (&other.uid, other.generation, other.deleting)
    }

    fn of(object: &Value) -> Option<Self> {
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
            finalizers: Finalizers::of(metadata),
            requested_at: metadata
                .pointer("/annotations/keyferry.dev~1requestedAt")
                .and_then(Value::as_str)
                .map(short),
            status: object.get("status").cloned().unwrap_or_default(),
        })
    }

    /// The spec that it has, as policy and faults name it.
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

impl Finalizers {
    fn of(metadata: &Value) -> Self {
        let listed = metadata
            .get("finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let (mut found, mut hasher) = (Self::default(), DefaultHasher::new());
        for finalizer in listed {
            if finalizer == FINALIZER {
                found.ours = true;
            } else {
                finalizer.hash(&mut hasher);
                // The set bit tells one from none.
                found.others = hasher.finish() | 1;
            }
        }
        found
    }
}

impl StoredTarget {
    /// Reads an object under the settings of this process; nothing if it is no object of the API.
    pub fn read(object: &Value, server: &ServerConfiguration) -> Option<(ObjectName, Self)> {
        let record = Record::of(object)?;
        let documents = [record.document(object)];
        let [document] = &documents;
        let name = ObjectName::new(document.text("/metadata/name")).ok()?;
        let (mut policy, mut mistakes) = (Policy::default(), Vec::new());
        target::read(document, &mut policy, &mut mistakes);
        target::check_audiences(&documents, server.caller_audience.as_str(), &mut mistakes);
        target::check_issuers(&documents, Some(server), &mut mistakes);
        if mistakes.is_empty() {
            target::leave_room(&documents, &policy, server.max_age, &mut mistakes);
        }
        let audience = document.text("/spec/audience").to_owned();
        let read = policy
            .targets
            .remove(&name)
            .filter(|_| mistakes.is_empty())
            .ok_or(mistakes);
        Some((
            name,
            Self {
                record,
                audience,
                read,
            },
        ))
    }

    /// What it is while it drains.
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

    /// What it means; nothing if it has mistakes.
    pub fn meant(&self) -> Option<&TargetCluster> {
        self.read.as_ref().ok()
    }

    /// What an object says of its target, for a reader without the server's settings, such as a
    /// command that compares an address with it.
    pub fn read_alone(object: &Value) -> Option<TargetCluster> {
        let document = Record::of(object)?.document(object);
        let (mut policy, mut mistakes) = (Policy::default(), Vec::new());
        target::read(&document, &mut policy, &mut mistakes);
        let name = ObjectName::new(document.text("/metadata/name")).ok()?;
        policy.targets.remove(&name).filter(|_| mistakes.is_empty())
    }

    /// The older of two keeps an audience.
    fn seniority(&self) -> (Timestamp, &Uid) {
        (self.record.created, &self.record.uid)
    }

    /// Whether its status says that this very spec has lost its audience to another target.
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
    /// Reads an object; nothing if it is no object of the API.
    pub fn read(object: &Value) -> Option<(AccessName, Self)> {
        let record = Record::of(object)?;
        let document = record.document(object);
        let namespace = Namespace::new(document.text("/metadata/namespace")).ok()?;
        let name = AccessName {
            namespace,
            name: ObjectName::new(document.text("/metadata/name")).ok()?,
        };
        let (mut policy, mut mistakes) = (Policy::default(), Vec::new());
        access::read(&document, &mut policy, &mut mistakes);
        let read = policy
            .accesses
            .remove(&name)
            .filter(|_| mistakes.is_empty())
            .ok_or(mistakes);
        Some((
            name,
            Self {
                record,
                read,
                before: None,
            },
        ))
    }

    /// The same, after what was known of the object: what it meant before a mistake is still what
    /// its objects were written by.
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

    /// What it means, or meant when it last had no mistake.
    pub fn meant(&self) -> Option<&TargetAccess> {
        self.read.as_ref().ok().or(self.before.as_deref())
    }
}

/// A TargetCluster that is being deleted and stays until what was delivered for it has ended. It
/// has no part in the policy: nothing is minted or refreshed for it. Its `allow[]` still decides
/// whose objects may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingTarget {
    /// What it means.
    pub target: TargetCluster,
    /// When it was deleted.
    pub since: Timestamp,
}

impl DrainingTarget {
    /// When nothing that was delivered for it may stay any longer, whoever uses it: no token that
    /// was minted before lives longer.
    pub fn ends(&self) -> Timestamp {
        self.since
            .saturating_add(lifetime::MAX)
            .unwrap_or(self.since)
    }
}

/// What all objects together mean.
#[derive(Clone, Debug, Default)]
pub struct Assembled {
    /// The policy.
    pub policy: Policy,
    /// The targets that have no part in it.
    pub targets: BTreeMap<ObjectName, Fault>,
    /// The accesses that have no part in it.
    pub accesses: BTreeMap<AccessName, Fault>,
}

impl StoredObjects {
    /// The policy, and what stays out of it. An object that is being deleted has no part in it, and
    /// no fault.
    pub fn assemble(&mut self, own_namespace: &Namespace) -> Assembled {
        let mut assembled = Assembled::default();
        assembled.policy.own_namespace = Some(own_namespace.clone());
        let owners = self.owners();
        for (name, target) in self
            .targets
            .iter()
            .filter(|(_, target)| target.record.deleting.is_none())
        {
            let generation = (target.record.uid.clone(), target.record.generation);
            let owner = owners.get(&target.audience).filter(|owner| *owner != name);
            let fault = match (&target.read, owner) {
                (Err(mistakes), _) => invalid(mistakes, &target.record),
                // Not which one: whoever reads this target need not be allowed to learn of the
                // other.
                (Ok(_), Some(_)) => {
                    self.lost.insert(generation);
                    lost("an older TargetCluster has this audience", &target.record)
                }
                (Ok(_), None) if target.has_lost() || self.lost.contains(&generation) => {
                    lost("another TargetCluster had this audience", &target.record)
                }
                (Ok(target), None) => {
                    assembled
                        .policy
                        .targets
                        .insert(name.clone(), target.clone());
                    continue;
                }
            };
            assembled.targets.insert(name.clone(), fault);
        }
        let targets = &self.targets;
        self.lost.retain(|(uid, generation)| {
            targets
                .values()
                .any(|target| target.record.uid == *uid && target.record.generation == *generation)
        });
        for (name, access) in self
            .accesses
            .iter()
            .filter(|(_, access)| access.record.deleting.is_none())
        {
            match &access.read {
                Ok(access) => drop(
                    assembled
                        .policy
                        .accesses
                        .insert(name.clone(), access.clone()),
                ),
                Err(mistakes) => {
                    assembled
                        .accesses
                        .insert(name.clone(), invalid(mistakes, &access.record));
                }
            }
        }
        assembled
    }

    /// A target that is being deleted and drains; nothing if it is to go at once, or cannot be
    /// read.
    pub fn draining(&self, name: &ObjectName) -> Option<DrainingTarget> {
        self.targets.get(name)?.draining()
    }

    /// The audiences of all targets, as written; of those that are being deleted only while they
    /// drain, which ends within a day. A finalizer of somebody else could hold an audience for
    /// ever, and an object without finalizers leaves just as suddenly.
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

    /// Who has each audience: the oldest that is not being deleted.
    fn owners(&self) -> BTreeMap<String, ObjectName> {
        let mut owners: BTreeMap<String, (&ObjectName, &StoredTarget)> = BTreeMap::new();
        for (name, target) in self
            .targets
            .iter()
            .filter(|(_, target)| target.record.deleting.is_none())
        {
            let owner = owners
                .entry(target.audience.clone())
                .or_insert((name, target));
            if target.seniority() < owner.1.seniority() {
                *owner = (name, target);
            }
        }
        owners
            .into_iter()
            .map(|(audience, (name, _))| (audience, name.clone()))
            .collect()
    }
}

/// An annotation can hold 256 KiB, and this one is written into the status.
fn short(text: &str) -> String {
    // Cut before: who waits for its own text to be echoed gets no mark of a cut in it.
    foreign_text::one_line(&text.chars().take(128).collect::<String>(), 128)
}

fn invalid(mistakes: &[Mistake], record: &Record) -> Fault {
    Fault {
        reason: Reason::SpecInvalid,
        message: told(mistakes),
        generation: record.spec(),
    }
}

fn lost(why: &str, record: &Record) -> Fault {
    let fix = "nothing is minted for this one until it is deleted and made anew, or its spec \
        changes once the audience is free";
    Fault {
        reason: Reason::AudienceConflict,
        message: format!("{why}; {fix}"),
        generation: record.spec(),
    }
}

/// Every mistake in one line, as a condition can hold it.
fn told(mistakes: &[Mistake]) -> String {
    let each = mistakes
        .iter()
        .take(8)
        .map(|mistake| format!("{}: {}; {}", mistake.path, mistake.problem, mistake.fix));
    let text = each.collect::<Vec<_>>().join(". ");
    text.chars().take(2000).collect()
}

#[cfg(test)]
mod tests;
