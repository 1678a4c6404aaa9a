//! What a change does: the ways that appear and disappear, and the deliveries that break.
//!
//! Two worlds are compared. A way is one subject, one target, the door that the subject opens, and
//! the user that it is at the target with what RBAC there grants. What is not known in either world
//! is never certain to appear or to disappear.

mod report;
mod user_rights;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_kube_rbac::{ObjectId, ObjectKind, RoleKind};

pub use self::report::{
    ObjectLocation, REPORT_SCHEMA, UnjudgedObject, WhatIfDelivery, WhatIfReport, WhatIfWay,
};
use self::user_rights::{ChangedTargets, RightsChange};
use crate::answer::{DoorWay, Judge, Question, WayKey, WayUser, WaysByDoor};
use crate::doubt::Doubt;
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::subject::Subject;
use crate::target_rights::named;
use crate::way::{Hop, Removal};
use crate::world::{ChangedObject, World};

/// How many changed ways are kept.
const MAX_CHANGED_WAYS: usize = 20_000;
/// How many users, rights or objects a changed way names.
const MAX_NAMED: usize = 16;

/// What a change does.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The ways, by subject, target and door.
    pub ways: Vec<WayChange>,
    /// Whether there are more than were kept.
    pub has_more: bool,
    /// The deliveries that break.
    pub broken: Vec<BrokenDelivery>,
}

/// Ways of one subject to one target by one door, which all appear or all disappear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayChange {
    /// The subject.
    pub subject: Subject,
    /// The target; `None` is any.
    pub target: Option<ObjectName>,
    /// The door that the subject opens; `None` is any.
    pub door: Option<u8>,
    /// Whether they appear.
    pub appears: bool,
    /// Whether that is known.
    pub is_certain: bool,
    /// The users at the target.
    pub users: BTreeSet<String>,
    /// What those of the users who could be reached before gain or lose.
    pub rights: BTreeSet<String>,
    /// The steps on the hub of one of them.
    pub way: Vec<Hop>,
    /// What is not known.
    pub doubts: BTreeSet<Doubt>,
    /// The object that opens or closes it, as far as it can be told.
    pub object: Option<ChangedObject>,
}

/// A delivery that policy granted before, and does not grant after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenDelivery {
    /// The access.
    pub access: AccessName,
    /// The name of the delivery.
    pub delivery: String,
    /// Why.
    pub why: String,
    /// Whether it is known that it breaks.
    pub is_certain: bool,
}

/// Whether there is a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayState {
    Yes,
    Unknown,
    No,
}

/// Compares what was read with what is after a change. `changed` has the objects of the change, if
/// they are known.
pub fn compare_worlds(
    before: &World,
    after: &World,
    changed: &[ChangedObject],
    now: Timestamp,
) -> Comparison {
    let question = Question {
        request: None,
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: false,
        now,
    };
    let (policy, new_policy) = (before.hub.policy(), after.hub.policy());
    let search = HubSearch::new(before, &policy);
    let new_search = HubSearch::new(after, &new_policy);
    let pair = ComparedWorlds {
        before: Judge::new(&search, &question),
        after: Judge::new(&new_search, &question),
        worlds: [before, after],
        rights: ChangedTargets::of(before, after),
        changed,
    };
    let mut comparison = Comparison {
        broken: broken_deliveries(&search, &new_search),
        ..Comparison::default()
    };
    let mut of_superusers: Option<Vec<WayChange>> = None;
    for subject in search.subjects().union(&new_search.subjects()) {
        let is_superuser = [&search, &new_search].into_iter().all(|search| {
            let actor = crate::actor::Actor::of_subject(subject);
            search.rights.granted(&actor).is_superuser()
        });
        // Users and groups with every right on the hub have the same ways.
        let is_shared = is_superuser && !matches!(subject, Subject::ServiceAccount(..));
        let ways = match &of_superusers {
            Some(ways) if is_shared => ways.clone(),
            _ => pair.changes_of(subject, !is_superuser),
        };
        if is_shared && of_superusers.is_none() {
            of_superusers = Some(ways.clone());
        }
        let left = MAX_CHANGED_WAYS.saturating_sub(comparison.ways.len());
        comparison.has_more |= ways.len() > left;
        let own = ways.into_iter().take(left).map(|way| WayChange {
            subject: subject.clone(),
            ..way
        });
        comparison.ways.extend(own);
    }
    comparison
}

struct ComparedWorlds<'a, 'w> {
    before: Judge<'a, 'w>,
    after: Judge<'a, 'w>,
    worlds: [&'w World; 2],
    rights: ChangedTargets<'w>,
    changed: &'a [ChangedObject],
}

impl ComparedWorlds<'_, '_> {
    fn changes_of(&self, subject: &Subject, by_door: bool) -> Vec<WayChange> {
        let before = self.before.ways_by_door(subject, by_door);
        let after = self.after.ways_by_door(subject, by_door);
        let mut changes = ChangesOfSubject::new(subject);
        let keys: BTreeSet<&WayKey> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let states = (self.state(0, &before, key), self.state(1, &after, key));
            let is_certain = match states {
                (WayState::No, WayState::Yes) | (WayState::Yes, WayState::No) => true,
                (old, new) if old == new => {
                    self.add_rights(&mut changes, key, &after, states.0);
                    continue;
                }
                _ => false,
            };
            let appears = match states {
                (WayState::No, _) => true,
                (_, WayState::No) => false,
                // It may have been there, or may still be.
                (old, _) => old == WayState::Unknown,
            };
            // A perhaps that ends takes nothing away.
            if !appears && states.0 == WayState::Unknown && !before.contains_key(key) {
                continue;
            }
            let way = if appears {
                after.get(key)
            } else {
                before.get(key)
            };
            let way = way.or_else(|| before.get(key)).or_else(|| after.get(key));
            let change = changes.entry(key, appears, is_certain);
            change.add(key, way, &[before.get(key), after.get(key)]);
            if !is_certain {
                self.add_rights(&mut changes, key, &after, WayState::Unknown);
            }
        }
        changes.finish(|way| self.object_of(way))
    }

    /// Adds what the user of a way that stays gains and loses at its target.
    fn add_rights(
        &self,
        changes: &mut ChangesOfSubject<'_>,
        key: &WayKey,
        after: &WaysByDoor,
        state: WayState,
    ) {
        let Some(target) = &key.target else { return };
        for (appears, change) in self.rights.changes_of(target, &key.user) {
            let RightsChange { rights, doubts } = change;
            if rights.is_empty() && doubts.is_empty() {
                continue;
            }
            let is_certain = state == WayState::Yes && doubts.is_empty();
            let entry = changes.entry(key, appears, is_certain);
            entry.add(key, after.get(key), &[]);
            entry.rights.extend(rights);
            entry.doubts.extend(doubts);
        }
    }

    /// Whether a world has a way. What is perhaps any door, target or user is perhaps this one.
    fn state(&self, index: usize, ways: &WaysByDoor, key: &WayKey) -> WayState {
        if ways.get(key).is_some_and(|way| way.doubts.is_empty()) {
            return WayState::Yes;
        }
        let is_doubted = ways
            .iter()
            .any(|(own, way)| !way.doubts.is_empty() && own.covers(key));
        let hub = self.worlds.get(index).map(|world| &world.hub);
        let is_target_unread = key.target.as_ref().is_some_and(|target| {
            hub.is_some_and(|hub| {
                !hub.lists.is_whole(ListKind::TargetClusters)
                    && !hub.target_names().any(|name| name == target)
            })
        });
        match is_doubted || is_target_unread {
            true => WayState::Unknown,
            false => WayState::No,
        }
    }

    /// The object that opens a way: one of the change that is a step of it, else one that counts
    /// where the way changes.
    fn object_of(&self, way: &WayChange) -> Option<ChangedObject> {
        let steps: Vec<ChangedObject> = way
            .way
            .iter()
            .filter_map(|hop| hop.removal.as_ref())
            .flat_map(|removal| self.objects_of_step(removal))
            .collect();
        if self.changed.is_empty() {
            return steps.into_iter().next();
        }
        let is_of_target = |object: &&ChangedObject| {
            object.target == way.target
                || (object.target.is_none()
                    && object.kind == ListKind::TargetClusters.object_kind()
                    && way
                        .target
                        .as_ref()
                        .is_some_and(|it| it.as_str() == object.name))
        };
        let at_target = || self.changed.iter().find(is_of_target);
        let on_way = || steps.iter().find(|step| self.changed.contains(step));
        let object = match way.rights.is_empty() {
            true => on_way().or_else(at_target),
            false => at_target().or_else(on_way),
        };
        object.or_else(|| self.changed.first()).cloned()
    }

    /// The objects that make a step: a binding and its role, or an access.
    fn objects_of_step(&self, removal: &Removal) -> Vec<ChangedObject> {
        let object = |target: &Option<ObjectName>, id: &ObjectId| ChangedObject {
            target: target.clone(),
            kind: id.kind.name().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        };
        match removal {
            Removal::Access(name) => vec![ChangedObject {
                target: None,
                kind: ListKind::TargetAccesses.object_kind().to_owned(),
                namespace: name.namespace.to_string(),
                name: name.name.to_string(),
            }],
            Removal::Binding(target, id) => {
                let bindings = self.worlds.iter().rev();
                let binding = bindings.filter_map(|world| match target {
                    None => world.hub.rbac.binding(id),
                    Some(target) => world.targets.get(target)?.rbac.binding(id),
                });
                let role = binding.take(1).filter_map(|binding| {
                    let name = &binding.role_ref.name;
                    match binding.role_ref.kind {
                        RoleKind::Role => {
                            Some(ObjectId::namespaced(ObjectKind::Role, &id.namespace, name))
                        }
                        RoleKind::ClusterRole => {
                            Some(ObjectId::cluster_wide(ObjectKind::ClusterRole, name))
                        }
                        RoleKind::Unsupported(_) => None,
                    }
                });
                let ids = std::iter::once(id.clone()).chain(role);
                ids.map(|id| object(target, &id)).collect()
            }
        }
    }
}

/// The changed ways of one subject, grouped.
struct ChangesOfSubject<'a> {
    subject: &'a Subject,
    groups: BTreeMap<(Option<ObjectName>, Option<u8>, bool, bool), WayChange>,
}

impl<'a> ChangesOfSubject<'a> {
    fn new(subject: &'a Subject) -> Self {
        Self {
            subject,
            groups: BTreeMap::new(),
        }
    }

    fn entry(&mut self, key: &WayKey, appears: bool, is_certain: bool) -> &mut WayChange {
        let group = (key.target.clone(), key.door, !appears, !is_certain);
        self.groups.entry(group).or_insert_with(|| WayChange {
            subject: self.subject.clone(),
            target: key.target.clone(),
            door: key.door,
            appears,
            is_certain,
            users: BTreeSet::new(),
            rights: BTreeSet::new(),
            way: Vec::new(),
            doubts: BTreeSet::new(),
            object: None,
        })
    }

    fn finish(self, object_of: impl Fn(&WayChange) -> Option<ChangedObject>) -> Vec<WayChange> {
        let mut ways: Vec<WayChange> = self.groups.into_values().collect();
        for way in &mut ways {
            way.object = object_of(way);
            way.users = std::mem::take(&mut way.users)
                .into_iter()
                .take(MAX_NAMED)
                .collect();
            way.rights = std::mem::take(&mut way.rights)
                .into_iter()
                .take(MAX_NAMED)
                .collect();
            way.doubts = std::mem::take(&mut way.doubts)
                .into_iter()
                .take(MAX_NAMED)
                .collect();
        }
        ways
    }
}

impl WayChange {
    fn add(&mut self, key: &WayKey, way: Option<&DoorWay>, doubted: &[Option<&DoorWay>]) {
        self.users.extend(match &key.user {
            WayUser::Any | WayUser::AfterAct(_) => None,
            WayUser::OfAccount(account) => Some(format!("the unknown user of {account}")),
            WayUser::User(user) => Some(named(user)),
        });
        if let Some(way) = way.filter(|_| self.way.is_empty()) {
            self.way.clone_from(&way.hops);
        }
        if !self.is_certain {
            let doubts = doubted.iter().flatten().flat_map(|way| &way.doubts);
            self.doubts.extend(doubts.cloned());
        }
    }
}

/// What policy granted before and does not grant after.
fn broken_deliveries(before: &HubSearch<'_>, after: &HubSearch<'_>) -> Vec<BrokenDelivery> {
    let grants = after.delivery_grants();
    let lists = &after.world.hub.lists;
    let mut broken = Vec::new();
    for (key, grant) in before.delivery_grants() {
        let Ok(doubts) = grant.terms else { continue };
        let (access, delivery) = &key;
        let is_listed = lists.is_whole_in(ListKind::TargetAccesses, access.namespace.as_str())
            && lists.is_whole(ListKind::TargetClusters);
        let (why, is_known) = match grants.get(&key).map(|grant| &grant.terms) {
            Some(Ok(new)) if new.iter().all(|doubt| doubts.contains(doubt)) => continue,
            Some(Ok(new)) => {
                let texts: Vec<String> = new.iter().map(Doubt::description).collect();
                (texts.join("; "), false)
            }
            Some(Err(why)) => (why.clone(), is_listed),
            None => ("policy has no such delivery".to_owned(), is_listed),
        };
        broken.push(BrokenDelivery {
            access: access.clone(),
            delivery: delivery.clone(),
            why,
            is_certain: is_known && doubts.is_empty(),
        });
    }
    broken
}
