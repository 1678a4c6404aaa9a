//! Explains a refusal to an authorised caller: what blocks the request, and what its admin can do.

use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_core::authorise::Pair;
use keyferry_core::readiness::{ISSUER_COLLISION_FIX, NotReady};

/// Returns advice on a reason; `None` if its name says it all.
pub fn advice_on(reason: Reason, pair: &Pair, own_namespace: Option<&Namespace>) -> Option<String> {
    let (audience, account) = (pair.audience(), &pair.service_account().account);
    Some(match reason {
        Reason::AudienceIsHubs => format!("the hub's own apiserver accepts the audience \
            {audience}; give TargetCluster/{} another", pair.target()),
        Reason::AudienceUnchecked => {
            "the canary ServiceAccount could not try the audience; it must exist in Keyferry's \
             namespace, and Keyferry must be allowed to mint for it".to_owned()
        }
        Reason::ClockSkew => "the hub's clock and Keyferry's differ by more than 30 s; fix the \
            clocks".to_owned(),
        Reason::HubPolicyNotReady => {
            "an apiserver of the hub does not know the kind of an admission policy's parameter; \
             after a restart this lasts up to 30 s, so try again then; if it lasts longer, install \
             the missing CustomResourceDefinition".to_owned()
        }
        Reason::IssuerCollision => ISSUER_COLLISION_FIX.to_owned(),
        Reason::IssuerKeysForbidden => {
            let own_namespace = own_namespace.map_or("keyferry-system", Namespace::as_str);
            let secret = format!("keyferry-issuer-{}", pair.target());
            format!("Keyferry may not get, create or update Secret {secret} in {own_namespace}; \
                apply examples/in-cluster/managed-issuers.yaml with that name in it")
        }
        Reason::IssuerKeysInvalid => {
            format!("Secret keyferry-issuer-{} holds no key set for this TargetCluster's issuer \
                and audience; the log says what is wrong with it", pair.target())
        }
        Reason::IssuerKeysSettling => {
            "the keys of the target's managed issuer were published too recently, so the \
             target may not have them yet; try again in two minutes".to_owned()
        }
        Reason::KeyNotPublished => "the hub signed with a key that its own key set does not \
            contain yet; try again in a minute".to_owned(),
        Reason::KeyRevoked => {
            "the hub still signs with a key that was revoked; fix: give every kube-apiserver of the hub another --service-account-signing-key-file, \
             and restart it"
                .to_owned()
        }
        Reason::KeySettling => {
            "the hub signs with a new key that targets may not have read yet; try again when it \
             has been published for the activation delay, usually within two minutes".to_owned()
        }
        Reason::MintForbidden => {
            let own_namespace = own_namespace.map_or("keyferry-system", Namespace::as_str);
            format!(
                "Keyferry may not mint for ServiceAccount {account}; fix, on the hub: {}",
                minter_role(pair, own_namespace)
            )
        }
        Reason::TargetSuspended => NotReady::Suspended.to_string(),
        Reason::TenantLimitReached => format!("namespace {} has reached its limit of \
            tokens", account.namespace),
        _ => return None,
    })
}

/// The commands for the least RBAC that lets Keyferry mint for the pair's ServiceAccount. They are
/// one line, because a client prints what a server answers on one line.
fn minter_role(pair: &Pair, own_namespace: &str) -> String {
    let account = &pair.service_account().account;
    let (namespace, name) = (&account.namespace, &account.name);
    format!(
        "kubectl create role keyferry-minter-{name} -n {namespace} --verb=create \
         --resource=serviceaccounts/token --resource-name={name} && kubectl create rolebinding \
         keyferry-minter-{name} -n {namespace} --role=keyferry-minter-{name} \
         --serviceaccount={own_namespace}:keyferry"
    )
}
