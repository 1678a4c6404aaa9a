//! Door 8: who may bind or escalate grants itself what it may bind, or everything.
//!
//! The checks are those of kube-apiserver's RBAC storage (`rolebinding/policybased/storage.go` and
//! its siblings): a binding needs `bind` on its role in its namespace, a role needs `escalate` on
//! itself. What an actor may write because its own rights cover it adds nothing to them.

use std::rc::Rc;

use keyferry_kube_rbac::{Binding, ObjectKind, PolicyRule, Role};

use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::granted::{EVERYTHING, Granted, RuleSet, Scope, Source};
use crate::list::ListKind;
use crate::right::{Names, Right};
use crate::way::Hop;

const DOOR: u8 = 8;

/// A rule with one of the rights, and the set that it is in.
struct Holding<'a, 'w> {
    set: &'a RuleSet<'w>,
    index: usize,
    names: Names<'w>,
}

impl<'w> ClusterRights<'w> {
    /// Adds what the actor can grant itself, until nothing is new.
    pub(crate) fn add_own_grants(&self, granted: &mut Granted<'w>) {
        loop {
            if granted.is_superuser() {
                return;
            }
            let mut new = self.bindable(granted);
            new.extend(self.escalated(granted));
            new.retain(|set| !is_known(granted, set));
            if new.is_empty() {
                break;
            }
            for set in new {
                if !is_known(granted, &set) {
                    granted.sets.push(set);
                }
            }
        }
        granted.doubts.extend(self.doubts_of_own_grants(granted));
    }

    fn holdings_with<'a>(&self, granted: &'a Granted<'w>, right: Right) -> Vec<Holding<'a, 'w>> {
        let mut all = Vec::new();
        for set in &granted.sets {
            for (index, rule) in set.rules.iter().enumerate() {
                if self.rights_of(rule).has(right) {
                    let names = Names::of_rule(rule);
                    all.push(Holding { set, index, names });
                }
            }
        }
        all
    }

    /// What the actor gets by bindings that it may write.
    fn bindable(&self, granted: &Granted<'w>) -> Vec<RuleSet<'w>> {
        let mut new = Vec::new();
        let of_cluster_roles = self.holdings_with(granted, Right::BindClusterRole);
        let of_roles = self.holdings_with(granted, Right::BindRole);
        if of_cluster_roles.is_empty() && of_roles.is_empty() {
            return new;
        }
        for write in self.holdings_with(granted, Right::CreateRoleBinding) {
            if !write.names.allow_unnamed() {
                continue;
            }
            for bind in &of_cluster_roles {
                if let Some(scope) = write.set.scope.in_both(bind.set.scope) {
                    let roles = self.policy.cluster_roles();
                    self.push_bound(&mut new, scope, &write, bind, roles);
                }
            }
            for bind in &of_roles {
                if let Some(scope) = write.set.scope.in_both(bind.set.scope) {
                    self.push_bound_roles(&mut new, scope, &write, bind);
                }
            }
        }
        for write in self.holdings_with(granted, Right::CreateClusterRoleBinding) {
            if write.set.scope != Scope::Cluster || !write.names.allow_unnamed() {
                continue;
            }
            for bind in of_cluster_roles
                .iter()
                .filter(|bind| bind.set.scope == Scope::Cluster)
            {
                let roles = self.policy.cluster_roles();
                self.push_bound(&mut new, Scope::Cluster, &write, bind, roles);
            }
        }
        self.push_joined(&mut new, granted, &of_cluster_roles, &of_roles);
        new
    }

    fn push_bound(
        &self,
        new: &mut Vec<RuleSet<'w>>,
        scope: Scope<'w>,
        write: &Holding<'_, 'w>,
        bind: &Holding<'_, 'w>,
        roles: impl Iterator<Item = &'w Role>,
    ) {
        for role in roles.filter(|role| bind.names.allow(&role.id.name) && !role.rules.is_empty()) {
            let set = RuleSet {
                scope,
                rules: &role.rules,
                role: Some(role),
                source: Source::OwnGrant(self.hops_of(scope, write, bind, role)),
            };
            if set.allows_everything() {
                new.retain(|known| !scope.holds_all_of(known.scope));
                new.push(set);
                return;
            }
            new.push(set);
        }
    }

    fn push_bound_roles(
        &self,
        new: &mut Vec<RuleSet<'w>>,
        scope: Scope<'w>,
        write: &Holding<'_, 'w>,
        bind: &Holding<'_, 'w>,
    ) {
        for role in self.policy.roles() {
            let id = &role.id;
            let is_bound = id.kind == ObjectKind::Role
                && scope.has(&id.namespace)
                && bind.names.allow(&id.name)
                && !role.rules.is_empty();
            if is_bound {
                let scope = Scope::Namespace(&id.namespace);
                new.push(RuleSet {
                    scope,
                    rules: &role.rules,
                    role: Some(role),
                    source: Source::OwnGrant(self.hops_of(scope, write, bind, role)),
                });
            }
        }
    }

    /// What the actor gets by adding itself to the subjects of a binding that exists.
    fn push_joined(
        &self,
        new: &mut Vec<RuleSet<'w>>,
        granted: &Granted<'w>,
        of_cluster_roles: &[Holding<'_, 'w>],
        of_roles: &[Holding<'_, 'w>],
    ) {
        let edits: Vec<Holding<'_, 'w>> = [Right::EditRoleBinding, Right::EditClusterRoleBinding]
            .into_iter()
            .flat_map(|right| {
                self.holdings_with(granted, right)
                    .into_iter()
                    .map(move |it| (right, it))
            })
            .filter(|(right, it)| {
                *right == Right::EditRoleBinding || it.set.scope == Scope::Cluster
            })
            .map(|(_, holding)| holding)
            .collect();
        if edits.is_empty() {
            return;
        }
        for binding in self.policy.bindings() {
            let Some(role) = self.policy.granted_role(binding) else {
                continue;
            };
            let binds = match role.id.kind {
                ObjectKind::ClusterRole => of_cluster_roles,
                _ => of_roles,
            };
            let bind = binds.iter().find(|bind| {
                bind.names.allow(&role.id.name) && scope_has_binding(bind.set.scope, binding)
            });
            let edit = edits.iter().find(|edit| {
                edit.names.allow(&binding.id.name)
                    && scope_has_binding(edit.set.scope, binding)
                    && self.is_about_kind_of(edit, binding)
            });
            if let (Some(bind), Some(edit)) = (bind, edit) {
                let scope = scope_of(binding);
                new.push(RuleSet {
                    scope,
                    rules: &role.rules,
                    role: Some(role),
                    source: Source::OwnGrant(self.hops_of(scope, edit, bind, role)),
                });
            }
        }
    }

    /// Whether the rule is about bindings of this kind.
    fn is_about_kind_of(&self, edit: &Holding<'_, 'w>, binding: &Binding) -> bool {
        let right = match binding.id.kind {
            ObjectKind::ClusterRoleBinding => Right::EditClusterRoleBinding,
            _ => Right::EditRoleBinding,
        };
        let rule = edit.set.rules.get(edit.index);
        rule.is_some_and(|rule| self.rights_of(rule).has(right))
    }

    /// What the actor gets by writing more rules into a role that it has, or may bind.
    fn escalated(&self, granted: &Granted<'w>) -> Vec<RuleSet<'w>> {
        let mut new = Vec::new();
        for (escalate, edit) in [
            (Right::EscalateClusterRole, Right::EditClusterRole),
            (Right::EscalateRole, Right::EditRole),
        ] {
            let escalates = self.holdings_with(granted, escalate);
            if escalates.is_empty() {
                continue;
            }
            let edits = self.holdings_with(granted, edit);
            for set in &granted.sets {
                let Some(role) = set.role else { continue };
                let is_kind = (role.id.kind == ObjectKind::ClusterRole)
                    == (escalate == Right::EscalateClusterRole);
                if !is_kind || set.allows_everything() {
                    continue;
                }
                let on_role = |holding: &&Holding<'_, 'w>| {
                    holding.names.allow(&role.id.name) && scope_has_role(holding.set.scope, role)
                };
                if let (Some(escalate), Some(edit)) =
                    (escalates.iter().find(on_role), edits.iter().find(on_role))
                {
                    let mut hops = escalate.set.hops(self.target, escalate.index, DOOR);
                    hops.extend(edit.set.hops(self.target, edit.index, DOOR));
                    hops.push(Hop::note(format!(
                        "writes every right into {}, which it has {}",
                        role.id,
                        set.scope.words()
                    )));
                    hops.extend(set.hops(self.target, 0, 0));
                    new.push(all_rights(set.scope, hops));
                }
            }
        }
        new
    }

    /// The doubts about what the actor can grant itself, where the evaluation above is too coarse
    /// for a no.
    fn doubts_of_own_grants(&self, granted: &Granted<'w>) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let has = |right| !self.holdings_with(granted, right).is_empty();
        if has(Right::BindClusterRole) && !self.has_whole(ListKind::ClusterRoles) {
            doubts.push(self.list_doubt(ListKind::ClusterRoles, None));
        }
        if has(Right::BindRole) && !self.has_whole(ListKind::Roles) {
            doubts.push(self.list_doubt(ListKind::Roles, None));
        }
        // A new role with every rule, or one that another role gathers.
        let creates = (has(Right::EscalateClusterRole) && has(Right::CreateClusterRole))
            || (has(Right::EscalateRole) && has(Right::CreateRole));
        let edits = (has(Right::EscalateClusterRole) && has(Right::EditClusterRole))
            || (has(Right::EscalateRole) && has(Right::EditRole));
        if creates || edits {
            doubts.push(Doubt::Door {
                door: DOOR,
                right: "it may write roles with rights that it does not have (escalate)".to_owned(),
            });
        }
        doubts
    }

    fn hops_of(
        &self,
        scope: Scope<'w>,
        write: &Holding<'_, 'w>,
        bind: &Holding<'_, 'w>,
        role: &Role,
    ) -> Rc<[Hop]> {
        let mut hops = write.set.hops(self.target, write.index, DOOR);
        for hop in bind.set.hops(self.target, bind.index, DOOR) {
            if !hops.contains(&hop) {
                hops.push(hop);
            }
        }
        hops.push(Hop::note(format!("binds {} {}", role.id, scope.words())));
        hops.into()
    }
}

fn all_rights<'w>(scope: Scope<'w>, hops: Vec<Hop>) -> RuleSet<'w> {
    RuleSet {
        scope,
        rules: &*EVERYTHING,
        role: None,
        source: Source::OwnGrant(hops.into()),
    }
}

fn scope_of(binding: &Binding) -> Scope<'_> {
    match binding.id.namespace.as_str() {
        "" => Scope::Cluster,
        namespace => Scope::Namespace(namespace),
    }
}

/// Whether a right in this scope is a right on the binding.
fn scope_has_binding(scope: Scope<'_>, binding: &Binding) -> bool {
    scope.holds_all_of(scope_of(binding))
}

fn scope_has_role(scope: Scope<'_>, role: &Role) -> bool {
    match role.id.kind {
        ObjectKind::ClusterRole => scope == Scope::Cluster,
        _ => scope.has(&role.id.namespace),
    }
}

/// Whether the actor has these rules already, at least in that scope.
fn is_known(granted: &Granted<'_>, new: &RuleSet<'_>) -> bool {
    granted.sets.iter().any(|known| {
        known.scope.holds_all_of(new.scope)
            && (same_rules(known.rules, new.rules) || known.allows_everything())
    })
}

fn same_rules(one: &[PolicyRule], other: &[PolicyRule]) -> bool {
    std::ptr::eq(one, other) || one == other
}
