//! Which deliveries policy grants.

use std::collections::BTreeMap;

use keyferry_api::config::DeliveryType;
use keyferry_api::name::{AccessName, ObjectName};

use crate::doubt::Doubt;
use crate::hub_search::HubSearch;
use crate::keyferry_mint::Minting;

/// What policy says about one delivery of an access.
pub(crate) struct DeliveryGrant {
    /// The Secret that holds its token, if it writes one.
    pub(crate) token_secret: Option<ObjectName>,
    /// What is not known about it, or why it is refused.
    pub(crate) terms: Result<Vec<Doubt>, String>,
}

impl HubSearch<'_> {
    /// Each delivery of each access, by the names of both.
    pub(crate) fn delivery_grants(&self) -> BTreeMap<(AccessName, String), DeliveryGrant> {
        let minting = Minting {
            hub: &self.world.hub,
            policy: self.policy,
            rights: &self.rights,
            fences: &self.fences,
            accounts: &self.accounts,
        };
        let mut grants = BTreeMap::new();
        for access in self.policy.accesses.values() {
            let account = self.accounts.find(
                access.name.namespace.as_str(),
                access.service_account.as_str(),
            );
            let terms = |kind| {
                let target = self.policy.targets.get(&access.target);
                let target = target.ok_or("there is no usable TargetCluster of it")?;
                let account = account.ok_or("there is no such ServiceAccount")?;
                let terms = minting.terms(access, target, kind, account)?;
                Ok(terms.doubts)
            };
            // Without a list, it answers requests.
            if access.deliveries.is_empty() {
                let grant = DeliveryGrant {
                    token_secret: None,
                    terms: terms(DeliveryType::HTTP),
                };
                grants.insert((access.name.clone(), "http".to_owned()), grant);
            }
            for delivery in &access.deliveries {
                let secret = delivery.object_name.clone();
                let grant = DeliveryGrant {
                    token_secret: secret.filter(|_| delivery.holds_token()),
                    terms: terms(delivery.delivery_type),
                };
                grants.insert((access.name.clone(), delivery.name.to_string()), grant);
            }
        }
        grants
    }
}
