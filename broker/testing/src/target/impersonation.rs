//! Lets a user act as another one, as `keyferry-kube-rbac` decides.

use keyferry_kube_rbac::{Attributes, ImpersonationModes, WantedUser};

use super::rbac::{RbacPolicy, rbac_user};
use crate::identity::UserInfo;
use crate::status::ApiError;

/// The extra of a ServiceAccount's token that names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A request to act as another user.
pub(super) struct Impersonation<'a> {
    pub(super) policy: &'a RbacPolicy,
    pub(super) modes: ImpersonationModes,
    /// The user who sends the request.
    pub(super) requestor: &'a UserInfo,
    /// The user to impersonate.
    pub(super) wanted: &'a UserInfo,
    /// What the request is about.
    pub(super) request: &'a Attributes,
}

impl Impersonation<'_> {
    /// Returns the user that the request is from now on.
    ///
    /// # Errors
    /// 403, with the message of the first mode that refused.
    pub(super) fn user(&self) -> Result<UserInfo, ApiError> {
        let requestor = rbac_user(self.requestor);
        let requestor_nodes = self.requestor.extra.get(NODE_NAME);
        let wanted = WantedUser {
            name: self.wanted.username.clone(),
            uid: self.wanted.uid.clone(),
            groups: self.wanted.groups.clone(),
            extra: self.wanted.extra.clone(),
        };
        let decided = keyferry_kube_rbac::Impersonation {
            policy: &self.policy.objects,
            modes: self.modes,
            requestor: &requestor,
            requestor_node: match requestor_nodes.map(Vec::as_slice) {
                Some([node]) => Some(node),
                _ => None,
            },
            wanted: &wanted,
            request: self.request,
        }
        .decide();
        match decided {
            Ok(impersonated) => Ok(UserInfo {
                username: impersonated.user.name,
                uid: impersonated.user.uid,
                groups: impersonated.user.groups,
                extra: impersonated.user.extra,
            }),
            Err(refusal) => Err(ApiError::not_allowed(
                &self.requestor.username,
                &refusal.attributes,
                &refusal.reason,
            )),
        }
    }
}
