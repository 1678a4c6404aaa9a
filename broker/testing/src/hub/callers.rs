//! Authenticates the hub's callers and checks their rights.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::HeaderMap;
use secrecy::ExposeSecret;

use super::access::Wanted;
use super::state::HubState;
use super::verify;
use crate::identity::{AUTHENTICATED, UserInfo, bearer};
use crate::locked;
use crate::status::ApiError;

/// User name behind the broker token.
pub(super) const BROKER: &str = "system:serviceaccount:keyferry-system:keyferry";

/// An authenticated caller.
pub(super) struct Caller {
    pub(super) user: UserInfo,
    unlimited: bool,
}

impl Caller {
    /// Authenticates by the broker token or by a token of this hub for the hub itself; else 401.
    pub(super) fn of(hub: &HubState, headers: &HeaderMap) -> Result<Self, ApiError> {
        let token = bearer(headers).ok_or_else(ApiError::unauthorized)?;
        let broker = hub.broker_token.expose_secret();
        if verify_slices_are_equal(token.as_bytes(), broker.as_bytes()).is_ok() {
            return Ok(Self {
                user: broker_user(),
                unlimited: true,
            });
        }
        let verified = verify::token(hub, token, &[]).map_err(|_| ApiError::unauthorized())?;
        Ok(Self {
            user: verified.user,
            unlimited: false,
        })
    }

    /// Decides like RBAC, from the grants alone.
    pub(super) fn may(&self, hub: &HubState, wanted: &Wanted) -> bool {
        self.unlimited || granted(hub, &self.user, wanted)
    }

    /// Refuses with 403 what the caller may not do.
    pub(super) fn must(&self, hub: &HubState, wanted: &Wanted) -> Result<(), ApiError> {
        if self.may(hub, wanted) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!(
            "{} {:?} is forbidden: User {:?} cannot {} resource {:?} in API group {:?} in the \
             namespace {:?}",
            wanted.resource,
            wanted.name,
            self.user.username,
            wanted.verb,
            wanted.resource,
            wanted.api_group,
            wanted.namespace,
        )))
    }
}

/// Whether any grant covers the action.
pub(super) fn granted(hub: &HubState, user: &UserInfo, wanted: &Wanted) -> bool {
    locked(&hub.grants)
        .iter()
        .any(|grant| grant.allows(user, wanted))
}

fn broker_user() -> UserInfo {
    UserInfo {
        username: BROKER.to_owned(),
        uid: "00000000-0000-4000-8000-000000000000".to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            "system:serviceaccounts:keyferry-system".to_owned(),
            AUTHENTICATED.to_owned(),
        ],
        ..UserInfo::default()
    }
}
