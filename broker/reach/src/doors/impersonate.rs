//! Door 7: who may impersonate is another user at that cluster's API.

use std::collections::BTreeSet;

use keyferry_kube_rbac::{SUPERUSER_GROUP, parse_service_account};

use crate::actor::Actor;
use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::granted::{Granted, Scope};
use crate::right::{Names, Right};
use crate::way::Hop;

const DOOR: u8 = 7;

/// Whom an actor can impersonate.
pub(crate) enum Impersonated<'w> {
    /// Every ServiceAccount of the scope.
    Accounts(Scope<'w>),
    /// The ServiceAccounts of the scope with this name.
    Named(Scope<'w>, &'w str),
    /// A user.
    Actor(Actor),
    /// Not evaluated.
    Unknown(Doubt),
}

impl<'w> ClusterRights<'w> {
    /// Whom the actor can impersonate, and by which rules.
    pub(crate) fn impersonated(&self, granted: &Granted<'w>) -> Vec<(Impersonated<'w>, Vec<Hop>)> {
        let mut impersonated = Vec::new();
        let (groups, group_hops) = self.impersonated_groups(granted);
        for set in &granted.sets {
            for (index, rule) in set.rules.iter().enumerate() {
                let rights = self.rights_of(rule);
                if rights.is_empty() {
                    continue;
                }
                let names = Names::of_rule(rule);
                let hops = || set.hops(self.target, index, DOOR);
                if rights.has(Right::ImpersonateUser) && set.scope == Scope::Cluster {
                    let users = self.impersonated_users(names);
                    for user in &users {
                        let actor = Actor::user(user, []);
                        impersonated.push((Impersonated::Actor(actor), hops()));
                        if !groups.is_empty() {
                            let actor = Actor::user(user, groups.iter().cloned());
                            let hops = [hops(), group_hops.clone()].concat();
                            impersonated.push((Impersonated::Actor(actor), hops));
                        }
                    }
                }
                if rights.has(Right::ImpersonateAccount) {
                    match names {
                        Names::Any => {
                            impersonated.push((Impersonated::Accounts(set.scope), hops()))
                        }
                        Names::Only(names) => {
                            impersonated.extend(names.iter().map(|name| {
                                (Impersonated::Named(set.scope, name.as_str()), hops())
                            }))
                        }
                    }
                    if !groups.is_empty() {
                        let actor = Actor::user("", groups.iter().cloned());
                        let with_groups = [hops(), group_hops.clone()].concat();
                        impersonated.push((Impersonated::Actor(actor), with_groups.clone()));
                        let doubt = Doubt::Door {
                            door: DOOR,
                            right: "ServiceAccounts together with groups".to_owned(),
                        };
                        impersonated.push((Impersonated::Unknown(doubt), with_groups));
                    }
                }
                if rights.has(Right::ImpersonateConstrained) {
                    let doubt = Doubt::Door {
                        door: DOOR,
                        right: "constrained impersonation (1.36)".to_owned(),
                    };
                    impersonated.push((Impersonated::Unknown(doubt), hops()));
                }
            }
        }
        impersonated
    }

    /// The groups that the actor can take, beside a user.
    fn impersonated_groups(&self, granted: &Granted<'w>) -> (BTreeSet<String>, Vec<Hop>) {
        let (mut groups, mut all_hops) = (BTreeSet::new(), Vec::new());
        for set in granted
            .sets
            .iter()
            .filter(|set| set.scope == Scope::Cluster)
        {
            for (index, rule) in set.rules.iter().enumerate() {
                if !self.rights_of(rule).has(Right::ImpersonateGroup) {
                    continue;
                }
                match Names::of_rule(rule) {
                    Names::Any => {
                        groups.extend(self.groups.iter().map(|&group| group.to_owned()));
                        groups.insert(SUPERUSER_GROUP.to_owned());
                    }
                    Names::Only(names) => groups.extend(names.iter().cloned()),
                }
                all_hops.extend(set.hops(self.target, index, DOOR));
            }
        }
        // An anonymous request has no other groups' rights to add.
        groups.remove("system:unauthenticated");
        (groups, all_hops)
    }

    /// The users that a rule names. A ServiceAccount's user name needs the other right.
    fn impersonated_users(&self, names: Names<'w>) -> Vec<&'w str> {
        let is_user = |name: &&str| parse_service_account(name).is_none();
        match names {
            // The empty name stands for a user whom no binding names.
            Names::Any => self.users.iter().copied().chain([""]).collect(),
            Names::Only(names) => names
                .iter()
                .map(String::as_str)
                .filter(is_user)
                .filter(|name| !name.is_empty())
                .collect(),
        }
    }
}
