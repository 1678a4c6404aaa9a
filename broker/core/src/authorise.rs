//! Decides which requester gets a token for which target. Default deny; every route decides here.
//!
//! Each step yields a type that only this step can make. A [`VerifiedCaller`] and the policy make a
//! [`Pair`]. A pair makes a [`Grant`]; for a delegated caller this also needs the hub's access
//! review. The mint takes only a grant, so a token that policy did not allow cannot be requested.
//!
//! A grant shows its requester:
//!
//! ```
//! use keyferry_core::authorise::{Grant, Requester};
//!
//! fn requester(grant: &Grant) -> &Requester {
//!     grant.requester()
//! }
//! ```
//!
//! Nothing makes a grant of another requester from it:
//!
//! ```compile_fail,E0451
//! use keyferry_core::authorise::{Grant, Requester};
//!
//! fn for_another(grant: Grant, requester: Requester) -> Grant {
//!     Grant { requester, ..grant }
//! }
//! ```
//!
//! Nor does what policy allows make one, without the decision:
//!
//! ```compile_fail,E0277
//! use keyferry_core::authorise::{Grant, Requester};
//!
//! fn without_a_decision(requester: Requester) -> Grant {
//!     Grant::from(requester)
//! }
//! ```

mod allowed_request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{DeliveryType, Generation, Policy, TargetCluster, TokenIssuer};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};

use crate::caller::VerifiedCaller;

pub use self::allowed_request::is_system;
use self::allowed_request::{AllowedRequest, find_allowed};

/// The live objects of the hub that decisions need.
pub trait HubView {
    /// The UID of the live ServiceAccount; `None` if it does not exist or is being deleted.
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid>;
    /// The labels of the live Namespace; `None` if it does not exist or is terminating.
    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>>;
}

/// The party that requests a token.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every requester is a caller, so a box would save nothing"
)]
pub enum Requester {
    /// A caller that the server authenticated.
    Caller(VerifiedCaller),
    /// The user of a command line that mints with the user's own rights on the hub. The hub decides
    /// by its RBAC.
    Operator,
    /// A delivery of the access, by its name in the list. The author of the access requested it.
    Delivery(ObjectName),
    /// The controller itself, which tries whether the target of an access accepts a token. The
    /// token goes to that target and to no other place. The author of the access requested it.
    Probe,
}

impl Requester {
    fn identity(&self) -> Option<&ServiceAccountIdentity> {
        match self {
            Self::Caller(caller) => Some(caller.identity()),
            Self::Operator | Self::Delivery(_) | Self::Probe => None,
        }
    }

    /// Whether the caller was authenticated by a token of an external issuer.
    pub fn is_external(&self) -> bool {
        matches!(self, Self::Caller(caller) if caller.external().is_some())
    }

    fn delivery(&self) -> Option<&ObjectName> {
        match self {
            Self::Delivery(name) => Some(name),
            Self::Caller(_) | Self::Operator | Self::Probe => None,
        }
    }
}

/// One combination of requester, ServiceAccount, audience and destination that policy allows.
/// Clones share one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair(Arc<Paired>);

#[derive(Debug, PartialEq, Eq)]
struct Paired {
    requester: Option<ServiceAccountIdentity>,
    /// The delivery that requests the token, if no caller does.
    written_by: Option<ObjectName>,
    access: AccessName,
    access_generation: Generation,
    target: ObjectName,
    target_generation: Generation,
    service_account: ServiceAccountIdentity,
    audience: Audience,
    issuer: TokenIssuer,
    lifetime: Duration,
    rule: usize,
    delivery: DeliveryType,
    via: Via,
}

/// On whose authority a token for the ServiceAccount is minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The ServiceAccount itself, or an operator with rights of their own.
    Itself,
    /// Another ServiceAccount of its namespace: needs an access review by the hub's RBAC.
    Delegate,
    /// The author of the access: an admission policy must have checked that author.
    Author,
}

impl Paired {
    /// Whether it was made for [`Requester::Probe`]: by the author's right, for no object.
    fn is_probe(&self) -> bool {
        self.via == Via::Author && self.written_by.is_none()
    }
}

impl Pair {
    /// The TargetAccess that was named.
    pub fn access(&self) -> &AccessName {
        &self.0.access
    }

    /// The TargetCluster it uses.
    pub fn target(&self) -> &ObjectName {
        &self.0.target
    }

    /// The ServiceAccount to mint for.
    pub fn service_account(&self) -> &ServiceAccountIdentity {
        &self.0.service_account
    }

    /// The token's only audience.
    pub fn audience(&self) -> &Audience {
        &self.0.audience
    }

    /// Which issuer signs the token.
    pub fn issuer(&self) -> TokenIssuer {
        self.0.issuer
    }

    /// The lifetime to request for the token.
    pub fn lifetime(&self) -> Duration {
        self.0.lifetime
    }

    /// The index of the entry of `allow[]` that allowed this combination.
    pub fn rule(&self) -> usize {
        self.0.rule
    }

    /// On whose authority the token is minted.
    pub fn via(&self) -> Via {
        self.0.via
    }
}

/// The hub's answer to the question whether a caller may create tokens for a ServiceAccount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// `allowed` and not `denied`.
    Allowed,
    /// Anything else.
    Refused,
    /// The caller is the ServiceAccount itself, so no review was needed.
    NotAsked,
    /// The hub's admission policy checks the authors of accesses: an author can only name a
    /// ServiceAccount for which they may mint.
    AuthorChecked,
}

/// The right of one requester to one token. Only [`grant_token`] makes it.
#[derive(Clone, Debug)]
pub struct Grant {
    requester: Requester,
    pair: Pair,
}

impl Grant {
    /// The combination that is granted.
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// The requester that gets it.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }
}

/// A requester whose ServiceAccount matches the live one by UID; an operator has none. Only
/// [`require_live`] makes it, and it is valid for one decision.
#[derive(Clone, Copy)]
struct Live<'a>(&'a Requester);

/// Refuses a caller whose ServiceAccount was deleted, or deleted and recreated: TokenReview keeps
/// accepting its token for some seconds.
fn require_live<'a>(requester: &'a Requester, hub: &dyn HubView) -> Result<Live<'a>, Reason> {
    match requester.identity() {
        Some(identity)
            if hub.service_account(&identity.account).as_ref() != Some(&identity.uid) =>
        {
            Err(Reason::CallerIdentityChanged)
        }
        _ => Ok(Live(requester)),
    }
}

/// Returns what the requester asks for, if policy allows it.
///
/// # Errors
/// [`Reason::TargetNotGranted`] for everything that policy does not allow, whatever the cause, so
/// that a caller cannot learn what exists. [`Reason::CallerIdentityChanged`] when the caller is not
/// the live ServiceAccount.
pub fn authorise_request(
    policy: &Policy,
    hub: &dyn HubView,
    requester: &Requester,
    name: &AccessName,
    delivery: DeliveryType,
) -> Result<Pair, Reason> {
    let live = require_live(requester, hub)?;
    find_allowed(policy, hub, live, name, delivery)
        .map(AllowedRequest::into_pair)
        .ok_or(Reason::TargetNotGranted)
}

/// Returns the pair for one delivery of an access, if policy allows it.
///
/// # Errors
/// [`Reason::TargetNotGranted`], for the same causes as for a caller.
pub fn delivery_pair(
    policy: &Policy,
    hub: &dyn HubView,
    name: &AccessName,
    delivery: &ObjectName,
) -> Result<Pair, Reason> {
    let shape = policy
        .accesses
        .get(name)
        .and_then(|access| access.delivery(delivery))
        .ok_or(Reason::TargetNotGranted)?
        .delivery_type;
    authorise_request(
        policy,
        hub,
        &Requester::Delivery(delivery.clone()),
        name,
        shape,
    )
}

/// Makes a grant from a pair, given the hub's access review where one is needed.
///
/// # Errors
/// [`Reason::TargetNotGranted`] when the pair was made for another requester;
/// [`Reason::DelegationForbidden`] when the hub does not allow a delegated caller;
/// [`Reason::AuthorUnchecked`] for a delivery whose author was not checked;
/// [`Reason::TargetSuspended`] when target or access is suspended. Suspension is checked last, so
/// only a requester that may use a target learns its state.
pub fn grant_token(
    policy: &Policy,
    requester: Requester,
    pair: Pair,
    review: Review,
) -> Result<Grant, Reason> {
    check_right(&requester, &pair, review)?;
    let suspended = policy
        .targets
        .get(pair.target())
        .is_none_or(|target| target.suspend)
        || policy
            .accesses
            .get(pair.access())
            .is_none_or(|access| access.suspend);
    if suspended {
        Err(Reason::TargetSuspended)
    } else {
        Ok(Grant { requester, pair })
    }
}

fn check_right(requester: &Requester, Pair(pair): &Pair, review: Review) -> Result<(), Reason> {
    if requester.identity() != pair.requester.as_ref()
        || requester.delivery() != pair.written_by.as_ref()
    {
        return Err(Reason::TargetNotGranted);
    }
    // Neither has an identity, so the rest of the pair cannot tell an operator's from a probe's.
    if matches!(requester, Requester::Probe) != pair.is_probe() {
        return Err(Reason::TargetNotGranted);
    }
    // An external issuer's token stands for one ServiceAccount. That account's own delegations are
    // for its Pods, which the hub has authenticated.
    if pair.via == Via::Delegate && requester.is_external() {
        return Err(Reason::DelegationForbidden);
    }
    if pair.via == Via::Delegate && review != Review::Allowed {
        return Err(Reason::DelegationForbidden);
    }
    if pair.via == Via::Author && review != Review::AuthorChecked {
        return Err(Reason::AuthorUnchecked);
    }
    Ok(())
}

/// Rechecks a grant against policy and the hub's live objects. Runs for every request at the moment
/// of issuance.
///
/// # Errors
/// The reason why the grant is no longer valid. [`Reason::GrantSuperseded`] when the request would
/// be allowed, but for something other than what was minted.
pub fn still_holds(policy: &Policy, hub: &dyn HubView, grant: &Grant) -> Result<(), Reason> {
    let Grant { requester, pair } = grant;
    let live = require_live(requester, hub)?;
    let now = find_allowed(policy, hub, live, pair.access(), pair.0.delivery)
        .ok_or(Reason::TargetNotGranted)?;
    if !now.makes_pair(pair) {
        return Err(Reason::GrantSuperseded);
    }
    // The access review is at most seconds old; the code that asked the hub limits its age.
    let review = match pair.via() {
        Via::Delegate => Review::Allowed,
        Via::Author => Review::AuthorChecked,
        Via::Itself => Review::NotAsked,
    };
    check_right(requester, pair, review)?;
    if now.is_suspended() {
        Err(Reason::TargetSuspended)
    } else {
        Ok(())
    }
}

/// Whether a target would have to refuse the hub's tokens because the hub's issuer is also the
/// target's own issuer.
///
/// If the target's own issuer is not stated, an issuer that Kubernetes distributions give to every
/// cluster counts as its own.
pub fn issuer_collides(hub_issuer: &keyferry_api::issuer::Issuer, target: &TargetCluster) -> bool {
    // No token is minted for a target that is the hub itself, so its issuer does not matter. A
    // relying party that is not a cluster has no issuer of its own.
    if target.issuer != TokenIssuer::Hub
        || target.client_certificates.is_some()
        || !target.is_cluster()
    {
        return false;
    }
    match &target.target_issuer {
        Some(own) => own == hub_issuer,
        None => hub_issuer.is_cluster_default(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
