//! What the users of a target gain and lose there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::LazyLock;

use keyferry_api::name::ObjectName;
use keyferry_kube_rbac::{Coverage, PolicyRule, rules_cover};

use super::MAX_NAMED;
use crate::actor::Actor;
use crate::answer::WayUser;
use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::granted::{RuleSet, Scope};
use crate::target_rights::GrantOfActor;
use crate::world::{TargetFiles, World};

/// Stands for a target of which nothing was read.
static UNREAD: LazyLock<TargetFiles> = LazyLock::new(TargetFiles::default);

/// Rights that appear or disappear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RightsChange {
    pub(super) rights: BTreeSet<String>,
    pub(super) doubts: BTreeSet<Doubt>,
}

/// What a user gains, and what it loses.
type GainAndLoss = Rc<[RightsChange; 2]>;

/// The rights at the targets whose RBAC differs.
pub(super) struct ChangedTargets<'w> {
    rights: BTreeMap<&'w ObjectName, [ClusterRights<'w>; 2]>,
    memo: RefCell<HashMap<(ObjectName, Rc<Actor>), GainAndLoss>>,
}

impl<'w> ChangedTargets<'w> {
    pub(super) fn of(before: &'w World, after: &'w World) -> Self {
        let names: BTreeSet<&'w ObjectName> =
            before.targets.keys().chain(after.targets.keys()).collect();
        let mut rights = BTreeMap::new();
        for name in names {
            let [old, new] = [before, after]
                .map(|world| world.targets.get(name).map_or(&*UNREAD, AsRef::as_ref));
            if !old.has_same_rbac(new) {
                let of = |files: &'w TargetFiles| {
                    ClusterRights::new(Some(name), &files.rbac, &files.lists)
                };
                rights.insert(name, [of(old), of(new)]);
            }
        }
        Self {
            rights,
            memo: RefCell::default(),
        }
    }

    /// What a user gains, with `true`, and loses.
    pub(super) fn changes_of(
        &self,
        target: &ObjectName,
        user: &WayUser,
    ) -> Vec<(bool, RightsChange)> {
        let Some(rights) = self.rights.get(target) else {
            return Vec::new();
        };
        let WayUser::User(user) = user else {
            let doubt = Doubt::fact(
                format!("the RBAC of target {target} changes, and the user there is not known"),
                format!("give the files of targets/{target}"),
            );
            let doubts = BTreeSet::from([doubt]);
            return vec![(
                true,
                RightsChange {
                    doubts,
                    ..RightsChange::default()
                },
            )];
        };
        let key = (target.clone(), Rc::clone(user));
        let mut memo = self.memo.borrow_mut();
        let [gained, lost] = &**memo
            .entry(key)
            .or_insert_with(|| Rc::new(changes_between(rights, user)));
        vec![(true, gained.clone()), (false, lost.clone())]
    }
}

fn changes_between([before, after]: &[ClusterRights<'_>; 2], user: &Actor) -> [RightsChange; 2] {
    let ((old, old_doubts), (new, new_doubts)) = (before.grants_of(user), after.grants_of(user));
    let (old, new) = (sets_of(&old), sets_of(&new));
    let all = |doubts: &[BTreeSet<Doubt>]| -> BTreeSet<Doubt> {
        doubts.iter().flatten().cloned().collect()
    };
    let (old_doubts, new_doubts) = (all(&old_doubts), all(&new_doubts));
    let change = |owned: &[RuleSet<'_>], wanted, own: &BTreeSet<Doubt>, other| {
        let (rights, is_compared) = uncovered(owned, wanted);
        let mut doubts: BTreeSet<Doubt> = BTreeSet::difference(other, own).cloned().collect();
        if !rights.is_empty() {
            doubts.extend(own.iter().cloned());
        }
        if !is_compared {
            doubts.insert(Doubt::fact(
                "the rules there are too many to compare",
                "compare the roles by hand",
            ));
        }
        RightsChange { rights, doubts }
    };
    [
        change(&old, &new, &old_doubts, &new_doubts),
        change(&new, &old, &new_doubts, &old_doubts),
    ]
}

fn sets_of<'w>(grants: &[GrantOfActor<'w>]) -> Vec<RuleSet<'w>> {
    let sets = grants.iter().flat_map(|(_, granted)| granted.sets.iter());
    sets.cloned().collect()
}

/// What the wanted sets grant beyond those that are owned, and whether all of it was compared.
fn uncovered(owned: &[RuleSet<'_>], wanted: &[RuleSet<'_>]) -> (BTreeSet<String>, bool) {
    let (mut rights, mut is_compared) = (BTreeSet::new(), true);
    for set in wanted {
        let rules_of = |own: &RuleSet<'_>| own.scope.holds_all_of(set.scope);
        if owned
            .iter()
            .any(|own| rules_of(own) && own.rules == set.rules)
        {
            continue;
        }
        // Paths are granted in the whole cluster alone.
        let is_cluster = matches!(set.scope, Scope::Cluster);
        let rules: Vec<PolicyRule> = set
            .rules
            .iter()
            .map(|rule| PolicyRule {
                non_resource_urls: match is_cluster {
                    true => rule.non_resource_urls.clone(),
                    false => Vec::new(),
                },
                ..rule.clone()
            })
            .collect();
        let own = owned.iter().filter(|own| rules_of(own));
        match rules_cover(own.flat_map(|own| own.rules), &rules) {
            Coverage::Covered => {}
            Coverage::Undetermined => is_compared = false,
            Coverage::Missing(missing) => {
                let texts = missing.iter().take(MAX_NAMED);
                rights.extend(texts.map(|rule| words_of(rule, set.scope)));
            }
        }
    }
    (rights, is_compared)
}

fn words_of(rule: &PolicyRule, scope: Scope<'_>) -> String {
    let verbs = rule.verbs.join(",");
    if !rule.non_resource_urls.is_empty() {
        return format!("{verbs} {}", rule.non_resource_urls.join(","));
    }
    let group = rule.api_groups.join(",");
    let dot = if group.is_empty() { "" } else { "." };
    let name = match rule.resource_names.as_slice() {
        [] => String::new(),
        names => format!(" {}", names.join(",")),
    };
    let resource = rule.resources.join(",");
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, format!("/{subresource}")),
        None => (resource.as_str(), String::new()),
    };
    format!(
        "{verbs} {resource}{dot}{group}{subresource}{name} {}",
        scope.words()
    )
}
