//! The users at targets that a subject can be, by the door that it opens itself.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use keyferry_api::name::ObjectName;

use super::{Arrivals, Judge, Outcome};
use crate::act::Act;
use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::hub_search::{Closure, Node};
use crate::subject::Subject;
use crate::way::Hop;

/// One user at one target by one door. Without a door or a target, any of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WayKey {
    pub(crate) door: Option<u8>,
    pub(crate) target: Option<ObjectName>,
    pub(crate) user: WayUser,
}

/// A user at a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WayUser {
    /// Perhaps any.
    Any,
    /// Whom the target makes of tokens of this account, which is not known.
    OfAccount(String),
    /// This one.
    User(Rc<Actor>),
    /// Whom the subject lets in by this act. What follows from acts is not compared.
    AfterAct(Act),
}

impl WayKey {
    /// Whether what is perhaps this way is perhaps the other one. A token of one account is not
    /// that of another one, so a target that was not read does not hide a new account.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let covers_user = match (&self.user, &other.user) {
            (WayUser::Any, WayUser::AfterAct(_)) => false,
            (WayUser::Any, WayUser::OfAccount(_)) => self.target.is_none(),
            (WayUser::Any, _) | (WayUser::OfAccount(_), WayUser::User(_)) => true,
            (own, user) => own == user,
        };
        (self.door.is_none() || self.door == other.door)
            && (self.target.is_none() || self.target == other.target)
            && covers_user
    }
}

/// The best way. Without doubts it is certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DoorWay {
    pub(crate) hops: Vec<Hop>,
    pub(crate) doubts: BTreeSet<Doubt>,
}

/// All that a subject can be at targets.
pub(crate) type WaysByDoor = BTreeMap<WayKey, DoorWay>;

impl Judge<'_, '_> {
    /// Every user at every target that the subject can be, certainly or perhaps. With `by_door` the
    /// doors are apart, else each is any.
    pub(crate) fn ways_by_door(&self, subject: &Subject, by_door: bool) -> WaysByDoor {
        let closures = match by_door {
            true => self.search.closures_by_door(subject),
            false => vec![(None, self.search.closure(subject))],
        };
        let mut ways = WaysByDoor::new();
        for (door, closure) in &closures {
            self.add_unknown(*door, closure, &mut ways);
            for index in self.candidates(closure) {
                self.add_users(*door, index, closure, &mut ways);
            }
        }
        ways
    }

    /// What may lead to any target.
    fn add_unknown(&self, door: Option<u8>, closure: &Closure, ways: &mut WaysByDoor) {
        let key = WayKey {
            door,
            target: None,
            user: WayUser::Any,
        };
        if closure.cost(&Node::Anything).is_some() {
            let (hops, doubts) = closure.way_to(&Node::Anything);
            add(ways, key.clone(), hops, doubts);
        }
        for node in closure.nodes() {
            let Node::Act(act) = node else { continue };
            let (hops, mut doubts) = closure.way_to(node);
            let own_door = hops.iter().find_map(|hop| hop.door).or(door);
            doubts.insert(Doubt::door(own_door.unwrap_or(9), &hops));
            let key = WayKey {
                user: WayUser::AfterAct(act.clone()),
                ..key.clone()
            };
            add(ways, key, hops, doubts);
        }
        if !closure.has_token {
            return;
        }
        for doubts in self.doubts_of_accesses(closure) {
            add(ways, key.clone(), Vec::new(), doubts);
        }
    }

    fn add_users(&self, door: Option<u8>, index: usize, closure: &Closure, ways: &mut WaysByDoor) {
        let Some(target) = self.targets.get(index) else {
            return;
        };
        let key = |user| WayKey {
            door,
            target: Some(target.name.clone()),
            user,
        };
        for arrival in Arrivals::find(self.search, target, closure, &[]).tokens {
            let Some(account) = self.search.accounts.get(arrival.account) else {
                continue;
            };
            let mut doubts = arrival.doubts;
            doubts.extend(target.arrival_doubts.iter().cloned());
            match &*target.outcome(arrival.account, account, arrival.lifetime) {
                Outcome::Accepted(user) => {
                    let user = WayUser::User(user.shared());
                    add(ways, key(user), arrival.hops, doubts);
                }
                Outcome::Refused(_) => {}
                Outcome::Unknown(doubt) => {
                    doubts.insert(doubt.clone());
                    let user = WayUser::OfAccount(account.full_name());
                    add(ways, key(user), arrival.hops, doubts);
                }
            }
        }
        if closure.has_token {
            for doubt in &target.open_doubts {
                let doubts = BTreeSet::from([doubt.clone()]);
                add(ways, key(WayUser::Any), Vec::new(), doubts);
            }
        }
    }
}

/// Adds a way, unless a surer one is there.
fn add(ways: &mut WaysByDoor, key: WayKey, hops: Vec<Hop>, doubts: BTreeSet<Doubt>) {
    let is_better =
        |other: &DoorWay| (other.doubts.len(), other.hops.len()) <= (doubts.len(), hops.len());
    if !ways.get(&key).is_some_and(is_better) {
        ways.insert(key, DoorWay { hops, doubts });
    }
}
