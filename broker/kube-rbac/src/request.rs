//! Who asks, and for what.

use std::fmt;

use crate::user_name::service_account_groups;

/// A user as the authorizer sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The UID, which RBAC never reads.
    pub uid: Option<String>,
    /// The groups, with those that the apiserver adds, such as `system:authenticated`.
    pub groups: Vec<String>,
}

/// What a request does to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The verb, such as `get` or `deletecollection`.
    pub verb: String,
    /// What the verb is applied to.
    pub target: RequestTarget,
}

/// What a verb is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// A resource of the API.
    Resource(ResourceRequest),
    /// Any other path, such as `/version`.
    Path(String),
}

/// A resource of the API, with empty texts for what a request does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, such as `deployments`.
    pub resource: String,
    /// The subresource, such as `scale`.
    pub subresource: String,
    /// The namespace; empty for a cluster-wide resource, or for all namespaces.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl User {
    /// A user with a name and groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    /// A ServiceAccount with the groups that its token gives it.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push("system:authenticated".to_owned());
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: None,
            groups,
        }
    }
}

impl Attributes {
    /// The attributes of a verb on a resource.
    pub fn resource(verb: &str, request: ResourceRequest) -> Self {
        Self {
            verb: verb.to_owned(),
            target: RequestTarget::Resource(request),
        }
    }

    /// The attributes of a verb on a path outside the API's resources.
    pub fn path(verb: &str, path: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            target: RequestTarget::Path(path.to_owned()),
        }
    }

    /// The namespace; empty for what is in none.
    pub fn namespace(&self) -> &str {
        match &self.target {
            RequestTarget::Resource(request) => &request.namespace,
            RequestTarget::Path(_) => "",
        }
    }

    /// The same request with another verb.
    pub fn with_verb(&self, verb: String) -> Self {
        Self {
            verb,
            target: self.target.clone(),
        }
    }
}

impl ResourceRequest {
    /// `RESOURCE`, or `RESOURCE/SUBRESOURCE`.
    pub fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// `RESOURCE.GROUP/SUBRESOURCE`, then the name and the namespace if there are any.
impl fmt::Display for ResourceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        match self.namespace.as_str() {
            "" => Ok(()),
            namespace => write!(f, " in {namespace}"),
        }
    }
}

/// The verb and what it is applied to.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            RequestTarget::Resource(request) => write!(f, "{} {request}", self.verb),
            RequestTarget::Path(path) => write!(f, "{} {path}", self.verb),
        }
    }
}
