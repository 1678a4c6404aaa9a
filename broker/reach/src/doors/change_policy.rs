//! Doors 9 and 10: who may write policy, or take admission policies away. Both are acts, after which
//! the question is asked again.

use std::collections::BTreeSet;

use keyferry_core::admission_policy::{ALL_POLICIES, AdmissionPolicy};

use crate::act::Act;
use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::fence::FenceState;
use crate::granted::{Granted, Scope};
use crate::hub_search::HubSearch;
use crate::right::{Names, Right};
use crate::world::ActNames;

const POLICY: u8 = 9;
const FENCES: u8 = 10;

impl<'w> HubSearch<'w> {
    pub(crate) fn change_policy(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        if !self.world.hub.is_configured() {
            self.write_targets(granted, edges);
            self.write_accesses(granted, edges);
        }
        self.take_policies(granted, edges);
        if !self.are_labels_guarded(granted) {
            self.add_undecided(POLICY, granted, Right::WriteNamespace, edges);
        }
        // What changes or sees the requests of others waits for these.
        self.add_undecided(FENCES, granted, Right::Intercept, edges);
    }

    /// Without the verbs `retarget` and `claim`, an author may add to `allow[]` and no more.
    fn write_targets(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let has = |right| !self.rules_with(granted, right).is_empty();
        let is_confined = self.fences.retarget == FenceState::AsShipped
            && self.fences.audience == FenceState::AsShipped
            && !has(Right::Retarget)
            && !has(Right::ClaimAudience)
            && granted.doubts.is_empty();
        for (set, index, names) in self.rules_with(granted, Right::ChangeTargetCluster) {
            if set.scope != Scope::Cluster {
                continue;
            }
            let hops = set.hops(None, index, POLICY);
            let act = Act::Allow(act_names(names));
            edges.push(Edge::certain(Reached::Act(act), hops));
        }
        // A change may mend one with mistakes, or one that lost its audience.
        if !is_confined || !self.are_targets_read {
            self.add_undecided(POLICY, granted, Right::WriteTargetCluster, edges);
        }
    }

    /// With `keyferry-author`, an author needs the right to create tokens of the account.
    fn write_accesses(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let authors = self.rules_with(granted, Right::WriteTargetAccess);
        for (set, index, names) in authors {
            let hops = set.hops(None, index, POLICY);
            let mut push = |scope: Scope<'w>, accounts: ActNames, hops| {
                let namespace = match scope {
                    Scope::Namespace(namespace) => Some(namespace.to_owned()),
                    Scope::Cluster | Scope::EachNamespace => None,
                };
                let act = Act::WriteAccess {
                    namespace,
                    accounts,
                };
                edges.push(Edge::certain(Reached::Act(act), hops));
            };
            if names.allow_unnamed() && self.fences.author == FenceState::AsShipped {
                for (minter, mint_index, accounts) in self.rules_with(granted, Right::Mint) {
                    if let Some(scope) = set.scope.in_both(minter.scope) {
                        let mint = minter.hops(None, mint_index, POLICY);
                        push(scope, act_names(accounts), [hops.clone(), mint].concat());
                    }
                }
                continue;
            }
            if names.allow_unnamed() && self.fences.author == FenceState::Absent {
                push(set.scope, None, hops.clone());
                self.add_unread_accounts(set.scope, &hops, edges);
                continue;
            }
            let may_mint = !self.rules_with(granted, Right::Mint).is_empty();
            if may_mint || self.fences.author != FenceState::AsShipped {
                let doubt = Doubt::door(POLICY, &hops);
                edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
            }
        }
        if self.fences.author == FenceState::AsShipped && !granted.doubts.is_empty() {
            self.add_undecided(POLICY, granted, Right::WriteTargetAccess, edges);
        }
    }

    fn take_policies(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        for right in [Right::ChangePolicies, Right::ChangeBindings] {
            let name_of = |policy: &AdmissionPolicy| match right {
                Right::ChangePolicies => policy.policy_name(),
                _ => policy.name(),
            };
            for (set, index, names) in self.rules_with(granted, right) {
                let taken = ALL_POLICIES
                    .iter()
                    .filter(|policy| names.allow(name_of(policy)));
                let taken: BTreeSet<&'static str> = taken.map(AdmissionPolicy::name).collect();
                if set.scope == Scope::Cluster && !taken.is_empty() {
                    let hops = set.hops(None, index, FENCES);
                    edges.push(Edge::certain(Reached::Act(Act::TakePolicies(taken)), hops));
                }
            }
        }
        let mut rights = vec![Right::WritePairs];
        if self.fences.kept != FenceState::AsShipped {
            rights.push(Right::DeletePairs);
        }
        for right in rights {
            for (set, index, names) in self.rules_with(granted, right) {
                let pairing = ["keyferry", "audiencepairings.keyferry.dev"];
                if set.scope == Scope::Cluster && pairing.iter().any(|name| names.allow(name)) {
                    let hops = set.hops(None, index, FENCES);
                    edges.push(Edge::certain(Reached::Act(Act::ListPairs), hops));
                }
            }
        }
    }

    fn are_labels_guarded(&self, granted: &Granted<'w>) -> bool {
        let is_guarded = self.fences.labels == FenceState::AsShipped
            && granted.doubts.is_empty()
            && self.rules_with(granted, Right::LabelAccess).is_empty();
        !self.selects_namespaces || is_guarded
    }

    /// Makes the holder of a right undetermined. Most of these objects are in no namespace; for
    /// RBAC, a Namespace is in itself, and a TargetAccess in its own.
    pub(crate) fn add_undecided(
        &self,
        door: u8,
        granted: &Granted<'w>,
        right: Right,
        edges: &mut Vec<Edge>,
    ) {
        let is_namespaced = matches!(right, Right::WriteNamespace | Right::WriteTargetAccess);
        for (set, index, _) in self.rules_with(granted, right) {
            if !is_namespaced && set.scope != Scope::Cluster {
                continue;
            }
            let hops = set.hops(None, index, door);
            let doubt = Doubt::door(door, &hops);
            edges.push(Edge::doubtful(Reached::Anything, hops, doubt));
        }
    }
}

fn act_names(names: Names<'_>) -> ActNames {
    match names {
        Names::Any => None,
        Names::Only(names) => Some(names.iter().cloned().collect::<BTreeSet<String>>()),
    }
}
