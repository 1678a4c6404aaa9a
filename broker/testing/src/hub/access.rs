//! Grants: the embedded hub's whole authorisation. No grant, no access.

use crate::identity::UserInfo;
use keyferry_kube_rbac::{Attributes, RequestTarget};

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

    pub(super) fn allows(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let is_for_user = match &self.subject {
            Subject::User(name) => *name == user.username,
            Subject::Group(group) => user.groups.contains(group),
        };
        let is_any_or = |granted: &str, requested: &str| granted == "*" || granted == requested;
        let is_limited_to = |granted: &Option<String>, requested: &str| {
            granted
                .as_deref()
                .is_none_or(|granted| granted == requested)
        };
        let covers_object = match &attributes.target {
            RequestTarget::Resource(object) => {
                is_any_or(&self.api_group, &object.group)
                    && is_any_or(&self.resource, &object.combined())
                    && is_limited_to(&self.namespace, &object.namespace)
                    && is_limited_to(&self.name, &object.name)
            }
            RequestTarget::Path(path) => {
                self.api_group.is_empty()
                    && is_any_or(&self.resource, path)
                    && self.namespace.is_none()
                    && self.name.is_none()
            }
        };
        is_for_user && is_any_or(&self.verb, &attributes.verb) && covers_object
    }
}
