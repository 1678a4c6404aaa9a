//! The hub, the policy and the requesters with which the decisions are tested, and which issuers
//! collide with a target's.

#![allow(clippy::unwrap_used)]

mod grants;
mod matrix;
mod pairs;
mod recheck;

use std::collections::BTreeMap;

use keyferry_api::config::{DeliveryType, Policy, TargetCluster, TokenIssuer, read};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};

use super::{
    Grant, HubView, Pair, Requester, Review, Via, authorise_request, grant_token, issuer_collides,
};
use crate::caller::tests::verified;

/// A hub of plain strings.
#[derive(Clone, Default)]
pub(crate) struct Hub {
    /// `<namespace>/<name>` and UID.
    accounts: BTreeMap<String, String>,
    /// Live namespaces and their labels.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl HubView for Hub {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        self.accounts
            .get(&account.to_string())
            .map(|uid| Uid::new(uid.clone()).unwrap())
    }

    fn namespace_labels(
        &self,
        namespace: &Namespace,
    ) -> Option<std::sync::Arc<BTreeMap<String, String>>> {
        self.namespaces
            .get(namespace.as_str())
            .cloned()
            .map(std::sync::Arc::new)
    }
}

const HEAD: &str = "\
apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.com
discovery: {tls: {certFile: a, keyFile: b}}
api: {tls: {certFile: a, keyFile: b}}
";

pub(crate) fn target(fields: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{name: \
         prod}}\nspec:\n  address: https://prod.example.com\n{fields}"
    )
}

fn access(namespace: &str, name: &str, fields: &str) -> String {
    format!(
        "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
        targetClusterRef: {{name: prod}}\n  serviceAccountName: reconciler\n{fields}"
    )
}

const RULE: &str = "  allow:\n    - {namespaces: [tenant-a], serviceAccounts: [reconciler]}\n";
const BY_LABEL: &str = "  allow:\n    - {namespaceSelector: {matchLabels: \
    {access.keyferry.dev/prod: 'yes'}}, serviceAccounts: [reconciler]}\n";

pub(crate) fn policy(text: &str) -> Policy {
    read(&format!("{HEAD}{text}"))
        .unwrap_or_else(|error| panic!("{error}"))
        .policy
}

/// One target, one access in `tenant-a` that lists `notifier`.
pub(crate) fn usual() -> Policy {
    policy(
        &(target(&format!("  audience: prod\n{RULE}"))
            + &access("tenant-a", "prod", "  callers: [notifier]\n")),
    )
}

pub(crate) fn hub() -> Hub {
    let mut hub = Hub::default();
    for namespace in [
        "tenant-a",
        "tenant-b",
        "keyferry-system",
        "kube-system",
        "kube-public",
        "kube-node-lease",
    ] {
        hub.namespaces.insert(
            namespace.to_owned(),
            [("access.keyferry.dev/prod".to_owned(), "yes".to_owned())].into(),
        );
        for name in ["reconciler", "notifier", "stranger"] {
            hub.accounts.insert(
                format!("{namespace}/{name}"),
                format!("uid-{namespace}-{name}"),
            );
        }
    }
    hub
}

pub(crate) fn caller(namespace: &str, name: &str) -> Requester {
    Requester::Caller(verified(
        namespace,
        name,
        &format!("uid-{namespace}-{name}"),
    ))
}

fn ask(
    policy: &Policy,
    hub: &dyn HubView,
    requester: &Requester,
    access: &str,
) -> Result<Pair, Reason> {
    authorise_request(
        policy,
        hub,
        requester,
        &AccessName::parse(access).unwrap(),
        DeliveryType::HTTP,
    )
}

pub(crate) fn granted(policy: &Policy, hub: &Hub, requester: Requester) -> Grant {
    let pair = ask(policy, hub, &requester, "tenant-a/prod").unwrap();
    let review = if pair.via() == Via::Delegate {
        Review::Allowed
    } else {
        Review::NotAsked
    };
    grant_token(policy, requester, pair, review).unwrap()
}

#[test]
fn a_target_refuses_tokens_of_its_managed_issuer() {
    let issuer = |text: &str| Issuer::new(text).unwrap();
    let of = |fields: &str| {
        policy(&target(&format!("  audience: prod\n{fields}")))
            .targets
            .into_values()
            .next()
            .unwrap()
    };
    let stated = of("  targetIssuer: https://target.example.com\n");
    assert!(issuer_collides(
        &issuer("https://target.example.com"),
        &stated
    ));
    assert!(!issuer_collides(
        &issuer("https://hub.example.com"),
        &stated
    ));
    assert!(
        !issuer_collides(&issuer("https://kubernetes.default.svc"), &stated),
        "its admin says that it has another"
    );
    let unstated = of("");
    assert!(issuer_collides(
        &issuer("https://kubernetes.default.svc.cluster.local"),
        &unstated
    ));
    assert!(!issuer_collides(
        &issuer("https://hub.example.com"),
        &unstated
    ));
    let own = TargetCluster {
        issuer: TokenIssuer::Keyferry,
        ..unstated
    };
    assert!(
        !issuer_collides(
            &issuer("https://kubernetes.default.svc.cluster.local"),
            &own
        ),
        "the hub's issuer is not in its tokens"
    );
}
