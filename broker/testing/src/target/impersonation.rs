//! Decides whether a user may impersonate another one, and returns the impersonated user.
//!
//! From 1.36 on, kube-apiserver first tries the modes of constrained impersonation (KEP-5284). Each
//! needs two rights: `impersonate:<mode>` on the parts of the other user, and
//! `impersonate-on:<mode>:<verb>` on what the request is about. The last mode is the old verb
//! `impersonate`, which needs no second right. Before 1.36, that mode is the only one.

use super::rbac::RbacPolicy;
use super::user_name::{is_subdomain, node, service_account, service_account_groups};
use crate::apiserver::policy::Decision;
use crate::apiserver::request_attributes::{RequestAttributes, ResourcePath};
use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use crate::status::ApiError;

/// The group that constrained impersonation never gives.
const MASTERS_GROUP: &str = "system:masters";
const NODES_GROUP: &str = "system:nodes";
const GROUP: &str = "authentication.k8s.io";
/// The extra of a ServiceAccount's token that names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From this many groups or extra values on, the right to all of them is checked first.
const MANY: usize = 4;

/// A way in which impersonation is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount impersonates the node that its own pod runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A ServiceAccount.
    ServiceAccount,
    /// Any other user, with groups, UID and extras.
    UserInfo,
    /// Any user, by the verb `impersonate`.
    Legacy,
}

/// A request to act as another user.
pub(super) struct Impersonation<'a> {
    pub(super) policy: &'a RbacPolicy,
    /// Whether the target tries the constrained modes.
    pub(super) constrained: bool,
    /// The user who sends the request.
    pub(super) requestor: &'a UserInfo,
    /// The user to impersonate.
    pub(super) wanted: &'a UserInfo,
    /// What the request is about.
    pub(super) request: &'a RequestAttributes,
}

impl Mode {
    const CONSTRAINED: [Self; 4] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "legacy",
        }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    /// The verb on the parts of the other user.
    fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }
}

impl Impersonation<'_> {
    /// Returns the user that the request is from now on.
    ///
    /// # Errors
    /// 403, with the message of the first mode that refused.
    pub(super) fn user(&self) -> Result<UserInfo, ApiError> {
        let mut refusal = None;
        let modes = Mode::CONSTRAINED.into_iter().filter(|_| self.constrained);
        for mode in modes.chain([Mode::Legacy]) {
            if !self.suits(mode) {
                continue;
            }
            match self.user_by(mode) {
                Ok(user) => return Ok(user),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(ApiError::internal))
    }

    /// Whether the mode is for this user at all.
    fn suits(&self, mode: Mode) -> bool {
        let UserInfo {
            username,
            uid,
            groups,
            extra,
        } = self.wanted;
        let name_alone = uid.is_empty() && groups.is_empty() && extra.is_empty();
        match mode {
            Mode::AssociatedNode => {
                let own_node = self.requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                let is_account = service_account(&self.requestor.username).is_some();
                let wanted = node(username);
                name_alone
                    && is_account
                    && matches!((own_node, wanted), (Some([own]), Some(wanted)) if own == wanted)
            }
            Mode::ArbitraryNode => name_alone && node(username).is_some(),
            Mode::ServiceAccount => name_alone && service_account(username).is_some(),
            Mode::UserInfo => node(username).is_none() && service_account(username).is_none(),
            Mode::Legacy => true,
        }
    }

    fn user_by(&self, mode: Mode) -> Result<UserInfo, ApiError> {
        if mode.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", mode.name(), self.request.verb);
            self.check(&RequestAttributes {
                verb,
                object: self.request.object.clone(),
            })?;
        }
        let mut user = self.wanted.clone();
        self.check_name(mode, &mut user)?;
        // Only the order of the refusals differs between the releases.
        if self.constrained {
            self.check_uid(mode)?;
            self.check_groups(mode)?;
            self.check_extra(mode)?;
        } else {
            self.check_groups(mode)?;
            self.check_extra(mode)?;
            self.check_uid(mode)?;
        }
        let has = |group: &str| user.groups.iter().any(|it| it == group);
        if user.username == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(UNAUTHENTICATED) && !has(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(user)
    }

    /// Checks the right to the name, and gives a node or a ServiceAccount its groups.
    fn check_name(&self, mode: Mode, user: &mut UserInfo) -> Result<(), ApiError> {
        let name = &self.wanted.username;
        let mut wanted = ResourcePath {
            group: name_group(mode).to_owned(),
            resource: "users".to_owned(),
            name: name.clone(),
            ..ResourcePath::default()
        };
        if let Some(node) = node(name).filter(|_| mode.is_constrained()) {
            wanted.resource = "nodes".to_owned();
            // The right to impersonate one's own node names no node, because it is the same on
            // every node.
            wanted.name = match mode {
                Mode::AssociatedNode => "*".to_owned(),
                _ => node.to_owned(),
            };
            user.groups = vec![NODES_GROUP.to_owned()];
        }
        if let Some((namespace, account)) = service_account(name) {
            wanted.resource = "serviceaccounts".to_owned();
            wanted.namespace = namespace.to_owned();
            wanted.name = account.to_owned();
            if user.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.check(&RequestAttributes::on(mode.verb(), wanted))
    }

    fn check_uid(&self, mode: Mode) -> Result<(), ApiError> {
        if self.wanted.uid.is_empty() {
            return Ok(());
        }
        self.check_part(mode, GROUP, "uids", "", &self.wanted.uid)
    }

    fn check_groups(&self, mode: Mode) -> Result<(), ApiError> {
        let groups = &self.wanted.groups;
        let check = |name: &str| self.check_part(mode, name_group(mode), "groups", "", name);
        let refuse = |name: &str, reason: &str| {
            Err(self.refusal_of_part(mode, name_group(mode), "groups", name, reason))
        };
        if mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return refuse("", "impersonating the empty string group is not allowed");
            }
            if groups.iter().any(|group| group == MASTERS_GROUP) {
                let reason = "impersonating the system:masters group is not allowed";
                return refuse(MASTERS_GROUP, reason);
            }
            if groups.len() >= MANY && check("*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| check(group))
    }

    fn check_extra(&self, mode: Mode) -> Result<(), ApiError> {
        let extra = &self.wanted.extra;
        let check = |key: &str, value: &str| self.check_part(mode, GROUP, "userextras", key, value);
        if mode.is_constrained() {
            for (key, values) in extra {
                if let Some(reason) = extra_fault(key, values) {
                    return Err(self.refusal_of_part(mode, GROUP, "userextras", "", &reason));
                }
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if count >= MANY && check("*", "*").is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            values.iter().try_for_each(|value| check(key, value))?;
        }
        Ok(())
    }

    fn check_part(
        &self,
        mode: Mode,
        group: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        self.check(&part(mode, group, resource, subresource, name))
    }

    fn refusal_of_part(
        &self,
        mode: Mode,
        group: &str,
        resource: &str,
        name: &str,
        reason: &str,
    ) -> ApiError {
        let attributes = part(mode, group, resource, "", name);
        ApiError::not_allowed(&self.requestor.username, &attributes, reason)
    }

    fn check(&self, attributes: &RequestAttributes) -> Result<(), ApiError> {
        match self.policy.decide(self.requestor, attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed(reason) => Err(ApiError::not_allowed(
                &self.requestor.username,
                attributes,
                &reason,
            )),
        }
    }
}

/// The API group of user names, groups and ServiceAccounts: the core group in the legacy mode.
fn name_group(mode: Mode) -> &'static str {
    if mode.is_constrained() { GROUP } else { "" }
}

fn part(
    mode: Mode,
    group: &str,
    resource: &str,
    subresource: &str,
    name: &str,
) -> RequestAttributes {
    RequestAttributes::on(
        mode.verb(),
        ResourcePath {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..ResourcePath::default()
        },
    )
}

/// What constrained impersonation refuses about an extra.
fn extra_fault(key: &str, values: &[String]) -> Option<String> {
    let path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    let valid = key.split_once('/').is_some_and(|(host, rest)| {
        is_subdomain(host) && !rest.is_empty() && rest.bytes().all(path)
    });
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    if !valid {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: key: Invalid value: {key:?}: \
             must be a domain-prefixed path (such as \"acme.io/foo\")"
        ));
    }
    if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key:?}"
        ));
    }
    if values.iter().any(String::is_empty) {
        return Some("impersonating the empty string value in extra is not allowed".to_owned());
    }
    None
}
