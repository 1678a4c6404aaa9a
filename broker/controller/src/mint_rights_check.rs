//! Warns if Keyferry's own account may mint for more than the file names. A file is only as
//! trustworthy as its author, so RBAC must limit both.

use std::collections::BTreeSet;

use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_hub::client::HubClient;
use keyferry_hub::self_review;
use keyferry_platform::policy_store::PolicyReader;

/// Checks at the start and after each change of the policy, until the task is dropped.
pub async fn run_mint_rights_check(client: HubClient, policy: PolicyReader) {
    let mut changes = policy.changes();
    let mut warned = BTreeSet::new();
    loop {
        check_rights(&client, &policy, &mut warned).await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Warns once per namespace. `None` in `warned` stands for the whole hub.
async fn check_rights(
    client: &HubClient,
    policy: &PolicyReader,
    warned: &mut BTreeSet<Option<Namespace>>,
) {
    if warned.contains(&None) {
        return;
    }
    if let Ok(true) = self_review::may_mint_for_all(client, None).await {
        tracing::warn!(
            reason = %Reason::MintUnbounded,
            "Keyferry's own account may mint for every ServiceAccount of the hub, so anyone who \
             can write its configuration file can act as any of them; bind it per namespace with \
             resourceNames"
        );
        warned.insert(None);
        return;
    }
    let namespaces: BTreeSet<Namespace> = policy
        .current()
        .accesses
        .keys()
        .map(|access| access.namespace.clone())
        .collect();
    for namespace in namespaces {
        if warned.contains(&Some(namespace.clone())) {
            continue;
        }
        if let Ok(true) = self_review::may_mint_for_all(client, Some(&namespace)).await {
            tracing::warn!(
                reason = %Reason::MintUnbounded,
                %namespace,
                "Keyferry's own account may mint for every ServiceAccount of this namespace; name \
                 those that it needs in the Role's resourceNames"
            );
            warned.insert(Some(namespace));
        }
    }
}
