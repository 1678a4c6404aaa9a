//! All roles and bindings of a cluster, with the indexes that make questions cheap.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::object::{
    Binding, ObjectId, ObjectKind, RbacObject, Role, RoleKind, Subject, SubjectKind,
};
use crate::request::User;
use crate::user_name::service_account_user;

/// The roles and bindings of a cluster.
///
/// A policy is independent of the order in which its objects came: answers that could name several
/// bindings name the first one by name. A clone shares the objects.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    cluster: Scope,
    namespaces: BTreeMap<String, Scope>,
}

/// The objects of one namespace, or those of the whole cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    roles: BTreeMap<String, Arc<Role>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    by_user: HashMap<String, Vec<BoundSubject>>,
    by_group: HashMap<String, Vec<BoundSubject>>,
}

/// A subject of a binding.
#[derive(Clone, Debug)]
struct BoundSubject {
    binding: Arc<Binding>,
    index: usize,
}

/// What a subject of a binding is compared with.
enum SubjectName<'a> {
    User(std::borrow::Cow<'a, str>),
    Group(&'a str),
}

impl Policy {
    /// Adds an object, and returns the one of the same kind, namespace and name that it replaces.
    pub fn insert(&mut self, object: RbacObject) -> Option<RbacObject> {
        let id = object.id();
        let replaced = self.remove(id);
        let scope = match id.namespace.as_str() {
            "" => &mut self.cluster,
            namespace => self.namespaces.entry(namespace.to_owned()).or_default(),
        };
        match object {
            RbacObject::Role(role) => {
                scope.roles.insert(role.id.name.clone(), Arc::new(role));
            }
            RbacObject::Binding(binding) => scope.insert_binding(Arc::new(binding)),
        }
        replaced
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, id: &ObjectId) -> Option<RbacObject> {
        let scope = match id.namespace.as_str() {
            "" => &mut self.cluster,
            namespace => self.namespaces.get_mut(namespace)?,
        };
        match id.kind {
            ObjectKind::Role | ObjectKind::ClusterRole => {
                let role = scope.roles.remove(&id.name)?;
                Some(RbacObject::Role(Arc::unwrap_or_clone(role)))
            }
            ObjectKind::RoleBinding | ObjectKind::ClusterRoleBinding => {
                let binding = scope.remove_binding(&id.name)?;
                Some(RbacObject::Binding(Arc::unwrap_or_clone(binding)))
            }
        }
    }

    /// The Role or ClusterRole with this id.
    pub fn role(&self, id: &ObjectId) -> Option<&Role> {
        if !matches!(id.kind, ObjectKind::Role | ObjectKind::ClusterRole) {
            return None;
        }
        let role = self.scope(&id.namespace)?.roles.get(&id.name)?;
        Some(role)
            .filter(|role| role.id.kind == id.kind)
            .map(Arc::as_ref)
    }

    /// The RoleBinding or ClusterRoleBinding with this id.
    pub fn binding(&self, id: &ObjectId) -> Option<&Binding> {
        if !matches!(
            id.kind,
            ObjectKind::RoleBinding | ObjectKind::ClusterRoleBinding
        ) {
            return None;
        }
        let binding = self.scope(&id.namespace)?.bindings.get(&id.name)?;
        Some(binding)
            .filter(|binding| binding.id.kind == id.kind)
            .map(Arc::as_ref)
    }

    /// All Roles and ClusterRoles: those of the whole cluster first, then by namespace and name.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.scopes()
            .flat_map(|scope| scope.roles.values().map(Arc::as_ref))
    }

    /// All bindings, in the same order.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.scopes()
            .flat_map(|scope| scope.bindings.values().map(Arc::as_ref))
    }

    /// The ClusterRoles, by name.
    pub fn cluster_roles(&self) -> impl Iterator<Item = &Role> {
        self.cluster.roles.values().map(Arc::as_ref)
    }

    /// The ClusterRole of this name.
    pub fn cluster_role(&self, name: &str) -> Option<&Role> {
        self.cluster.roles.get(name).map(Arc::as_ref)
    }

    /// The namespaces that have an object, in their order.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(String::as_str)
    }

    /// The role that a binding grants, if it exists.
    pub fn granted_role(&self, binding: &Binding) -> Option<&Role> {
        let name = &binding.role_ref.name;
        let role = match binding.role_ref.kind {
            RoleKind::ClusterRole => self.cluster.roles.get(name),
            // Nothing is both a Role and cluster-wide, so a ClusterRoleBinding of a Role gives nothing.
            RoleKind::Role => self.namespaces.get(&binding.id.namespace)?.roles.get(name),
            RoleKind::Unsupported(_) => None,
        };
        role.map(Arc::as_ref)
    }

    /// The bindings that count for a request in the namespace, with the first subject that is the
    /// user: the cluster-wide ones first.
    pub(crate) fn bindings_of<'a>(
        &'a self,
        user: &User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> + use<'a> {
        let cluster = self.cluster.bindings_of(user);
        let local = self
            .namespaces
            .get(namespace)
            .map(|scope| scope.bindings_of(user))
            .unwrap_or_default();
        cluster.into_iter().chain(local)
    }

    /// The bindings of every namespace but one that name the user.
    pub(crate) fn bindings_elsewhere<'a>(
        &'a self,
        user: &User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        self.namespaces
            .iter()
            .filter(move |(other, _)| *other != namespace)
            .flat_map(|(_, scope)| scope.bindings_of(user))
    }

    /// The bindings that count for a request in the namespace.
    pub(crate) fn bindings_in(&self, namespace: &str) -> impl Iterator<Item = &Binding> {
        let local = self.namespaces.get(namespace).into_iter();
        std::iter::once(&self.cluster)
            .chain(local)
            .flat_map(|scope| scope.bindings.values().map(Arc::as_ref))
    }

    fn scope(&self, namespace: &str) -> Option<&Scope> {
        match namespace {
            "" => Some(&self.cluster),
            namespace => self.namespaces.get(namespace),
        }
    }

    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        std::iter::once(&self.cluster).chain(self.namespaces.values())
    }
}

impl Scope {
    fn insert_binding(&mut self, binding: Arc<Binding>) {
        for (index, subject) in binding.subjects.iter().enumerate() {
            let bound = BoundSubject {
                binding: Arc::clone(&binding),
                index,
            };
            match subject_name(&binding, subject) {
                Some(SubjectName::User(name)) => {
                    self.by_user
                        .entry(name.into_owned())
                        .or_default()
                        .push(bound);
                }
                Some(SubjectName::Group(name)) => {
                    self.by_group
                        .entry(name.to_owned())
                        .or_default()
                        .push(bound);
                }
                None => {}
            }
        }
        self.bindings.insert(binding.id.name.clone(), binding);
    }

    fn remove_binding(&mut self, name: &str) -> Option<Arc<Binding>> {
        let binding = self.bindings.remove(name)?;
        for subject in &binding.subjects {
            let (index, name) = match subject_name(&binding, subject) {
                Some(SubjectName::User(name)) => (&mut self.by_user, name),
                Some(SubjectName::Group(name)) => (&mut self.by_group, name.into()),
                None => continue,
            };
            if let Some(bound) = index.get_mut(name.as_ref()) {
                bound.retain(|bound| bound.binding.id.name != binding.id.name);
                if bound.is_empty() {
                    index.remove(name.as_ref());
                }
            }
        }
        Some(binding)
    }

    /// The bindings that name the user, by name, each with its first subject that does.
    fn bindings_of(&self, user: &User) -> Vec<(&Binding, &Subject)> {
        let by_user = self.by_user.get(&user.name).into_iter();
        let by_group = user
            .groups
            .iter()
            .filter_map(|group| self.by_group.get(group));
        let mut bound: Vec<&BoundSubject> = by_user.chain(by_group).flatten().collect();
        bound.sort_by(|left, right| left.position().cmp(&right.position()));
        bound.dedup_by(|left, right| left.binding.id.name == right.binding.id.name);
        bound
            .into_iter()
            .filter_map(|BoundSubject { binding, index }| {
                Some((binding.as_ref(), binding.subjects.get(*index)?))
            })
            .collect()
    }
}

impl BoundSubject {
    /// What a binding is listed by, and its subject within it.
    fn position(&self) -> (&str, usize) {
        (&self.binding.id.name, self.index)
    }
}

/// What a subject is compared with; `None` if it is nobody.
///
/// The authorizer compares a ServiceAccount by its user name alone, so it is indexed as that user.
fn subject_name<'a>(binding: &'a Binding, subject: &'a Subject) -> Option<SubjectName<'a>> {
    match subject.kind {
        SubjectKind::User => Some(SubjectName::User(subject.name.as_str().into())),
        SubjectKind::Group => Some(SubjectName::Group(&subject.name)),
        SubjectKind::ServiceAccount => {
            let namespace = subject.namespace_in(&binding.id.namespace);
            let user_name = || service_account_user(namespace, &subject.name);
            (!namespace.is_empty()).then(|| SubjectName::User(user_name().into()))
        }
        SubjectKind::Unsupported(_) => None,
    }
}
