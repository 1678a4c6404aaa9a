//! The AudiencePairing object: which ServiceAccounts policy allows to get a token for each
//! audience. The admission policy on TokenRequests reads it.

use std::collections::{BTreeMap, BTreeSet};

use keyferry_api::config::Policy;
use keyferry_api::pairing::{AudiencePairing, AudiencePairs};
use keyferry_api::service_account::ServiceAccount;
use serde_json::{Value, json};

use crate::authorise::{self, HubView, Requester};

/// The name of the one AudiencePairing.
pub const PAIRING_NAME: &str = "keyferry";
/// The API path of the AudiencePairing collection.
pub const COLLECTION_PATH: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings";
/// An audience that no ServiceAccount may use, not even the canary. If the hub refuses a token for
/// it, the admission policy works.
pub const UNUSABLE_AUDIENCE: &str = "keyferry.dev/nobody";

/// The ServiceAccounts that may get a token for each audience.
///
/// Each of `audiences` is listed, including those of targets that cannot be used as configured, so
/// that no other ServiceAccount gets a token for them. The canary may use them all: it tests
/// audiences, and no target admits it. A suspended target or access grants its audience to no
/// ServiceAccount. This also stops clients that mint for themselves, as Flux does. [`UNUSABLE_AUDIENCE`] is
/// granted to none.
pub fn accounts_by_audience(
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
        // For the hub itself only certificates are issued, never a token for its audience.
        if target.suspend || access.suspend || target.client_certificates.is_some() {
            continue;
        }
        let shapes = keyferry_api::config::DeliveryType::ALL
            .iter()
            .map(|(_, shape)| *shape);
        let allowed = shapes.into_iter().find_map(|shape| {
            authorise::authorise_request(policy, hub, &Requester::Operator, &access.name, shape)
                .ok()
        });
        if let (Some(pair), Some(accounts)) = (allowed, pairs.get_mut(target.audience.as_str())) {
            accounts.insert(pair.service_account().account.to_string());
        }
    }
    // Inserted last, so that no target can grant this audience.
    pairs.insert(UNUSABLE_AUDIENCE.to_owned(), BTreeSet::new());
    pairs
}

/// The AudiencePairing object. With `version` it replaces the stored object of that
/// resourceVersion.
pub fn pairing_object(pairs: &BTreeMap<String, BTreeSet<String>>, version: Option<&str>) -> Value {
    let pairs = pairs.clone();
    let mut object = AudiencePairing::new(PAIRING_NAME, AudiencePairs { pairs });
    object.metadata.resource_version = version.map(str::to_owned);
    json!(object)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use keyferry_api::config;
    use keyferry_api::name::{Namespace, ObjectName};
    use keyferry_api::service_account::{ServiceAccount, Uid};

    use super::{UNUSABLE_AUDIENCE, accounts_by_audience};
    use crate::authorise::HubView;

    /// A hub where every account and every namespace exists.
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
        pairs_of(target, access, &[audience])
    }

    /// The pairs of the target whose audience is the first, of the access, and of what follows it.
    fn pairs_of(
        target: &str,
        access: &str,
        audiences: &[&str],
    ) -> BTreeMap<String, BTreeSet<String>> {
        let audience = audiences[0];
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
        accounts_by_audience(
            &policy,
            &Hub,
            audiences.iter().map(|audience| (*audience).to_owned()),
            &canary,
        )
    }

    #[test]
    fn the_audience_of_nobody_stays_nobodys() {
        assert_eq!(all("", "", "prod")[UNUSABLE_AUDIENCE], BTreeSet::new());
        assert_eq!(
            all("", "", UNUSABLE_AUDIENCE)[UNUSABLE_AUDIENCE],
            BTreeSet::new(),
            "even where a target claims it"
        );
    }

    const ROLE: &str = "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {name: prod-view}\n\
        spec: {sameAs: prod, role: view, audience: prod-view, allow: [{namespaces: [tenant-a], serviceAccounts: [agent]}]}\n\
        ---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {name: view, namespace: tenant-a}\n\
        spec: {targetClusterRef: {name: prod-view}, serviceAccountName: agent}\n";

    #[test]
    fn a_role_has_an_audience_of_its_own_and_no_pair_while_its_base_is_suspended() {
        let canary = "keyferry-system/canary";
        let of = |accounts: &[&str]| accounts.iter().map(|one| (*one).to_owned()).collect();
        for (base, of_base, of_role) in [
            (
                "",
                &[canary, "tenant-a/reconciler"][..],
                &[canary, "tenant-a/agent"][..],
            ),
            ("  suspend: true\n", &[canary], &[canary]),
        ] {
            let pairs = pairs_of(base, ROLE, &["prod", "prod-view"]);
            let expected: [(&str, BTreeSet<String>); 3] = [
                (UNUSABLE_AUDIENCE, BTreeSet::new()),
                ("prod", of(of_base)),
                ("prod-view", of(of_role)),
            ];
            assert_eq!(
                pairs,
                expected.map(|(name, all)| (name.to_owned(), all)).into()
            );
        }
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
