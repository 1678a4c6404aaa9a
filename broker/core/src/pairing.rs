//! The pairs of ServiceAccount and audience that policy allows, as the admission policy on TokenRequests reads them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::authorise::{self, HubView, Requester};
use crate::config::Policy;
use crate::service_account::ServiceAccount;

/// The name of the one AudiencePairing.
pub const NAME: &str = "keyferry";

/// By audience, who may have a token for it. Each of `audiences` stands there, also those of targets that cannot be used as they are, so
/// that nobody else gets one; the canary, which tries audiences and is let in nowhere, has them all.
pub fn pairs(
    policy: &Policy,
    hub: &dyn HubView,
    audiences: impl IntoIterator<Item = String>,
    canary: &ServiceAccount,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut pairs: BTreeMap<String, BTreeSet<String>> =
        audiences.into_iter().map(|audience| (audience, BTreeSet::from([canary.to_string()]))).collect();
    for access in policy.accesses.values() {
        let Some(target) = policy.targets.get(&access.target) else { continue };
        let shapes = crate::config::DeliveryType::ALL.iter().map(|(_, shape)| *shape);
        let allowed = shapes.into_iter().find_map(|shape| authorise::pair(policy, hub, &Requester::Operator, &access.name, shape).ok());
        if let (Some(pair), Some(accounts)) = (allowed, pairs.get_mut(target.audience.as_str())) {
            accounts.insert(pair.service_account().account.to_string());
        }
    }
    pairs
}

/// The object, in the place of one of this resourceVersion where there is one.
pub fn object(pairs: &BTreeMap<String, BTreeSet<String>>, version: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "AudiencePairing", "metadata": { "name": NAME }, "pairs": pairs,
    });
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    object
}
