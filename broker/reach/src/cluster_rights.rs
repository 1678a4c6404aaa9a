//! The RBAC of one cluster, indexed by subject: what each actor is granted, and what is not known.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use keyferry_api::name::ObjectName;
use keyferry_kube_rbac::{Binding, Policy, PolicyRule, SubjectKind, parse_service_account};

use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::granted::{Granted, RuleSet, Scope, Source};
use crate::list::{ListKind, Lists};
use crate::right::RightSet;

/// The RBAC of a cluster. What an actor is granted is computed once.
pub(crate) struct ClusterRights<'w> {
    /// The target; `None` for the hub.
    pub(crate) target: Option<&'w ObjectName>,
    pub(crate) policy: &'w Policy,
    lists: &'w Lists,
    by_user: HashMap<String, Vec<&'w Binding>>,
    by_group: HashMap<&'w str, Vec<&'w Binding>>,
    /// The users, groups and ServiceAccounts that bindings name.
    pub(crate) users: BTreeSet<&'w str>,
    pub(crate) groups: BTreeSet<&'w str>,
    pub(crate) accounts: BTreeSet<(&'w str, &'w str)>,
    /// The lists that were not read whole: any actor may have more rights.
    pub(crate) doubts: Vec<Doubt>,
    granted: RefCell<HashMap<Actor, Rc<Granted<'w>>>>,
    rule_rights: RefCell<HashMap<*const PolicyRule, RightSet>>,
}

impl<'w> ClusterRights<'w> {
    pub(crate) fn new(
        target: Option<&'w ObjectName>,
        policy: &'w Policy,
        lists: &'w Lists,
    ) -> Self {
        let mut rights = Self {
            target,
            policy,
            lists,
            by_user: HashMap::new(),
            by_group: HashMap::new(),
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            accounts: BTreeSet::new(),
            doubts: Vec::new(),
            granted: RefCell::default(),
            rule_rights: RefCell::default(),
        };
        for kind in [ListKind::ClusterRoleBindings, ListKind::RoleBindings] {
            if !lists.is_whole(kind) {
                rights.doubts.push(rights.list_doubt(kind, None));
            }
        }
        for binding in policy.bindings() {
            rights.index(binding);
        }
        rights
    }

    pub(crate) fn list_doubt(&self, kind: ListKind, namespace: Option<&str>) -> Doubt {
        Doubt::List {
            target: self.target.cloned(),
            resource: kind.resource(),
            namespace: namespace.map(str::to_owned),
        }
    }

    fn index(&mut self, binding: &'w Binding) {
        for subject in &binding.subjects {
            match subject.kind {
                SubjectKind::User => {
                    match parse_service_account(&subject.name) {
                        Some(account) => self.accounts.insert(account),
                        None => self.users.insert(&subject.name),
                    };
                    self.add_user(subject.name.clone(), binding);
                }
                SubjectKind::Group => {
                    self.groups.insert(&subject.name);
                    let bound = self.by_group.entry(&subject.name).or_default();
                    push_once(bound, binding);
                }
                SubjectKind::ServiceAccount => {
                    let namespace = subject.namespace_in(&binding.id.namespace);
                    if !namespace.is_empty() {
                        self.accounts.insert((namespace, &subject.name));
                        let user = format!("system:serviceaccount:{namespace}:{}", subject.name);
                        self.add_user(user, binding);
                    }
                }
                SubjectKind::Unsupported(_) => {}
            }
        }
    }

    fn add_user(&mut self, user: String, binding: &'w Binding) {
        push_once(self.by_user.entry(user).or_default(), binding);
    }

    /// What RBAC grants an actor, with what it can grant itself.
    pub(crate) fn granted(&self, actor: &Actor) -> Rc<Granted<'w>> {
        if let Some(known) = self.granted.borrow().get(actor) {
            return Rc::clone(known);
        }
        let mut granted = self.bound(actor);
        self.add_own_grants(&mut granted);
        for rule in granted.sets.iter().flat_map(|set| set.rules) {
            granted.rights = granted.rights.union(self.rights_of(rule));
        }
        let granted = Rc::new(granted);
        let mut memo = self.granted.borrow_mut();
        memo.insert(actor.clone(), Rc::clone(&granted));
        granted
    }

    /// What bindings grant an actor.
    fn bound(&self, actor: &Actor) -> Granted<'w> {
        let mut granted = Granted::default();
        if actor.is_superuser() {
            granted.sets.push(RuleSet::of_superuser());
            return granted;
        }
        if actor.is_node() {
            granted.doubts.push(Doubt::fact(
                "the Node authorizer is not evaluated",
                "ask the cluster: kubectl auth can-i --as",
            ));
        }
        let mut bindings: BTreeMap<_, &'w Binding> = BTreeMap::new();
        let by_user = self.by_user.get(&actor.user).into_iter().flatten();
        let by_group = actor
            .groups
            .iter()
            .filter_map(|group| self.by_group.get(group.as_str()))
            .flatten();
        for binding in by_user.chain(by_group) {
            bindings.insert(&binding.id, binding);
        }
        for binding in bindings.into_values() {
            let scope = match binding.id.namespace.as_str() {
                "" => Scope::Cluster,
                namespace => Scope::Namespace(namespace),
            };
            match self.policy.granted_role(binding) {
                Some(role) => granted.sets.push(RuleSet {
                    scope,
                    rules: &role.rules,
                    role: Some(role),
                    source: Source::Binding(binding),
                }),
                None => granted.doubts.extend(self.doubt_of_role(binding)),
            }
        }
        granted
    }

    /// The list that may have the role that a binding names; `None` if the role does not exist.
    fn doubt_of_role(&self, binding: &Binding) -> Option<Doubt> {
        let namespace = binding.id.namespace.as_str();
        match binding.role_ref.kind.name() {
            "ClusterRole" if !self.lists.is_whole(ListKind::ClusterRoles) => {
                Some(self.list_doubt(ListKind::ClusterRoles, None))
            }
            "Role" if namespace.is_empty() => None,
            "Role" if !self.lists.is_whole_in(ListKind::Roles, namespace) => {
                Some(self.list_doubt(ListKind::Roles, Some(namespace)))
            }
            _ => None,
        }
    }

    pub(crate) fn has_whole(&self, kind: ListKind) -> bool {
        self.lists.is_whole(kind)
    }

    /// The rights of a rule that open doors.
    pub(crate) fn rights_of(&self, rule: &'w PolicyRule) -> RightSet {
        let mut memo = self.rule_rights.borrow_mut();
        *memo
            .entry(std::ptr::from_ref(rule))
            .or_insert_with(|| RightSet::of_rule(rule))
    }
}

fn push_once<'w>(bindings: &mut Vec<&'w Binding>, binding: &'w Binding) {
    if bindings.last().is_none_or(|last| last.id != binding.id) {
        bindings.push(binding);
    }
}
