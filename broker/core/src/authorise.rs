//! Who may have what. Default deny, one place, every route.
//!
//! The steps make types, each of which only the step before can yield: a [`VerifiedCaller`] and the
//! policy make a [`Pair`]; a pair and, for a delegated caller, the hub's own answer make a
//! [`Grant`]. The mint takes a grant and nothing else, so a token that policy did not allow cannot
//! be asked for.

mod found;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::audience::Audience;
use crate::caller::VerifiedCaller;
use crate::config::{DeliveryType, Generation, Policy, TargetCluster, TokenIssuer};
use crate::name::{AccessName, Namespace, ObjectName};
use crate::reason::Reason;
use crate::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};

pub(crate) use self::found::is_system;
use self::found::{Found, find};

/// The hub's live objects, as far as decisions need them.
pub trait HubView {
    /// The UID of the live ServiceAccount, nothing if there is none or it is being deleted.
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid>;
    /// The labels of the live Namespace, nothing if there is none or it is terminating.
    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>>;
}

/// Who asks.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every requester is a caller, so a box would save nothing"
)]
pub enum Requester {
    /// A caller that proved itself to the server.
    Caller(VerifiedCaller),
    /// The user of a command line that mints with the user's own rights on the hub: the hub decides
    /// by its RBAC.
    Operator,
    /// A delivery of the access, by its name in the list: whoever wrote the access asked for it.
    Delivery(ObjectName),
}

impl Requester {
    fn identity(&self) -> Option<&ServiceAccountIdentity> {
        match self {
            Self::Caller(caller) => Some(caller.identity()),
            Self::Operator | Self::Delivery(_) => None,
        }
    }

    fn delivery(&self) -> Option<&ObjectName> {
        match self {
            Self::Delivery(name) => Some(name),
            Self::Caller(_) | Self::Operator => None,
        }
    }
}

/// One allowed combination of requester, ServiceAccount, audience and destination. A copy is the
/// same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair(Arc<Paired>);

#[derive(Debug, PartialEq, Eq)]
struct Paired {
    requester: Option<ServiceAccountIdentity>,
    /// The delivery that asks, where no caller does.
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

/// Who speaks for the ServiceAccount that is minted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The ServiceAccount itself, or an operator with rights of his own.
    Itself,
    /// Another ServiceAccount of its namespace: the hub's RBAC must be asked.
    Delegate,
    /// Whoever wrote the access: an admission policy must have checked that author.
    Author,
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

    /// The one audience.
    pub fn audience(&self) -> &Audience {
        &self.0.audience
    }

    /// Who signs.
    pub fn issuer(&self) -> TokenIssuer {
        self.0.issuer
    }

    /// The lifetime to ask for.
    pub fn lifetime(&self) -> Duration {
        self.0.lifetime
    }

    /// Which entry of `allow[]` allowed it.
    pub fn rule(&self) -> usize {
        self.0.rule
    }

    /// Who speaks for the ServiceAccount.
    pub fn via(&self) -> Via {
        self.0.via
    }
}

/// The hub's answer to "may this caller create tokens for that ServiceAccount".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// `allowed` and not `denied`.
    Allowed,
    /// Anything else.
    Refused,
    /// The caller is the ServiceAccount itself, so nothing was asked.
    NotAsked,
    /// The hub's admission policy checks the authors of accesses: nobody can write one for a
    /// ServiceAccount that he may not mint for.
    AuthorChecked,
}

/// The right to one token, held by one requester. Only [`grant`] makes it.
#[derive(Clone, Debug)]
pub struct Grant {
    requester: Requester,
    pair: Pair,
}

impl Grant {
    /// What is granted.
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// To whom.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }
}

/// A requester whose ServiceAccount is the live one, by UID; an operator has none. Only [`live`]
/// makes it, for one look.
#[derive(Clone, Copy)]
struct Live<'a>(&'a Requester);

/// Deleted, or deleted and made anew, it is refused: TokenReview goes on accepting its token for
/// some seconds.
fn live<'a>(requester: &'a Requester, hub: &dyn HubView) -> Result<Live<'a>, Reason> {
    match requester.identity() {
        Some(identity)
            if hub.service_account(&identity.account).as_ref() != Some(&identity.uid) =>
        {
            Err(Reason::CallerIdentityChanged)
        }
        _ => Ok(Live(requester)),
    }
}

/// Finds what the requester asks for and whether policy pairs them.
///
/// # Errors
/// [`Reason::TargetNotGranted`] for everything that policy does not allow, whatever the cause, so
/// that nobody learns what exists; [`Reason::CallerIdentityChanged`] when the caller is not the
/// live ServiceAccount.
pub fn pair(
    policy: &Policy,
    hub: &dyn HubView,
    requester: &Requester,
    name: &AccessName,
    delivery: DeliveryType,
) -> Result<Pair, Reason> {
    let live = live(requester, hub)?;
    find(policy, hub, live, name, delivery)
        .map(Found::pair)
        .ok_or(Reason::TargetNotGranted)
}

/// Whether policy pairs an access with its target for one of its own deliveries.
///
/// # Errors
/// [`Reason::TargetNotGranted`], as for a caller.
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
    pair(
        policy,
        hub,
        &Requester::Delivery(delivery.clone()),
        name,
        shape,
    )
}

/// Turns a pair into a grant, once the hub has agreed where it must be asked.
///
/// # Errors
/// [`Reason::TargetNotGranted`] when the pair was made for another requester;
/// [`Reason::DelegationForbidden`] when a delegated caller is not allowed by the hub;
/// [`Reason::AuthorUnchecked`] for a delivery whose author nobody has checked;
/// [`Reason::TargetSuspended`] when target or access is suspended: only now, since only who may use
/// a target learns its state.
pub fn grant(
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
    if pair.via == Via::Delegate && review != Review::Allowed {
        return Err(Reason::DelegationForbidden);
    }
    if pair.via == Via::Author && review != Review::AuthorChecked {
        return Err(Reason::AuthorUnchecked);
    }
    Ok(())
}

/// Whether a grant is still what policy and the hub's live objects say. Asked again for every
/// waiter at the moment of issuance, unless neither has changed.
///
/// # Errors
/// The reason why not; [`Reason::GrantSuperseded`] when the request would be allowed, but for
/// something else than was minted.
pub fn still_holds(policy: &Policy, hub: &dyn HubView, grant: &Grant) -> Result<(), Reason> {
    let Grant { requester, pair } = grant;
    let live = live(requester, hub)?;
    let now =
        find(policy, hub, live, pair.access(), pair.0.delivery).ok_or(Reason::TargetNotGranted)?;
    if !now.makes(pair) {
        return Err(Reason::GrantSuperseded);
    }
    // The review itself was at most seconds ago; its age is held by whoever asked the hub.
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

/// Whether a target that the hub signs for would have to refuse tokens of the hub's issuer, because
/// the issuer is also its own.
///
/// Where the target's own issuer is not stated, an issuer that Kubernetes distributions give every
/// cluster counts as its own.
pub fn issuer_collides(hub_issuer: &crate::issuer::Issuer, target: &TargetCluster) -> bool {
    if target.issuer != TokenIssuer::Hub {
        return false;
    }
    match &target.target_issuer {
        Some(own) => own == hub_issuer,
        None => hub_issuer.is_cluster_default(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
