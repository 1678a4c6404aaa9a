//! Door 1: what Keyferry issues for each access, on request or into a Secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{DeliveryType, Policy, TargetAccess, TargetCluster};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::authorise::{HubView, Requester, authorise_request, issuer_collides};
use keyferry_core::static_verdict::StaticVerdict;
use keyferry_kube_rbac::{Attributes, ResourceRequest};

use crate::accounts::{AccountIndex, Accounts};
use crate::actor::Actor;
use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::fence::{FenceState, Fences, Issue};
use crate::list::ListKind;
use crate::world::Hub;

/// The lifetime of a token in an object, unless the access or the target sets a shorter one.
const AT_REST: Duration = Duration::from_secs(12 * 3600);

/// What one access gives on request.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) access: AccessName,
    pub(crate) target: ObjectName,
    pub(crate) account: AccountIndex,
    /// Other ServiceAccounts of the namespace that may ask for it.
    pub(crate) callers: Vec<AccountIndex>,
    pub(crate) terms: Result<Terms, String>,
}

/// Under what an access gives a token.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The entry of `allow[]`.
    pub(crate) rule: usize,
    pub(crate) lifetime: i64,
    pub(crate) doubts: Vec<Doubt>,
}

/// A Secret that a delivery writes.
#[derive(Debug)]
pub(crate) struct DeliveredSecret {
    pub(crate) namespace: String,
    pub(crate) secret: String,
    pub(crate) target: ObjectName,
    pub(crate) account: AccountIndex,
    pub(crate) lifetime: i64,
    pub(crate) doubt: Option<Doubt>,
}

/// What decides about every access.
pub(crate) struct Minting<'a, 'w> {
    pub(crate) hub: &'w Hub,
    pub(crate) policy: &'w Policy,
    pub(crate) rights: &'a ClusterRights<'w>,
    pub(crate) fences: &'a Fences<'w>,
    pub(crate) accounts: &'a Accounts,
}

/// The request to create a token of an account.
pub(crate) fn token_request(namespace: &str, account: &str) -> Attributes {
    Attributes::resource(
        "create",
        ResourceRequest {
            resource: "serviceaccounts".to_owned(),
            subresource: "token".to_owned(),
            namespace: namespace.to_owned(),
            name: account.to_owned(),
            ..ResourceRequest::default()
        },
    )
}

impl Minting<'_, '_> {
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let mut offers = Vec::new();
        for access in self.policy.accesses.values() {
            let Some(target) = self.policy.targets.get(&access.target) else {
                continue;
            };
            let namespace = access.name.namespace.as_str();
            let Some(account) = self
                .accounts
                .find(namespace, access.service_account.as_str())
            else {
                continue;
            };
            let kinds = [DeliveryType::HTTP, DeliveryType::Exec];
            let mut terms = Err("the access offers nothing on request".to_owned());
            for kind in kinds.into_iter().filter(|kind| access.offers(*kind)) {
                if terms.is_err() {
                    terms = self.terms(access, target, kind, account);
                }
            }
            let find = |name: &ObjectName| self.accounts.find(namespace, name.as_str());
            offers.push(Offer {
                access: access.name.clone(),
                target: access.target.clone(),
                account,
                callers: access.callers.iter().filter_map(find).collect(),
                terms,
            });
        }
        offers
    }

    pub(crate) fn delivered(&self) -> Vec<DeliveredSecret> {
        let mut delivered = Vec::new();
        for access in self.policy.accesses.values() {
            let target = self.policy.targets.get(&access.target);
            if target.is_none() && self.hub.lists.is_whole(ListKind::TargetClusters) {
                continue;
            }
            let namespace = access.name.namespace.as_str();
            let account = self
                .accounts
                .find(namespace, access.service_account.as_str());
            for delivery in access.deliveries.iter().filter(|it| it.holds_token()) {
                let (Some(account), Some(object)) = (account, &delivery.object_name) else {
                    continue;
                };
                let Some(known) = self.secret_state(access, object.as_str()) else {
                    continue;
                };
                let terms = match target {
                    Some(target) => self.terms(access, target, delivery.delivery_type, account),
                    None => Err("its TargetCluster was not read".to_owned()),
                };
                let older = || {
                    Doubt::fact(
                        format!("Secret {namespace}/{object} may hold a token from before"),
                        "delete the Secret, or wait until the token has expired",
                    )
                };
                let doubt = match (known, terms) {
                    (Some(doubt), _) => Some(doubt),
                    _ if target.is_none() => Some(Doubt::list(ListKind::TargetClusters)),
                    (None, Ok(terms)) => terms.doubts.first().cloned(),
                    (None, Err(_)) => Some(older()),
                };
                delivered.push(DeliveredSecret {
                    namespace: namespace.to_owned(),
                    secret: object.to_string(),
                    target: access.target.clone(),
                    account,
                    lifetime: whole_seconds(match target {
                        Some(target) => delivery
                            .lifetime
                            .unwrap_or(AT_REST)
                            .min(target.lifetime.max),
                        None => AT_REST,
                    }),
                    doubt,
                });
            }
        }
        delivered
    }

    /// What is not known of the Secret that a delivery writes; `None` if there is none.
    fn secret_state(&self, access: &TargetAccess, name: &str) -> Option<Option<Doubt>> {
        let namespace = access.name.namespace.as_str();
        let key = (namespace.to_owned(), name.to_owned());
        match self.hub.secrets.get(&key) {
            Some(secret) if secret.access.as_deref() == Some(access.name.name.as_str()) => {
                Some(None)
            }
            Some(_) => Some(Some(Doubt::fact(
                format!(
                    "Secret {namespace}/{name} is not controlled by TargetAccess {}",
                    access.name
                ),
                format!("keyferry doctor secret/{name} -n {namespace}"),
            ))),
            None if self.hub.lists.is_whole_in(ListKind::Secrets, namespace) => None,
            None => Some(Some(Doubt::list_in(ListKind::Secrets, namespace))),
        }
    }

    /// Under what an access gives a token by one type of delivery, or why it does not.
    pub(crate) fn terms(
        &self,
        access: &TargetAccess,
        target: &TargetCluster,
        kind: DeliveryType,
        account: AccountIndex,
    ) -> Result<Terms, String> {
        if !target.is_cluster() || target.client_certificates.is_some() {
            return Err("the target gets no tokens".to_owned());
        }
        if target.suspend || access.suspend {
            return Err("it is suspended".to_owned());
        }
        let mut doubts = self.doubts_of_policy();
        if let Some(doubt) = self.accounts.get(account).and_then(|it| it.doubt.clone()) {
            doubts.push(doubt);
        }
        let name = &access.name;
        let view = View { hub: self.hub };
        let pair = authorise_request(self.policy, &view, &Requester::Operator, name, kind);
        let rule = match pair {
            Ok(pair) => pair.rule(),
            Err(reason) => {
                let by_labels = matches!(
                    StaticVerdict::of(self.policy, access),
                    StaticVerdict::ByNamespaceLabels | StaticVerdict::PartlyAllowed
                );
                let are_unread = !self.hub.namespaces.contains_key(name.namespace.as_str())
                    && !self.hub.lists.is_whole(ListKind::Namespaces);
                if !by_labels || !are_unread {
                    return Err(format!("policy does not allow it ({})", reason.as_str()));
                }
                doubts.push(Doubt::list(ListKind::Namespaces));
                0
            }
        };
        self.check_keyferry(access, target, &mut doubts)?;
        doubts.sort();
        doubts.dedup();
        Ok(Terms {
            rule,
            lifetime: whole_seconds(target.lifetime.default),
            doubts,
        })
    }

    /// A TargetCluster that was not read may have the same audience and be older, so that this one
    /// has lost it. The hub may say something else about Keyferry's rights than its RBAC.
    fn doubts_of_policy(&self) -> Vec<Doubt> {
        let is_whole = self.hub.lists.is_whole(ListKind::TargetClusters);
        let unread = (!is_whole).then(|| Doubt::list(ListKind::TargetClusters));
        let keyferry = Actor::user_named(&self.hub.account);
        let distrusted = self.hub.distrusted.get(&keyferry).cloned();
        unread.into_iter().chain(distrusted).collect()
    }

    /// Whether Keyferry itself gets the token from the hub.
    fn check_keyferry(
        &self,
        access: &TargetAccess,
        target: &TargetCluster,
        doubts: &mut Vec<Doubt>,
    ) -> Result<(), String> {
        let (namespace, account) = (
            access.name.namespace.as_str(),
            access.service_account.as_str(),
        );
        let issuer = self.hub_issuer(&access.target);
        if let Some(issuer) = issuer.and_then(|text| keyferry_api::issuer::Issuer::new(text).ok())
            && issuer_collides(&issuer, target)
        {
            return Err("the hub's issuer is the target's own too".to_owned());
        }
        let own = self.rights.granted(&Actor::user_named(&self.hub.account));
        let request = token_request(namespace, account);
        if own.that_allow(&request).next().is_none() {
            let unknown = self.rights.doubts.iter().chain(&own.doubts);
            let before = doubts.len();
            doubts.extend(unknown.cloned());
            if doubts.len() == before {
                return Err(format!(
                    "Keyferry's account {} may not create tokens of it",
                    self.hub.account
                ));
            }
        }
        self.check_own_policy(namespace, target, doubts)?;
        match self
            .fences
            .issue(namespace, account, target.audience.as_str())
        {
            Issue::Passes => Ok(()),
            Issue::Refused(why) => Err(why),
            Issue::Unknown(doubt) => {
                doubts.push(doubt);
                Ok(())
            }
        }
    }

    /// What `keyferry-self` allows.
    fn check_own_policy(
        &self,
        namespace: &str,
        target: &TargetCluster,
        doubts: &mut Vec<Doubt>,
    ) -> Result<(), String> {
        match &self.fences.own_account {
            FenceState::Absent => return Ok(()),
            FenceState::Unknown(doubt) => {
                doubts.push(doubt.clone());
                return Ok(());
            }
            FenceState::AsShipped => {}
        }
        if namespace == "kube-system" || namespace == self.hub.namespace.as_str() {
            return Err("admission policy keyferry-self refuses this namespace".to_owned());
        }
        let mint = Attributes::resource(
            "mint",
            ResourceRequest {
                group: "keyferry.dev".to_owned(),
                resource: "audiences".to_owned(),
                name: target.audience.to_string(),
                ..ResourceRequest::default()
            },
        );
        let own = self.rights.granted(&Actor::user_named(&self.hub.account));
        if own.that_allow(&mint).next().is_some() {
            return Ok(());
        }
        let unknown: Vec<Doubt> = self
            .rights
            .doubts
            .iter()
            .chain(&own.doubts)
            .cloned()
            .collect();
        if unknown.is_empty() {
            return Err("Keyferry's account lacks the verb mint on the audience".to_owned());
        }
        doubts.extend(unknown);
        Ok(())
    }

    fn hub_issuer(&self, target: &ObjectName) -> Option<String> {
        let stated = || self.hub.target_status(target)?.issuer;
        self.hub.issuer.clone().or_else(stated)
    }
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// The hub's objects as they were read. What may exist counts as existing; its doubt is noted
/// elsewhere.
pub(crate) struct View<'w> {
    pub(crate) hub: &'w Hub,
}

impl HubView for View<'_> {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        let key = (account.namespace.to_string(), account.name.to_string());
        let known = self.hub.accounts.get(&key);
        let may_exist = !self
            .hub
            .lists
            .is_whole_in(ListKind::ServiceAccounts, account.namespace.as_str());
        match known {
            Some(Some(uid)) => Uid::new(uid).ok(),
            Some(None) => Uid::new("not-read").ok(),
            None if may_exist => Uid::new("not-read").ok(),
            None => None,
        }
    }

    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>> {
        match self.hub.namespaces.get(namespace.as_str()) {
            Some(labels) => Some(Arc::clone(labels)),
            // An account of it exists.
            None if !self.hub.lists.is_whole(ListKind::Namespaces) => Some(Arc::default()),
            None => None,
        }
    }
}
