//! Grants: the embedded hub's whole authorisation. No grant, no access.

use crate::identity::UserInfo;

/// The user or group of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user name, such as `system:serviceaccount:ci:deployer`.
    User(String),
    /// A group, such as `system:serviceaccounts:ci`.
    Group(String),
}

/// One permission: what a Role and its binding say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    subject: Subject,
    verb: String,
    api_group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Grant {
    /// Allows `verb` on `resource` of the core group, everywhere. As in RBAC a subresource is
    /// written `serviceaccounts/token`, and `*` stands for any verb or any resource. A path of no
    /// resource, such as `/metrics`, is written as it is.
    #[must_use]
    pub fn new(subject: Subject, verb: &str, resource: &str) -> Self {
        Self {
            subject,
            verb: verb.to_owned(),
            api_group: String::new(),
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        }
    }

    /// Applies the grant to this API group instead of the core group.
    #[must_use]
    pub fn api_group(mut self, api_group: &str) -> Self {
        api_group.clone_into(&mut self.api_group);
        self
    }

    /// Limits the grant to this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Limits the grant to the object of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(super) fn allows(&self, user: &UserInfo, wanted: &Wanted) -> bool {
        let of_user = match &self.subject {
            Subject::User(name) => *name == user.username,
            Subject::Group(group) => user.groups.contains(group),
        };
        let any = |granted: &str, wanted: &str| granted == "*" || granted == wanted;
        let only = |granted: &Option<String>, wanted: &str| {
            granted.as_deref().is_none_or(|granted| granted == wanted)
        };
        of_user
            && any(&self.verb, &wanted.verb)
            && any(&self.api_group, &wanted.api_group)
            && any(&self.resource, &wanted.resource)
            && only(&self.namespace, &wanted.namespace)
            && only(&self.name, &wanted.name)
    }
}

/// An action that a caller requests. `resource` carries its subresource after a slash; an empty
/// namespace means all of them, an empty name any.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) verb: String,
    pub(super) api_group: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
}
