//! What a user may do at a target, also by impersonation and by rights that it grants itself there.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use keyferry_kube_rbac::{Attributes, User};

use crate::actor::Actor;
use crate::cluster_rights::ClusterRights;
use crate::doors::impersonate::Impersonated;
use crate::doubt::Doubt;
use crate::granted::{Granted, Scope};
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

/// What a user is granted, with the steps to it.
pub(crate) type GrantOfActor<'w> = (Vec<Hop>, Rc<Granted<'w>>);

impl<'w> ClusterRights<'w> {
    /// Whether the user may send the request, and by which ways.
    pub(crate) fn answer_request(&self, user: &Actor, request: &Attributes) -> RightAnswer {
        let (grants, doubts) = self.grants_of(user);
        let mut answer = RightAnswer {
            doubts,
            ..RightAnswer::default()
        };
        for (hops, granted) in &grants {
            for (set, rule) in granted.that_allow(request) {
                if answer.ways.len() < MAX_WAYS {
                    let way = hops.iter().cloned().chain(set.hops(self.target, rule, 0));
                    answer.ways.push(way.collect());
                }
            }
        }
        answer.nearest_miss = self.nearest_miss(user, request);
        answer
    }

    /// All that the user is granted, also as others whom it may impersonate, with the steps to each,
    /// and what may hide more.
    pub(crate) fn grants_of(&self, user: &Actor) -> (Vec<GrantOfActor<'w>>, Vec<BTreeSet<Doubt>>) {
        let (mut grants, mut doubts) = (Vec::new(), Vec::new());
        let mut visited = BTreeSet::from([user.clone()]);
        let mut queue = VecDeque::from([(user.clone(), Vec::new())]);
        while let Some((actor, hops)) = queue.pop_front() {
            let granted = self.granted(&actor);
            let unknown = self.doubts.iter().chain(&granted.doubts);
            doubts.extend(unknown.map(|doubt| BTreeSet::from([doubt.clone()])));
            for (whom, more) in self.impersonated(&granted) {
                for actor in self.actors_of(whom, &mut doubts) {
                    if visited.len() < MAX_ACTORS && visited.insert(actor.clone()) {
                        let mut hops = [hops.clone(), more.clone()].concat();
                        hops.push(Hop::note(format!("as {}", named(&actor))));
                        queue.push_back((actor, hops));
                    } else if visited.len() >= MAX_ACTORS {
                        doubts.push(BTreeSet::from([Doubt::fact(
                            format!("it may impersonate more than {MAX_ACTORS} users"),
                            "ask about fewer users",
                        )]));
                    }
                }
            }
            grants.push((hops, granted));
        }
        doubts.sort();
        doubts.dedup();
        (grants, doubts)
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
