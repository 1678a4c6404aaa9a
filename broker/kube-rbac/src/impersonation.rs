//! Decides whether a user may impersonate another one, and returns the impersonated user.
//!
//! From 1.36 on, kube-apiserver first tries the modes of constrained impersonation (KEP-5284). Each
//! needs two rights: `impersonate:<mode>` on the parts of the other user, and
//! `impersonate-on:<mode>:<verb>` on what the request is about. The last mode is the old verb
//! `impersonate`, which needs no second right. Before 1.36, that mode is the only one.

use std::collections::BTreeMap;

use crate::decision::{Decision, SUPERUSER_GROUP, Way};
use crate::policy::Policy;
use crate::request::{Attributes, ResourceRequest, User};
use crate::user_name::{is_subdomain, node_name, parse_service_account, service_account_groups};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const NODES_GROUP: &str = "system:nodes";
const GROUP: &str = "authentication.k8s.io";
/// From this many groups or extra values on, the right to all of them is checked first.
const MANY_VALUES: usize = 4;

/// The modes that an apiserver tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImpersonationModes {
    /// The verb `impersonate` alone, as before 1.36.
    Legacy,
    /// The constrained modes first, as from 1.36 on.
    Constrained,
}

/// A way in which impersonation is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImpersonationMode {
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

/// The user that the headers of a request ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedUser {
    /// The name.
    pub name: String,
    /// The UID; empty if none is asked for.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further values by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A request to act as another user.
#[derive(Clone, Copy, Debug)]
pub struct Impersonation<'p, 'a> {
    /// The policy that decides.
    pub policy: &'p Policy,
    /// The modes that the apiserver tries.
    pub modes: ImpersonationModes,
    /// The user who sends the request.
    pub requestor: &'a User,
    /// The node of the requestor's Pod, if its token names exactly one.
    pub requestor_node: Option<&'a str>,
    /// The user to impersonate.
    pub wanted: &'a WantedUser,
    /// What the request is about.
    pub request: &'a Attributes,
}

/// An allowed impersonation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated<'a> {
    /// The user that the request is from now on, with the groups that the apiserver adds.
    pub user: WantedUser,
    /// The mode that allowed it.
    pub mode: ImpersonationMode,
    /// A rule for each right that was needed; none for a superuser.
    pub ways: Vec<Way<'a>>,
}

/// A right that an impersonation lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationRefusal {
    /// The right that was asked for.
    pub attributes: Box<Attributes>,
    /// Why it is refused, in the words of the apiserver; empty if no rule allows it.
    pub reason: String,
}

impl ImpersonationMode {
    const CONSTRAINED: [Self; 4] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
    ];

    /// The name in the verbs of the mode.
    pub fn name(self) -> &'static str {
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
    pub fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// The API group of user names, groups and ServiceAccounts: the core group in the legacy mode.
    fn name_group(self) -> &'static str {
        if self.is_constrained() { GROUP } else { "" }
    }
}

impl<'p> Impersonation<'p, '_> {
    /// Returns the user that the request is from now on.
    ///
    /// # Errors
    /// The refusal of the first mode that suits the wanted user.
    pub fn decide(&self) -> Result<Impersonated<'p>, ImpersonationRefusal> {
        let mut refusal = None;
        let constrained = self.modes == ImpersonationModes::Constrained;
        let modes = ImpersonationMode::CONSTRAINED
            .into_iter()
            .filter(|_| constrained);
        for mode in modes {
            if !self.mode_suits_user(mode) {
                continue;
            }
            match self.decide_by(mode) {
                Ok(impersonated) => return Ok(impersonated),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        self.decide_by(ImpersonationMode::Legacy)
            .map_err(|error| refusal.unwrap_or(error))
    }

    /// Whether the mode is for this user at all.
    fn mode_suits_user(&self, mode: ImpersonationMode) -> bool {
        let WantedUser {
            name,
            uid,
            groups,
            extra,
        } = self.wanted;
        let name_alone = uid.is_empty() && groups.is_empty() && extra.is_empty();
        let (node, account) = (node_name(name), parse_service_account(name));
        match mode {
            ImpersonationMode::AssociatedNode => {
                let is_account = parse_service_account(&self.requestor.name).is_some();
                name_alone && is_account && node.is_some() && node == self.requestor_node
            }
            ImpersonationMode::ArbitraryNode => name_alone && node.is_some(),
            ImpersonationMode::ServiceAccount => name_alone && account.is_some(),
            ImpersonationMode::UserInfo => node.is_none() && account.is_none(),
            ImpersonationMode::Legacy => true,
        }
    }

    fn decide_by(&self, mode: ImpersonationMode) -> Result<Impersonated<'p>, ImpersonationRefusal> {
        let mut check = Check {
            impersonation: self,
            mode,
            ways: Vec::new(),
        };
        if mode.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", mode.name(), self.request.verb);
            check.require(self.request.with_verb(verb))?;
        }
        let mut user = self.wanted.clone();
        check.require_name(&mut user)?;
        // Only the order of the refusals differs between the releases.
        if self.modes == ImpersonationModes::Constrained {
            check.require_uid()?;
            check.require_groups()?;
            check.require_extra()?;
        } else {
            check.require_groups()?;
            check.require_extra()?;
            check.require_uid()?;
        }
        add_group_of_authentication(&mut user);
        Ok(Impersonated {
            user,
            mode,
            ways: check.ways,
        })
    }
}

fn add_group_of_authentication(user: &mut WantedUser) {
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let group = match (user.name == ANONYMOUS, has(UNAUTHENTICATED)) {
        (_, true) => return,
        (true, false) => UNAUTHENTICATED,
        (false, false) if has(AUTHENTICATED) => return,
        (false, false) => AUTHENTICATED,
    };
    user.groups.push(group.to_owned());
}

/// The rights of one mode, as they are checked one after the other.
struct Check<'p, 'a> {
    impersonation: &'a Impersonation<'p, 'a>,
    mode: ImpersonationMode,
    ways: Vec<Way<'p>>,
}

impl Check<'_, '_> {
    fn require(&mut self, attributes: Attributes) -> Result<(), ImpersonationRefusal> {
        let Impersonation {
            policy, requestor, ..
        } = *self.impersonation;
        let decision = policy.decide(requestor, &attributes);
        match decision {
            Decision::Superuser => Ok(()),
            Decision::Allowed(way) => {
                self.ways.push(way);
                Ok(())
            }
            Decision::Denied { .. } => Err(ImpersonationRefusal {
                reason: decision.reason(),
                attributes: Box::new(attributes),
            }),
        }
    }

    /// Requires the right to the name, and gives a node or a ServiceAccount its groups.
    fn require_name(&mut self, user: &mut WantedUser) -> Result<(), ImpersonationRefusal> {
        let mode = self.mode;
        let name = &self.impersonation.wanted.name;
        let mut request = ResourceRequest {
            group: mode.name_group().to_owned(),
            resource: "users".to_owned(),
            name: name.clone(),
            ..ResourceRequest::default()
        };
        if let Some(node) = node_name(name).filter(|_| mode.is_constrained()) {
            request.resource = "nodes".to_owned();
            // The right to impersonate one's own node names no node, because it is the same on
            // every node.
            request.name = match mode {
                ImpersonationMode::AssociatedNode => "*".to_owned(),
                _ => node.to_owned(),
            };
            user.groups = vec![NODES_GROUP.to_owned()];
        }
        if let Some((namespace, account)) = parse_service_account(name) {
            request.resource = "serviceaccounts".to_owned();
            request.namespace = namespace.to_owned();
            request.name = account.to_owned();
            if user.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.require(Attributes::resource(&mode.verb(), request))
    }

    fn require_uid(&mut self) -> Result<(), ImpersonationRefusal> {
        match self.impersonation.wanted.uid.as_str() {
            "" => Ok(()),
            uid => self.require(self.impersonated_part(GROUP, "uids", "", uid)),
        }
    }

    fn require_groups(&mut self) -> Result<(), ImpersonationRefusal> {
        let groups = &self.impersonation.wanted.groups;
        let api_group = self.mode.name_group();
        if self.mode.is_constrained() {
            let refuse = |name: &str, reason: &str| ImpersonationRefusal {
                attributes: Box::new(self.impersonated_part(api_group, "groups", "", name)),
                reason: reason.to_owned(),
            };
            if groups.iter().any(String::is_empty) {
                let reason = "impersonating the empty string group is not allowed";
                return Err(refuse("", reason));
            }
            if groups.iter().any(|group| group == SUPERUSER_GROUP) {
                let reason = "impersonating the system:masters group is not allowed";
                return Err(refuse(SUPERUSER_GROUP, reason));
            }
            if groups.len() >= MANY_VALUES {
                let all = self.impersonated_part(api_group, "groups", "", "*");
                if self.require(all).is_ok() {
                    return Ok(());
                }
            }
        }
        for group in groups {
            self.require(self.impersonated_part(api_group, "groups", "", group))?;
        }
        Ok(())
    }

    fn require_extra(&mut self) -> Result<(), ImpersonationRefusal> {
        let extra = &self.impersonation.wanted.extra;
        if self.mode.is_constrained() {
            for (key, values) in extra {
                if let Some(reason) = extra_fault(key, values) {
                    let attributes = Box::new(self.impersonated_part(GROUP, "userextras", "", ""));
                    return Err(ImpersonationRefusal { attributes, reason });
                }
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if count >= MANY_VALUES {
                let all = self.impersonated_part(GROUP, "userextras", "*", "*");
                if self.require(all).is_ok() {
                    return Ok(());
                }
            }
        }
        for (key, values) in extra {
            for value in values {
                self.require(self.impersonated_part(GROUP, "userextras", key, value))?;
            }
        }
        Ok(())
    }

    fn impersonated_part(
        &self,
        group: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> Attributes {
        Attributes::resource(
            &self.mode.verb(),
            ResourceRequest {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                name: name.to_owned(),
                ..ResourceRequest::default()
            },
        )
    }
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
