//! What a user may do at a target, also by impersonation and by rights that it grants itself there.

use std::collections::{BTreeSet, VecDeque};

use keyferry_kube_rbac::{Attributes, User};

use crate::actor::Actor;
use crate::cluster_rights::ClusterRights;
use crate::doors::impersonate::Impersonated;
use crate::doubt::Doubt;
use crate::granted::Scope;
use crate::way::Hop;

/// How many users are followed from one at a target.
const MAX_ACTORS: usize = 2_000;
/// How many ways at the target are kept.
const MAX_WAYS: usize = 16;

/// What RBAC of a target says about a user and a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RightAnswer {
    pub(crate) ways: Vec<Vec<Hop>>,
    /// What may hide a way: each set alone, if all of it holds.
    pub(crate) doubts: Vec<BTreeSet<Doubt>>,
    pub(crate) nearest_miss: String,
}

impl ClusterRights<'_> {
    /// Whether the user may send the request, and by which ways.
    pub(crate) fn answer_request(&self, user: &Actor, request: &Attributes) -> RightAnswer {
        let mut answer = RightAnswer::default();
        let mut visited = BTreeSet::from([user.clone()]);
        let mut queue = VecDeque::from([(user.clone(), Vec::new())]);
        while let Some((actor, hops)) = queue.pop_front() {
            let granted = self.granted(&actor);
            for (set, rule) in granted.that_allow(request) {
                if answer.ways.len() < MAX_WAYS {
                    let way = hops.iter().cloned().chain(set.hops(self.target, rule, 0));
                    answer.ways.push(way.collect());
                }
            }
            let doubts = self.doubts.iter().chain(&granted.doubts);
            let sets = doubts.map(|doubt| BTreeSet::from([doubt.clone()]));
            answer.doubts.extend(sets);
            for (whom, more) in self.impersonated(&granted) {
                for actor in self.actors_of(whom, &mut answer.doubts) {
                    if visited.len() < MAX_ACTORS && visited.insert(actor.clone()) {
                        let mut hops = [hops.clone(), more.clone()].concat();
                        hops.push(Hop::note(format!("as {}", named(&actor))));
                        queue.push_back((actor, hops));
                    } else if visited.len() >= MAX_ACTORS {
                        answer.doubts.push(BTreeSet::from([Doubt::fact(
                            format!("it may impersonate more than {MAX_ACTORS} users"),
                            "ask about fewer users",
                        )]));
                    }
                }
            }
        }
        answer.doubts.sort();
        answer.doubts.dedup();
        answer.nearest_miss = self.nearest_miss(user, request);
        answer
    }

    fn actors_of(&self, whom: Impersonated<'_>, doubts: &mut Vec<BTreeSet<Doubt>>) -> Vec<Actor> {
        let account = |namespace: &str, name: &str| Actor::service_account(namespace, name);
        match whom {
            Impersonated::Actor(actor) => vec![actor],
            Impersonated::Unknown(doubt) => {
                doubts.push(BTreeSet::from([doubt]));
                Vec::new()
            }
            Impersonated::Named(Scope::Namespace(namespace), name) => {
                vec![account(namespace, name)]
            }
            Impersonated::Named(_, name) => {
                let named = self.accounts.iter().filter(|(_, own)| *own == name);
                named
                    .map(|(namespace, name)| account(namespace, name))
                    .collect()
            }
            // An account that no binding names has its groups' rights.
            Impersonated::Accounts(scope) => {
                let bound = self.accounts.iter();
                let bound = bound.filter(|(namespace, _)| scope.has(namespace));
                let mut actors: Vec<Actor> = bound
                    .map(|(namespace, name)| account(namespace, name))
                    .collect();
                let groups = self.groups.iter();
                let namespaces = groups
                    .filter_map(|group| group.strip_prefix("system:serviceaccounts:"))
                    .filter(|namespace| scope.has(namespace));
                actors.extend(namespaces.map(|namespace| account(namespace, "any")));
                if let Scope::Namespace(namespace) = scope {
                    actors.push(account(namespace, "any"));
                } else {
                    actors.push(account("any", "any"));
                }
                actors
            }
        }
    }

    fn nearest_miss(&self, user: &Actor, request: &Attributes) -> String {
        let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
        let user = User::new(&user.user, &groups);
        match self.policy.nearest_misses(&user, request, 1).first() {
            Some(miss) => {
                let words = miss.differences.iter().map(ToString::to_string);
                let words: Vec<String> = words.collect();
                format!("{} comes nearest, but {}", miss.way, words.join(" and "))
            }
            None => format!("nothing there grants {request}"),
        }
    }
}

/// The name of a user, or its groups.
pub(crate) fn named(actor: &Actor) -> String {
    match actor.user.as_str() {
        "" => actor.groups.iter().cloned().collect::<Vec<_>>().join(", "),
        user => user.to_owned(),
    }
}
