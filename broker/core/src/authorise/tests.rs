#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use keyferry_api::config::{DeliveryType, Policy, TargetCluster, TokenIssuer, read};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, Uid};

use super::{
    Grant, HubView, Pair, Requester, Review, Via, grant, issuer_collides, pair, still_holds,
};
use crate::caller::tests::verified;

mod matrix;

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

fn target(fields: &str) -> String {
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

fn policy(text: &str) -> Policy {
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
    pair(
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
    grant(policy, requester, pair, review).unwrap()
}

#[test]
fn the_service_account_itself_is_paired_with_everything_it_needs() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    assert_eq!(
        (pair.access().to_string().as_str(), pair.target().as_str()),
        ("tenant-a/prod", "prod")
    );
    assert_eq!(
        pair.service_account().account.to_string(),
        "tenant-a/reconciler"
    );
    assert_eq!(
        pair.service_account().uid.as_str(),
        "uid-tenant-a-reconciler"
    );
    assert_eq!(
        (
            pair.audience().as_str(),
            pair.lifetime().as_secs(),
            pair.rule(),
            pair.via()
        ),
        ("prod", 3600, 0, Via::Itself)
    );
}

#[test]
fn without_an_allow_rule_nobody_gets_anything() {
    let policy = policy(&(target("  audience: prod\n") + &access("tenant-a", "prod", "")));
    for requester in [
        caller("tenant-a", "reconciler"),
        caller("kube-system", "reconciler"),
        Requester::Operator,
    ] {
        assert_eq!(
            ask(&policy, &hub(), &requester, "tenant-a/prod"),
            Err(Reason::TargetNotGranted)
        );
    }
    assert_eq!(
        ask(
            &Policy::default(),
            &hub(),
            &Requester::Operator,
            "tenant-a/prod"
        ),
        Err(Reason::TargetNotGranted)
    );
}

#[test]
fn what_is_absent_forbidden_or_not_allowed_is_one_answer() {
    let (policy, hub) = (usual(), hub());
    for (requester, access) in [
        (caller("tenant-a", "reconciler"), "tenant-a/absent"),
        (caller("tenant-a", "reconciler"), "tenant-b/prod"),
        (caller("tenant-a", "stranger"), "tenant-a/prod"),
        (caller("tenant-b", "reconciler"), "tenant-a/prod"),
    ] {
        assert_eq!(
            ask(&policy, &hub, &requester, access),
            Err(Reason::TargetNotGranted),
            "{access}"
        );
    }
}

#[test]
fn another_tenants_service_account_of_the_same_name_is_another() {
    let policy = usual();
    for name in ["reconciler", "notifier"] {
        assert_eq!(
            ask(&policy, &hub(), &caller("tenant-b", name), "tenant-a/prod"),
            Err(Reason::TargetNotGranted),
            "{name}"
        );
    }
}

#[test]
fn a_listed_caller_needs_the_hubs_own_consent() {
    let (policy, hub) = (usual(), hub());
    let notifier = caller("tenant-a", "notifier");
    let pair = ask(&policy, &hub, &notifier, "tenant-a/prod").unwrap();
    assert_eq!(pair.via(), Via::Delegate);
    for review in [Review::NotAsked, Review::Refused] {
        assert_eq!(
            grant(&policy, notifier.clone(), pair.clone(), review).err(),
            Some(Reason::DelegationForbidden),
            "{review:?}"
        );
    }
    let granted = grant(&policy, notifier, pair.clone(), Review::Allowed).unwrap();
    assert_eq!(granted.pair(), &pair);
    assert_eq!(
        granted.pair().service_account().account.to_string(),
        "tenant-a/reconciler",
        "it is minted for the ServiceAccount, not the caller"
    );
}

#[test]
fn a_pair_is_good_for_its_requester_only() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    for other in [
        caller("tenant-b", "stranger"),
        caller("tenant-a", "notifier"),
        Requester::Operator,
    ] {
        for review in [Review::Allowed, Review::NotAsked] {
            assert_eq!(
                grant(&policy, other.clone(), pair.clone(), review).err(),
                Some(Reason::TargetNotGranted)
            );
        }
    }
    let operators = ask(&policy, &hub, &Requester::Operator, "tenant-a/prod").unwrap();
    assert!(
        grant(
            &policy,
            caller("tenant-a", "reconciler"),
            operators,
            Review::NotAsked
        )
        .is_err()
    );
}

#[test]
fn selectors_never_reach_the_namespaces_of_kubernetes_but_exact_names_do() {
    for namespace in ["kube-system", "kube-public", "kube-node-lease"] {
        let name = format!("{namespace}/prod");
        let selected = policy(
            &(target(&format!("  audience: prod\n{BY_LABEL}")) + &access(namespace, "prod", "")),
        );
        assert_eq!(
            ask(&selected, &hub(), &caller(namespace, "reconciler"), &name),
            Err(Reason::TargetNotGranted),
            "{namespace}"
        );
        let named = format!(
            "  allow:\n    - {{namespaces: [{namespace}], serviceAccounts: [reconciler]}}\n"
        );
        let named = policy(
            &(target(&format!("  audience: prod\n{named}")) + &access(namespace, "prod", "")),
        );
        assert!(
            ask(&named, &hub(), &caller(namespace, "reconciler"), &name).is_ok(),
            "{namespace}"
        );
    }
    let selected = policy(
        &(target(&format!("  audience: prod\n{BY_LABEL}")) + &access("tenant-b", "prod", "")),
    );
    assert!(
        ask(
            &selected,
            &hub(),
            &caller("tenant-b", "reconciler"),
            "tenant-b/prod"
        )
        .is_ok()
    );
    let by_name = BY_LABEL.replace(
        "matchLabels: {access.keyferry.dev/prod: 'yes'}",
        "matchLabels: {kubernetes.io/metadata.name: kube-system}",
    );
    let by_name = policy(
        &(target(&format!("  audience: prod\n{by_name}")) + &access("kube-system", "prod", "")),
    );
    let mut hub = hub();
    hub.namespaces.insert(
        "kube-system".to_owned(),
        [(
            "kubernetes.io/metadata.name".to_owned(),
            "kube-system".to_owned(),
        )]
        .into(),
    );
    assert!(
        ask(
            &by_name,
            &hub,
            &caller("kube-system", "reconciler"),
            "kube-system/prod"
        )
        .is_err(),
        "nor by its name in a selector"
    );
}

#[test]
fn keyferrys_own_namespace_gets_nothing() {
    let named = "  allow:\n    - {namespaces: [keyferry-system], serviceAccounts: [reconciler]}\n";
    for rule in [named, BY_LABEL] {
        let policy = policy(
            &(target(&format!("  audience: prod\n{rule}"))
                + &access("keyferry-system", "prod", "")),
        );
        for requester in [caller("keyferry-system", "reconciler"), Requester::Operator] {
            assert_eq!(
                ask(&policy, &hub(), &requester, "keyferry-system/prod"),
                Err(Reason::TargetNotGranted)
            );
        }
    }
}

#[test]
fn only_who_may_use_a_target_learns_that_it_is_suspended() {
    let on_target = policy(
        &(target(&format!("  audience: prod\n  suspend: true\n{RULE}"))
            + &access("tenant-a", "prod", "  callers: [notifier]\n")),
    );
    let on_access = policy(
        &(target(&format!("  audience: prod\n{RULE}"))
            + &access(
                "tenant-a",
                "prod",
                "  callers: [notifier]\n  suspend: true\n",
            )),
    );
    for policy in [on_target, on_access] {
        assert_eq!(
            ask(
                &policy,
                &hub(),
                &caller("tenant-a", "stranger"),
                "tenant-a/prod"
            ),
            Err(Reason::TargetNotGranted)
        );
        let notifier = caller("tenant-a", "notifier");
        let delegated = ask(&policy, &hub(), &notifier, "tenant-a/prod").unwrap();
        assert_eq!(
            grant(
                &policy,
                notifier.clone(),
                delegated.clone(),
                Review::Refused
            )
            .err(),
            Some(Reason::DelegationForbidden)
        );
        assert_eq!(
            grant(&policy, notifier, delegated, Review::Allowed).err(),
            Some(Reason::TargetSuspended)
        );
        for requester in [caller("tenant-a", "reconciler"), Requester::Operator] {
            let own = ask(&policy, &hub(), &requester, "tenant-a/prod").unwrap();
            assert_eq!(
                grant(&policy, requester, own, Review::NotAsked).err(),
                Some(Reason::TargetSuspended)
            );
        }
    }
}

#[test]
fn what_left_the_policy_after_pairing_is_not_granted() {
    let (policy, hub) = (usual(), hub());
    let own = ask(
        &policy,
        &hub,
        &caller("tenant-a", "reconciler"),
        "tenant-a/prod",
    )
    .unwrap();
    assert!(
        grant(
            &Policy::default(),
            caller("tenant-a", "reconciler"),
            own,
            Review::NotAsked
        )
        .is_err()
    );
}

#[test]
fn an_operator_is_paired_by_policy_alone() {
    let (policy, hub) = (usual(), hub());
    let pair = ask(&policy, &hub, &Requester::Operator, "tenant-a/prod").unwrap();
    assert_eq!(
        pair.via(),
        Via::Itself,
        "the hub's RBAC decides on the operator's own request"
    );
    assert!(grant(&policy, Requester::Operator, pair, Review::NotAsked).is_ok());
    assert_eq!(
        ask(
            &policy,
            &Hub::default(),
            &Requester::Operator,
            "tenant-a/prod"
        ),
        Err(Reason::TargetNotGranted),
        "the ServiceAccount is gone"
    );
}

#[test]
fn a_caller_that_was_made_anew_is_another() {
    let (policy, mut hub) = (usual(), hub());
    let old = caller("tenant-a", "reconciler");
    hub.accounts
        .insert("tenant-a/reconciler".to_owned(), "another".to_owned());
    assert_eq!(
        ask(&policy, &hub, &old, "tenant-a/prod"),
        Err(Reason::CallerIdentityChanged)
    );
    assert_eq!(
        ask(&policy, &hub, &old, "tenant-a/absent"),
        Err(Reason::CallerIdentityChanged),
        "whatever it asks for"
    );
    let new = Requester::Caller(verified("tenant-a", "reconciler", "another"));
    assert_eq!(
        ask(&policy, &hub, &new, "tenant-a/prod")
            .unwrap()
            .service_account()
            .uid
            .as_str(),
        "another"
    );
    hub.accounts.remove("tenant-a/reconciler");
    assert_eq!(
        ask(&policy, &hub, &new, "tenant-a/prod"),
        Err(Reason::CallerIdentityChanged)
    );
}

/// A hub on which the ServiceAccount is recreated between two lookups.
struct Racing(std::cell::Cell<bool>);

impl HubView for Racing {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        let uid = if self.0.replace(true) {
            "another".to_owned()
        } else {
            format!("uid-{}-{}", account.namespace, account.name)
        };
        Uid::new(uid).ok()
    }

    fn namespace_labels(
        &self,
        namespace: &Namespace,
    ) -> Option<std::sync::Arc<BTreeMap<String, String>>> {
        hub().namespace_labels(namespace)
    }
}

#[test]
fn a_caller_is_itself_by_uid_even_in_a_race() {
    let (racing, policy, old) = (
        Racing(std::cell::Cell::new(false)),
        usual(),
        caller("tenant-a", "reconciler"),
    );
    let pair = ask(&policy, &racing, &old, "tenant-a/prod").unwrap();
    assert_eq!(
        pair.service_account().uid.as_str(),
        "uid-tenant-a-reconciler",
        "a decision looks once, and is about what it saw"
    );
    let grant = grant(&policy, old, pair, Review::NotAsked).unwrap();
    assert_eq!(
        still_holds(&policy, &racing, &grant),
        Err(Reason::CallerIdentityChanged),
        "and the next one sees another"
    );
}

#[test]
fn a_grant_holds_while_nothing_changes() {
    let (policy, hub) = (usual(), hub());
    for requester in [
        caller("tenant-a", "reconciler"),
        caller("tenant-a", "notifier"),
        Requester::Operator,
    ] {
        assert_eq!(
            still_holds(&policy, &hub, &granted(&policy, &hub, requester)),
            Ok(())
        );
    }
}

/// What changed, and the results for the ServiceAccount itself and for its delegate.
type Change = (&'static str, Policy, Hub, [Result<(), Reason>; 2]);

#[test]
fn a_grant_ends_with_what_it_stands_on() {
    let (before, live) = (usual(), hub());
    let with = |target_fields: &str, access_fields: &str| {
        policy(&(target(target_fields) + &access("tenant-a", "prod", access_fields)))
    };
    let rule = format!("  audience: prod\n{RULE}");
    let listed = "  callers: [notifier]\n";
    let mut recreated = live.clone();
    recreated
        .accounts
        .insert("tenant-a/reconciler".to_owned(), "another".to_owned());
    let mut caller_recreated = live.clone();
    caller_recreated
        .accounts
        .insert("tenant-a/notifier".to_owned(), "another".to_owned());
    let mut gone = live.clone();
    gone.accounts.remove("tenant-a/reconciler");
    let mut terminating = live.clone();
    terminating.namespaces.remove("tenant-a");
    let other_target = policy(
        &(target(&rule) + &access("tenant-a", "prod", listed))
            .replace("name: prod}\nspec", "name: prod-2}\nspec"),
    );
    let none = Policy {
        targets: BTreeMap::new(),
        ..before.clone()
    };
    use Reason::{CallerIdentityChanged, GrantSuperseded, TargetNotGranted, TargetSuspended};
    let changes: Vec<Change> = vec![
        (
            "the rule was removed",
            with("  audience: prod\n", listed),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the rule names another",
            with(&rule.replace("reconciler", "other"), listed),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the rule allows another delivery",
            with(
                &rule.replace("[reconciler]", "[reconciler], deliveries: [Exec]"),
                listed,
            ),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the access offers another delivery",
            with(
                &rule,
                "  callers: [notifier]\n  deliveries: [{name: a, type: Exec}]\n",
            ),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the access was deleted",
            policy(&target(&rule)),
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the target was deleted",
            none,
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the target has another name",
            other_target,
            live.clone(),
            [Err(TargetNotGranted); 2],
        ),
        (
            "the namespace is terminating",
            before.clone(),
            terminating,
            [Err(TargetNotGranted); 2],
        ),
        (
            "the ServiceAccount is gone",
            before.clone(),
            gone,
            [Err(CallerIdentityChanged), Err(TargetNotGranted)],
        ),
        (
            "the ServiceAccount was recreated",
            before.clone(),
            recreated,
            [Err(CallerIdentityChanged), Err(GrantSuperseded)],
        ),
        (
            "the delegate was made anew",
            before.clone(),
            caller_recreated,
            [Ok(()), Err(CallerIdentityChanged)],
        ),
        (
            "the delegate is no longer listed",
            with(&rule, ""),
            live.clone(),
            [Err(GrantSuperseded), Err(TargetNotGranted)],
        ),
        (
            "the audience changed",
            with(&rule.replace("audience: prod", "audience: prod-2"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "the lifetime changed",
            with(&format!("  tokenLifetime: {{default: 2h}}\n{rule}"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "the target is suspended",
            with(&format!("  suspend: true\n{rule}"), listed),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "a rule was put before",
            with(
                &rule.replace(
                    "allow:\n",
                    "allow:\n    - {namespaces: [other], serviceAccounts: [other]}\n",
                ),
                listed,
            ),
            live.clone(),
            [Err(GrantSuperseded); 2],
        ),
        (
            "nothing changed",
            with(&rule, listed),
            live.clone(),
            [Ok(()); 2],
        ),
    ];
    for (what, policy, hub, expected) in changes {
        for (requester, expected) in [
            caller("tenant-a", "reconciler"),
            caller("tenant-a", "notifier"),
        ]
        .into_iter()
        .zip(expected)
        {
            assert_eq!(
                still_holds(&policy, &hub, &granted(&before, &live, requester)),
                expected,
                "{what}"
            );
        }
    }
    // A suspension without a new generation, as in an API where `suspend` can be set separately.
    let mut suspended = before.clone();
    suspended
        .targets
        .get_mut(&ObjectName::new("prod").unwrap())
        .unwrap()
        .suspend = true;
    assert_eq!(
        still_holds(
            &suspended,
            &live,
            &granted(&before, &live, Requester::Operator)
        ),
        Err(TargetSuspended)
    );
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

#[test]
fn another_signer_is_another_grant() {
    let before = policy(&format!(
        "{}{}",
        target(&format!("  audience: prod\n{RULE}")),
        access("tenant-a", "prod", "")
    ));
    let live = Hub {
        accounts: [("tenant-a/reconciler".to_owned(), "uid-1".to_owned())].into(),
        namespaces: [("tenant-a".to_owned(), BTreeMap::new())].into(),
    };
    let name = AccessName::parse("tenant-a/prod").unwrap();
    let found = pair(
        &before,
        &live,
        &Requester::Operator,
        &name,
        DeliveryType::HTTP,
    )
    .unwrap();
    let granted = grant(&before, Requester::Operator, found, Review::NotAsked).unwrap();
    assert_eq!(granted.pair().issuer(), TokenIssuer::Hub);
    // The same generation, so that only the issuer differs.
    let mut after = before.clone();
    after
        .targets
        .get_mut(&ObjectName::new("prod").unwrap())
        .unwrap()
        .issuer = TokenIssuer::Keyferry;
    assert_eq!(still_holds(&before, &live, &granted), Ok(()));
    assert_eq!(
        still_holds(&after, &live, &granted),
        Err(Reason::GrantSuperseded)
    );
}
