//! The decision of policy and the hub's live objects on one request, recomputed for every check.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{
    AllowRule, Delivery, DeliveryType, NamespaceRule, Policy, TargetAccess, TargetCluster,
};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};

use super::{HubView, Live, Pair, Paired, Requester, Via};

/// The lifetime of a token in an object, unless the access or the target sets a shorter one.
const AT_REST: Duration = Duration::from_secs(12 * 3600);

/// Namespaces of Kubernetes itself: allowed only by exact name, never by a selector.
const SYSTEM_NAMESPACES: &[&str] = &["kube-system", "kube-public", "kube-node-lease"];

/// What policy and the hub's objects allow for one request. It mostly borrows from the policy, so a
/// recheck copies nothing.
pub(super) struct AllowedRequest<'a> {
    access: &'a TargetAccess,
    target: &'a TargetCluster,
    service_account: Cow<'a, ServiceAccountIdentity>,
    requester: Option<&'a ServiceAccountIdentity>,
    written_by: Option<&'a ObjectName>,
    lifetime: Duration,
    rule: usize,
    delivery: DeliveryType,
    via: Via,
}

pub(super) fn find_allowed<'a>(
    policy: &'a Policy,
    hub: &dyn HubView,
    Live(requester): Live<'a>,
    name: &AccessName,
    delivery: DeliveryType,
) -> Option<AllowedRequest<'a>> {
    let access = policy.accesses.get(name)?;
    let target = policy.targets.get(&access.target)?;
    let service_account = match requester.identity() {
        // Already checked as live, so its UID needs no second lookup.
        Some(own)
            if own.account.namespace == name.namespace
                && own.account.name == access.service_account =>
        {
            Cow::Borrowed(own)
        }
        _ => {
            let account = ServiceAccount {
                namespace: name.namespace.clone(),
                name: access.service_account.clone(),
            };
            let uid = hub.service_account(&account)?;
            Cow::Owned(ServiceAccountIdentity { account, uid })
        }
    };
    let labels = hub.namespace_labels(&name.namespace)?;
    if policy.own_namespace.as_ref() == Some(&name.namespace) || !access.offers(delivery) {
        return None;
    }
    let rule = target
        .allow
        .iter()
        .position(|rule| rule_allows(rule, access, target, &labels, delivery))?;
    let via = match requester {
        Requester::Operator => Via::Itself,
        Requester::Delivery(_) | Requester::Probe => Via::Author,
        Requester::Caller(caller) if caller.identity() == &*service_account => Via::Itself,
        Requester::Caller(caller) => {
            let caller = &caller.identity().account;
            let listed =
                caller.namespace == name.namespace && access.callers.contains(&caller.name);
            listed.then_some(Via::Delegate)?
        }
    };
    let lifetime = match requester.delivery() {
        Some(name) => delivery_lifetime(
            access
                .delivery(name)
                .filter(|named| named.delivery_type == delivery)?,
            target,
        ),
        None => target.lifetime.default,
    };
    let (requester, written_by) = (requester.identity(), requester.delivery());
    Some(AllowedRequest {
        access,
        target,
        service_account,
        requester,
        written_by,
        lifetime,
        rule,
        delivery,
        via,
    })
}

impl AllowedRequest<'_> {
    /// Whether target or access is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.target.suspend || self.access.suspend
    }

    pub(super) fn into_pair(self) -> Pair {
        let AllowedRequest {
            access,
            target,
            service_account,
            requester,
            written_by,
            lifetime,
            rule,
            delivery,
            via,
        } = self;
        Pair(Arc::new(Paired {
            requester: requester.cloned(),
            written_by: written_by.cloned(),
            access: access.name.clone(),
            access_generation: access.generation,
            target: target.name.clone(),
            target_generation: target.generation,
            service_account: service_account.into_owned(),
            audience: target.audience.clone(),
            issuer: target.issuer,
            lifetime,
            rule,
            delivery,
            via,
        }))
    }

    /// Whether it would make the same pair, whichever entry of `allow[]` allows it. Each member is
    /// named, so that a new member cannot be forgotten.
    pub(super) fn makes_pair(&self, pair: &Pair) -> bool {
        let Paired {
            requester,
            written_by,
            access,
            access_generation,
            target,
            target_generation,
            service_account,
            audience,
            issuer,
            lifetime,
            rule: _,
            delivery,
            via,
        } = &*pair.0;
        self.requester == requester.as_ref()
            && self.written_by == written_by.as_ref()
            && self.access.name == *access
            && self.access.generation == *access_generation
            && self.target.name == *target
            && self.target.generation == *target_generation
            && *self.service_account == *service_account
            && self.target.audience == *audience
            && self.target.issuer == *issuer
            && self.lifetime == *lifetime
            && self.delivery == *delivery
            && self.via == *via
    }
}

/// The lifetime of a token for a delivery. A token in an object must outlive outages of its
/// consumer: half a day, unless the access or the target sets less. A certificate has a limit of
/// its own.
fn delivery_lifetime(delivery: &Delivery, target: &TargetCluster) -> Duration {
    if let Some(rules) = &target.client_certificates {
        return rules.max_lifetime;
    }
    match delivery.holds_token() {
        true => delivery
            .lifetime
            .unwrap_or(AT_REST)
            .min(target.lifetime.max),
        false => target.lifetime.default,
    }
}

fn rule_allows(
    rule: &AllowRule,
    access: &TargetAccess,
    target: &TargetCluster,
    labels: &BTreeMap<String, String>,
    delivery: DeliveryType,
) -> bool {
    let namespace = &access.name.namespace;
    let by_namespace = match &rule.namespaces {
        NamespaceRule::Named(names) => names.contains(namespace),
        NamespaceRule::Selected(selector) => !is_system(namespace) && selector.matches(labels),
    };
    // A certificate of the hub fits no other cluster, and no token may fit the hub.
    let fits_target =
        (delivery == DeliveryType::ClientCertificateSecret) == target.client_certificates.is_some();
    by_namespace
        && fits_target
        && rule.service_accounts.contains(&access.service_account)
        && rule.deliveries.contains(&delivery)
}

/// Whether a namespace belongs to Kubernetes itself.
pub fn is_system(namespace: &Namespace) -> bool {
    SYSTEM_NAMESPACES.contains(&namespace.as_str())
}
