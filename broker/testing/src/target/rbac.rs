//! The roles and bindings of a target, as `keyferry-kube-rbac` evaluates them.

use keyferry_kube_rbac::{Attributes, Fault, Policy, PolicyRule, User};
use serde_json::{Value, json};

use crate::apiserver::policy::Decision;
use crate::identity::UserInfo;

/// The Roles, ClusterRoles and bindings of a target.
///
/// The policy of a file also has the rules that every cluster starts with, such as
/// `system:basic-user`.
#[derive(Clone, Debug, Default)]
pub struct RbacPolicy {
    pub(super) objects: Policy,
}

impl RbacPolicy {
    /// Decides whether the user may do what the attributes describe.
    pub(super) fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let decision = self.objects.decide(&rbac_user(user), attributes);
        let reason = decision.reason();
        match decision.is_allowed() {
            true => Decision::Allowed(reason),
            false => Decision::NotAllowed(reason),
        }
    }

    /// Returns every rule that a binding of the whole cluster or of the namespace gives the user, in
    /// the order in which the RBAC authorizer visits them, and what it reports of missing roles.
    pub(super) fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<&PolicyRule>, String) {
        let granted = self.objects.rules_of(&rbac_user(user), namespace);
        let rules = granted.ways.iter().map(|way| way.rule).collect();
        (rules, Fault::joined(&granted.faults))
    }
}

/// The parts of a user that RBAC reads.
pub(super) fn rbac_user(user: &UserInfo) -> User {
    User {
        name: user.username.clone(),
        uid: None,
        groups: user.groups.clone(),
    }
}

/// The rule in a SelfSubjectRulesReview, if it is about resources.
pub(super) fn resource_rule(rule: &PolicyRule) -> Option<Value> {
    let mut review = json!({
        "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
    });
    if !rule.resource_names.is_empty() {
        review["resourceNames"] = json!(rule.resource_names);
    }
    (!rule.resources.is_empty()).then_some(review)
}

/// The rule in a SelfSubjectRulesReview, if it is about paths.
pub(super) fn path_rule(rule: &PolicyRule) -> Option<Value> {
    let review = || json!({ "verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls });
    (!rule.non_resource_urls.is_empty()).then(review)
}
