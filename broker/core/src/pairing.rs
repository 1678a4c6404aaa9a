//! The pairs of ServiceAccount and audience that policy allows, as the admission policy on
//! TokenRequests reads them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::authorise::{self, HubView, Requester};
use crate::config::Policy;
use crate::service_account::ServiceAccount;

/// The name of the one AudiencePairing.
pub const NAME: &str = "keyferry";
/// Where it is.
pub const COLLECTION: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings";
/// An audience that is listed for nobody, the canary included: that a token for it is refused shows
/// that the policy holds.
pub const NOBODYS: &str = "keyferry.dev/nobody";

/// By audience, who may have a token for it. Each of `audiences` stands there, also those of
/// targets that cannot be used as they are, so that nobody else gets one; the canary, which tries
/// audiences and is let in nowhere, has them all. While a target or an access is suspended nobody
/// has the audience by it: whoever mints for himself, as Flux does, is to be held too. [`NOBODYS`]
/// is nobody's.
pub fn pairs(
    policy: &Policy,
    hub: &dyn HubView,
    audiences: impl IntoIterator<Item = String>,
    canary: &ServiceAccount,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut pairs: BTreeMap<String, BTreeSet<String>> = audiences
        .into_iter()
        .map(|audience| (audience, BTreeSet::from([canary.to_string()])))
        .collect();
    for access in policy.accesses.values() {
        let Some(target) = policy.targets.get(&access.target) else {
            continue;
        };
        if target.suspend || access.suspend {
            continue;
        }
        let shapes = crate::config::DeliveryType::ALL
            .iter()
            .map(|(_, shape)| *shape);
        let allowed = shapes.into_iter().find_map(|shape| {
            authorise::pair(policy, hub, &Requester::Operator, &access.name, shape).ok()
        });
        if let (Some(pair), Some(accounts)) = (allowed, pairs.get_mut(target.audience.as_str())) {
            accounts.insert(pair.service_account().account.to_string());
        }
    }
    // Last, so that no target makes it somebody's.
    pairs.insert(NOBODYS.to_owned(), BTreeSet::new());
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use super::{NOBODYS, pairs};
    use crate::authorise::HubView;
    use crate::config;
    use crate::name::{Namespace, ObjectName};
    use crate::service_account::{ServiceAccount, Uid};

    /// Every account and every namespace is there.
    struct Hub;

    impl HubView for Hub {
        fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
            Uid::new(format!("uid-{}", account.name)).ok()
        }

        fn namespace_labels(&self, _: &Namespace) -> Option<Arc<BTreeMap<String, String>>> {
            Some(Arc::default())
        }
    }

    fn listed(target: &str, access: &str) -> BTreeSet<String> {
        all(target, access, "prod")["prod"].clone()
    }

    fn all(target: &str, access: &str, audience: &str) -> BTreeMap<String, BTreeSet<String>> {
        let text = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.com\n\
             discovery: {{tls: {{certFile: a, keyFile: b}}}}\napi: {{tls: {{certFile: a, keyFile: b}}}}\n---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: prod}}\nspec:\n  address: https://prod.example.com\n  \
             audience: {audience}\n  allow: [{{namespaces: [tenant-a], serviceAccounts: [reconciler]}}]\n{target}---\n\
             apiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: prod, namespace: tenant-a}}\nspec:\n  \
             targetClusterRef: {{name: prod}}\n  serviceAccountName: reconciler\n{access}"
        );
        let policy = config::read(&text).unwrap().policy;
        let canary = ServiceAccount {
            namespace: Namespace::new("keyferry-system").unwrap(),
            name: ObjectName::new("canary").unwrap(),
        };
        pairs(&policy, &Hub, [audience.to_owned()], &canary)
    }

    #[test]
    fn the_audience_of_nobody_stays_nobodys() {
        assert_eq!(all("", "", "prod")[NOBODYS], BTreeSet::new());
        assert_eq!(
            all("", "", NOBODYS)[NOBODYS],
            BTreeSet::new(),
            "even where a target claims it"
        );
    }

    #[test]
    fn nobody_but_the_canary_has_the_audience_of_what_is_suspended() {
        assert!(listed("", "").contains("tenant-a/reconciler"));
        let canary = BTreeSet::from(["keyferry-system/canary".to_owned()]);
        assert_eq!(
            listed("  suspend: true\n", ""),
            canary,
            "who mints for himself is held too"
        );
        assert_eq!(listed("", "  suspend: true\n"), canary);
    }
}
