//! Judges one subject at each target.

mod by_door;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use keyferry_api::config::Policy;
use keyferry_api::name::ObjectName;
use keyferry_kube_rbac::Attributes;

pub(crate) use self::by_door::{DoorWay, WayKey, WayUser, WaysByDoor};
use super::Question;
use super::arrival::{Arrival, Arrivals};
use super::verdict::{Verdict, Way};
use crate::accounts::AccountSet;
use crate::act::Act;
use crate::actor::{Actor, MetActor};
use crate::cut::smallest_meeting_set;
use crate::doubt::Doubt;
use crate::edge::Reached;
use crate::hub_search::{Closure, HubSearch, NextNode, Node};
use crate::list::ListKind;
use crate::subject::Subject;
use crate::target_rights::{RightAnswer, named};
use crate::target_tokens::{Outcome, TargetTokens};
use crate::way::{Hop, Removal};

/// How many ways an answer keeps.
const MAX_WAYS: usize = 16;
/// How many sets of doubts an answer weighs.
const MAX_DOUBT_SETS: usize = 64;
/// Up to how many namespaces are named one by one.
const MAX_NAMED_NAMESPACES: usize = 3;

/// What is needed to judge subjects.
pub(crate) struct Judge<'a, 'w> {
    search: &'a HubSearch<'w>,
    pub(crate) targets: Vec<TargetTokens<'w>>,
    request: Option<&'a Attributes>,
    is_thorough: bool,
    /// The targets that have something to do with an account.
    by_account: HashMap<usize, BTreeSet<usize>>,
    /// The targets for which each account has to be asked about.
    unlisted: BTreeSet<usize>,
    rights: RefCell<HashMap<(usize, MetActor), Rc<RightAnswer>>>,
}

impl<'a, 'w> Judge<'a, 'w> {
    pub(crate) fn new(search: &'a HubSearch<'w>, question: &'a Question) -> Self {
        let hub = &search.world.hub;
        let names: BTreeSet<_> = hub
            .target_names()
            .chain(search.world.targets.keys())
            .filter(|name| question.targets.is_empty() || question.targets.contains(*name))
            .filter(|name| {
                let cluster = search.policy.targets.get(*name);
                cluster.is_none_or(keyferry_api::config::TargetCluster::is_cluster)
            })
            .collect();
        let targets: Vec<TargetTokens<'w>> = names
            .into_iter()
            .map(|name| TargetTokens::new(search, name, question.now))
            .collect();
        let mut judge = Self {
            search,
            targets,
            request: question.request.as_ref(),
            is_thorough: question.is_thorough,
            by_account: HashMap::new(),
            unlisted: BTreeSet::new(),
            rights: RefCell::default(),
        };
        judge.index_targets();
        judge
    }

    /// The policy of its world.
    pub(crate) fn policy(&self) -> &'w Policy {
        self.search.policy
    }

    fn index_targets(&mut self) {
        let indexes: BTreeMap<_, usize> = self
            .targets
            .iter()
            .enumerate()
            .map(|(index, target)| (target.name, index))
            .collect();
        for offer in &self.search.offers {
            if let Some(&index) = indexes.get(&offer.target) {
                for &account in offer.callers.iter().chain([&offer.account]) {
                    self.by_account.entry(account).or_default().insert(index);
                }
            }
        }
        for (index, target) in self.targets.iter().enumerate() {
            match &target.listed_accounts {
                Some(accounts) if target.open_doubts.is_empty() => {
                    for account in accounts {
                        self.by_account.entry(*account).or_default().insert(index);
                    }
                }
                _ => {
                    self.unlisted.insert(index);
                }
            }
        }
    }

    /// The verdicts about a subject. Targets about which nothing speaks for a yes are left out,
    /// unless the question is thorough.
    pub(crate) fn judge_subject(&self, subject: &Subject) -> JudgedSubject {
        let closure = self.search.closure(subject);
        let actor = Actor::of_subject(subject);
        let is_superuser = self.search.rights.granted(&actor).is_superuser();
        let mut direct: Vec<NextNode> = Vec::new();
        if self.is_thorough {
            let node = self.search.node_of(actor);
            direct = self.search.next(&node, is_superuser);
        }
        let anything = self.doubts_of_anything(&closure);
        let indexes: Vec<usize> = match self.is_thorough || !anything.is_empty() {
            true => (0..self.targets.len()).collect(),
            false => self.candidates(&closure).into_iter().collect(),
        };
        let judged = indexes.into_iter().filter_map(|index| {
            let target = self.targets.get(index)?;
            let verdict = self.judge(index, target, &closure, &direct, &anything);
            Some((target.name.clone(), verdict))
        });
        JudgedSubject {
            verdicts: judged.collect(),
            acts: SubjectActs::of(&closure),
        }
    }

    /// The targets for which the subject may have a token.
    fn candidates(&self, closure: &Closure) -> BTreeSet<usize> {
        let mut indexes = BTreeSet::new();
        let mut has_tokens = false;
        for node in closure.nodes() {
            let accounts = match node {
                Node::Tokens(AccountSet::All) => return (0..self.targets.len()).collect(),
                Node::Tokens(set) => self.search.accounts.of_set(*set),
                Node::Exchange(account) | Node::Held(account, _) => *account..*account + 1,
                Node::Delivered(index) => match self.search.delivered.get(*index) {
                    Some(delivered) => delivered.account..delivered.account + 1,
                    None => 0..0,
                },
                Node::Actor(_) | Node::Act(_) | Node::Anything => continue,
            };
            has_tokens = true;
            for account in accounts {
                indexes.extend(self.by_account.get(&account).into_iter().flatten());
            }
        }
        let lists = &self.search.world.hub.lists;
        if has_tokens && !lists.is_whole(ListKind::TargetAccesses) {
            return (0..self.targets.len()).collect();
        }
        if has_tokens {
            indexes.extend(&self.unlisted);
        }
        indexes
    }

    /// The doubts of each step that is not evaluated.
    fn doubts_of_anything(&self, closure: &Closure) -> Vec<BTreeSet<Doubt>> {
        let mut sets = BTreeSet::new();
        if closure.cost(&Node::Anything).is_none() {
            return Vec::new();
        }
        let (_, best) = closure.way_to(&Node::Anything);
        sets.insert(best);
        if self.is_thorough {
            for node in closure.nodes() {
                let Node::Actor(actor) = node else { continue };
                let edges = self.search.edges_of(actor);
                let open = edges.iter().filter(|it| it.reached == Reached::Anything);
                for edge in open {
                    let (_, mut doubts) = closure.way_to(node);
                    doubts.extend(edge.doubts.iter().cloned());
                    sets.insert(doubts);
                }
                if sets.len() >= MAX_DOUBT_SETS {
                    break;
                }
            }
        }
        sets.into_iter().collect()
    }

    fn judge(
        &self,
        index: usize,
        target: &TargetTokens<'w>,
        closure: &Closure,
        direct: &[NextNode],
        anything: &[BTreeSet<Doubt>],
    ) -> Verdict {
        let arrivals = Arrivals::find(self.search, target, closure, direct);
        let (tokens, refused) = (arrivals.tokens, arrivals.refused);
        let mut case = Case {
            ways: Vec::new(),
            doubts: anything.to_vec(),
            miss: refused,
        };
        for arrival in &tokens {
            self.judge_arrival(index, target, arrival, &mut case);
        }
        if target.cluster.is_some() {
            case.doubts.extend(self.doubts_of_accesses(closure));
        }
        if closure.has_token {
            let open = target.open_doubts.iter();
            let open = open.map(|doubt| BTreeSet::from([doubt.clone()]));
            case.doubts.extend(open);
        }
        case.verdict()
    }

    /// An access that was not read may be for an account that the subject has a token of.
    fn doubts_of_accesses(&self, closure: &Closure) -> Vec<BTreeSet<Doubt>> {
        let lists = &self.search.world.hub.lists;
        if lists.is_whole(ListKind::TargetAccesses) {
            return Vec::new();
        }
        let mut namespaces = BTreeSet::new();
        for node in closure.nodes() {
            let accounts = match node {
                Node::Tokens(set) => self.search.accounts.of_set(*set),
                Node::Exchange(account) => *account..*account + 1,
                _ => continue,
            };
            let accounts = accounts
                .into_iter()
                .filter_map(|account| self.search.accounts.get(account));
            namespaces.extend(accounts.map(|account| &*account.namespace));
        }
        namespaces.retain(|namespace| !lists.is_whole_in(ListKind::TargetAccesses, namespace));
        if namespaces.len() > MAX_NAMED_NAMESPACES {
            return vec![BTreeSet::from([Doubt::list(ListKind::TargetAccesses)])];
        }
        namespaces
            .into_iter()
            .map(|namespace| BTreeSet::from([Doubt::list_in(ListKind::TargetAccesses, namespace)]))
            .collect()
    }

    /// Adds what one token gives.
    fn judge_arrival(
        &self,
        index: usize,
        target: &TargetTokens<'w>,
        arrival: &Arrival,
        case: &mut Case,
    ) {
        let Some(account) = self.search.accounts.get(arrival.account) else {
            return;
        };
        let mut doubts = arrival.doubts.clone();
        doubts.extend(target.arrival_doubts.iter().cloned());
        let outcome = target.outcome(arrival.account, account, arrival.lifetime);
        let user = match &*outcome {
            Outcome::Accepted(user) => user,
            Outcome::Refused(why) => {
                case.miss = Some(why.clone());
                return;
            }
            Outcome::Unknown(doubt) => {
                doubts.insert(doubt.clone());
                case.doubts.push(doubts);
                return;
            }
        };
        let way = |hops: &[crate::way::Hop]| Way {
            hub: arrival.hops.clone(),
            user: named(user),
            target: hops.to_vec(),
        };
        let Some(request) = self.request else {
            case.add(way(&[]), doubts);
            return;
        };
        let Some(answer) = self.right(index, target, user, request) else {
            doubts.extend(target.open_doubts.iter().cloned());
            case.doubts.push(doubts);
            return;
        };
        for hops in &answer.ways {
            case.add(way(hops), doubts.clone());
        }
        for more in &answer.doubts {
            case.doubts.push(doubts.union(more).cloned().collect());
        }
        if answer.ways.is_empty() {
            case.miss = Some(format!(
                "it is {} at {}, and {}",
                named(user),
                target.name,
                answer.nearest_miss
            ));
        }
    }

    fn right(
        &self,
        index: usize,
        target: &TargetTokens<'w>,
        user: &MetActor,
        request: &Attributes,
    ) -> Option<Rc<RightAnswer>> {
        let key = (index, user.clone());
        if let Some(known) = self.rights.borrow().get(&key) {
            return Some(Rc::clone(known));
        }
        let answer = Rc::new(target.rights.as_ref()?.answer_request(user, request));
        let mut memo = self.rights.borrow_mut();
        memo.insert(key, Rc::clone(&answer));
        Some(answer)
    }
}

/// The verdicts about a subject, and what it can change.
pub(crate) struct JudgedSubject {
    pub(crate) verdicts: BTreeMap<ObjectName, Verdict>,
    pub(crate) acts: SubjectActs,
}

/// The acts of a subject, with the steps to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubjectActs {
    pub(crate) acts: BTreeSet<Act>,
    hops: Vec<Hop>,
    pub(crate) doubts: BTreeSet<Doubt>,
}

impl SubjectActs {
    fn of(closure: &Closure) -> Self {
        let mut acts = Self::default();
        for node in closure.nodes() {
            let Node::Act(act) = node else { continue };
            let (hops, doubts) = closure.way_to(node);
            acts.acts.insert(act.clone());
            acts.hops.extend(hops);
            acts.doubts.extend(doubts);
        }
        acts.hops.sort();
        acts.hops.dedup();
        acts
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.acts.extend(more.acts);
        self.hops.extend(more.hops);
        self.hops.sort();
        self.hops.dedup();
        self.doubts.extend(more.doubts);
    }

    /// The verdict that holds now, from the one in the world after the acts. What an act writes is
    /// not there to be removed.
    pub(crate) fn verdict_before(&self, after: Verdict, policy: &Policy) -> Verdict {
        let Verdict::Yes { mut ways, has_more } = after else {
            return after;
        };
        if !self.doubts.is_empty() {
            return Verdict::Undetermined {
                doubts: self.doubts.clone(),
            };
        }
        for way in &mut ways {
            for hop in &mut way.hub {
                let is_new = |removal: &Removal| match removal {
                    Removal::Access(name) => !policy.accesses.contains_key(name),
                    Removal::Binding(..) => false,
                };
                hop.removal = hop.removal.take().filter(|removal| !is_new(removal));
            }
            let note = Hop::note("changes the hub with that, and then");
            let acts = self.hops.iter().cloned().chain([note]);
            way.hub.splice(0..0, acts);
        }
        Verdict::Yes { ways, has_more }
    }

    /// Nothing decides what the acts open.
    pub(crate) fn undecided(&self) -> Verdict {
        let door = self.hops.iter().find_map(|hop| hop.door).unwrap_or(9);
        Verdict::Undetermined {
            doubts: BTreeSet::from([Doubt::door(door, &self.hops)]),
        }
    }
}

/// What was found about one subject and one target.
struct Case {
    ways: Vec<Way>,
    /// What may hide a way: each set alone, if all of it holds.
    doubts: Vec<BTreeSet<Doubt>>,
    miss: Option<String>,
}

impl Case {
    fn add(&mut self, way: Way, doubts: BTreeSet<Doubt>) {
        match doubts.is_empty() {
            true => self.ways.push(way),
            false => self.doubts.push(doubts),
        }
    }

    fn verdict(mut self) -> Verdict {
        if !self.ways.is_empty() {
            self.ways
                .sort_by_key(|way| way.hub.len() + way.target.len());
            let mut ways: Vec<Way> = Vec::new();
            for way in self.ways {
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
            let has_more = ways.len() > MAX_WAYS;
            ways.truncate(MAX_WAYS);
            return Verdict::Yes { ways, has_more };
        }
        if self.doubts.is_empty() {
            return Verdict::No {
                nearest_miss: self.miss,
            };
        }
        self.doubts.sort_by_key(BTreeSet::len);
        self.doubts.truncate(MAX_DOUBT_SETS);
        let doubts = smallest_meeting_set(&self.doubts).unwrap_or_default();
        Verdict::Undetermined { doubts }
    }
}
