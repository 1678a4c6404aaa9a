//! Checks every combination of caller, access, rule and hub state against an oracle that uses only
//! strings.

use std::collections::BTreeMap;

use keyferry_api::config::{DeliveryType, Policy, read};
use keyferry_api::name::AccessName;

use super::{BY_LABEL, HEAD, Hub, access, target};
use crate::authorise::{Requester, Review, Via, authorise_request, grant_token};
use crate::caller::tests::verified;

const NAMESPACES: [&str; 4] = ["tenant-a", "tenant-b", "kube-system", "keyferry-system"];
const NAMES: [&str; 3] = ["reconciler", "notifier", "stranger"];
const DELIVERIES: [(&str, DeliveryType); 3] = [
    ("HTTP", DeliveryType::HTTP),
    ("Exec", DeliveryType::Exec),
    ("FluxConfigMap", DeliveryType::FluxConfigMap),
];

/// An allow rule as strings; no namespaces means those with the label.
#[derive(Clone, Copy)]
struct Rule {
    namespaces: &'static [&'static str],
    accounts: &'static [&'static str],
    deliveries: &'static [&'static str],
}

const RULES: [&[Rule]; 9] = [
    &[],
    &[Rule {
        namespaces: &["tenant-a"],
        accounts: &["reconciler"],
        deliveries: &["HTTP", "Exec", "FluxConfigMap"],
    }],
    &[Rule {
        namespaces: &["tenant-b", "kube-system"],
        accounts: &["reconciler", "stranger"],
        deliveries: &["Exec"],
    }],
    &[Rule {
        namespaces: &["keyferry-system"],
        accounts: &["reconciler"],
        deliveries: &["HTTP"],
    }],
    &[Rule {
        namespaces: &[],
        accounts: &["reconciler"],
        deliveries: &["HTTP", "Exec", "FluxConfigMap"],
    }],
    &[Rule {
        namespaces: &[],
        accounts: &["stranger"],
        deliveries: &["HTTP"],
    }],
    &[
        Rule {
            namespaces: &["tenant-a"],
            accounts: &["reconciler"],
            deliveries: &["Exec"],
        },
        Rule {
            namespaces: &[],
            accounts: &["reconciler"],
            deliveries: &["HTTP"],
        },
    ],
    &[Rule {
        namespaces: &["tenant-a", "tenant-b", "kube-system", "keyferry-system"],
        accounts: &["reconciler", "notifier", "stranger"],
        deliveries: &["HTTP", "FluxConfigMap"],
    }],
    &[
        Rule {
            namespaces: &["tenant-a", "kube-system"],
            accounts: &["reconciler", "stranger"],
            deliveries: &["HTTP", "Exec"],
        },
        Rule {
            namespaces: &[],
            accounts: &["reconciler", "stranger"],
            deliveries: &["HTTP", "Exec", "FluxConfigMap"],
        },
    ],
];

struct Case {
    /// Namespace, name and UID; `None` for an operator.
    caller: Option<(&'static str, &'static str, String)>,
    namespace: &'static str,
    account: &'static str,
    callers: &'static [&'static str],
    offered: &'static [&'static str],
    delivery: &'static str,
    rules: &'static [Rule],
    labelled: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Whole,
    TargetMissing,
    AccountGone,
    NamespaceTerminating,
}

/// The decision that the design requires.
fn oracle(case: &Case) -> &'static str {
    let gone = case.state == State::AccountGone;
    if let Some((namespace, name, uid)) = &case.caller {
        let deleted = gone && *namespace == case.namespace && *name == case.account;
        if deleted || *uid != format!("uid-{namespace}-{name}") {
            return "CallerIdentityChanged";
        }
    }
    let by_rule = case.rules.iter().any(|rule| {
        let in_namespace = match rule.namespaces {
            [] => case.labelled && !case.namespace.starts_with("kube-"),
            names => names.contains(&case.namespace),
        };
        in_namespace
            && rule.accounts.contains(&case.account)
            && rule.deliveries.contains(&case.delivery)
    });
    let offered = if case.offered.is_empty() {
        case.delivery != "FluxConfigMap"
    } else {
        case.offered.contains(&case.delivery)
    };
    if case.state != State::Whole || case.namespace == "keyferry-system" || !by_rule || !offered {
        return "TargetNotGranted";
    }
    match &case.caller {
        None => "Itself",
        Some((namespace, _, _)) if *namespace != case.namespace => "TargetNotGranted",
        Some((_, name, _)) if *name == case.account => "Itself",
        Some((_, name, _)) if case.callers.contains(name) => "Delegate",
        Some(_) => "TargetNotGranted",
    }
}

#[test]
fn every_combination_is_decided_as_the_design_says() {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    let requesters = requesters();
    for rules in RULES {
        for (callers, offered) in [
            (&[][..], &[][..]),
            (&["notifier"], &["HTTP"]),
            (&["notifier", "stranger"], &["Exec", "HTTP"]),
            (&["reconciler"], &[]),
        ] {
            for (account, namespace) in ["reconciler", "stranger"]
                .into_iter()
                .flat_map(|account| NAMESPACES.map(|namespace| (account, namespace)))
            {
                let whole = policy_of(rules, namespace, account, callers, offered);
                let name = AccessName::parse(&format!("{namespace}/prod")).unwrap();
                for state in [
                    State::Whole,
                    State::TargetMissing,
                    State::AccountGone,
                    State::NamespaceTerminating,
                ] {
                    let policy = match state {
                        State::TargetMissing => &Policy {
                            targets: BTreeMap::new(),
                            ..whole.clone()
                        },
                        _ => &whole,
                    };
                    for labelled in [true, false] {
                        let hub = hub_of(state, labelled, namespace, account);
                        for (delivery, delivery_type) in DELIVERIES {
                            for (caller, requester) in &requesters {
                                let case = Case {
                                    caller: caller.clone(),
                                    namespace,
                                    account,
                                    callers,
                                    offered,
                                    delivery,
                                    rules,
                                    labelled,
                                    state,
                                };
                                let said = oracle(&case);
                                let paired = authorise_request(
                                    policy,
                                    &hub,
                                    requester,
                                    &name,
                                    delivery_type,
                                );
                                let found = match &paired {
                                    Err(reason) => reason.as_str(),
                                    Ok(pair) if pair.via() == Via::Itself => "Itself",
                                    Ok(_) => "Delegate",
                                };
                                assert_eq!(
                                    found, said,
                                    "{caller:?} asks for {namespace}/prod of {account} by {delivery}; listed {callers:?}, offered {offered:?}, \
                                    labelled {labelled}, {state:?}"
                                );
                                *counted.entry(said).or_default() += 1;
                                let Ok(pair) = paired else { continue };
                                for review in [Review::Allowed, Review::Refused, Review::NotAsked] {
                                    let granted = grant_token(
                                        policy,
                                        requester.clone(),
                                        pair.clone(),
                                        review,
                                    )
                                    .is_ok();
                                    assert_eq!(
                                        granted,
                                        said == "Itself" || review == Review::Allowed,
                                        "{caller:?}, {review:?}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(counted.values().sum::<usize>() >= 100_000, "{counted:?}");
    assert!(
        counted.len() == 4 && counted.values().all(|count| *count > 100),
        "every answer is reached: {counted:?}"
    );
}

type Asking = (Option<(&'static str, &'static str, String)>, Requester);

/// An operator, and every ServiceAccount with its live and with an old UID.
fn requesters() -> Vec<Asking> {
    let mut all: Vec<Asking> = vec![(None, Requester::Operator)];
    for namespace in NAMESPACES {
        for name in NAMES {
            for uid in [format!("uid-{namespace}-{name}"), "old".to_owned()] {
                let caller = verified(namespace, name, &uid);
                all.push((Some((namespace, name, uid)), Requester::Caller(caller)));
            }
        }
    }
    all
}

fn policy_of(
    rules: &[Rule],
    namespace: &str,
    account: &str,
    callers: &[&str],
    offered: &[&str],
) -> Policy {
    let selector = BY_LABEL
        .split_once("- {")
        .unwrap()
        .1
        .split_once(", serviceAccounts")
        .unwrap()
        .0;
    let rules = rules.iter().map(|rule| {
        let namespaces = if rule.namespaces.is_empty() {
            selector.to_owned()
        } else {
            format!("namespaces: [{}]", rule.namespaces.join(", "))
        };
        format!(
            "    - {{{namespaces}, serviceAccounts: [{}], deliveries: [{}]}}\n",
            rule.accounts.join(", "),
            rule.deliveries.join(", ")
        )
    });
    let rules: String = rules.collect();
    let allow = if rules.is_empty() {
        String::new()
    } else {
        format!("  allow:\n{rules}")
    };
    let deliveries: Vec<String> = offered
        .iter()
        .map(|delivery| format!("{{name: {}, type: {delivery}}}", delivery.to_lowercase()))
        .collect();
    let fields = format!(
        "  callers: [{}]\n  deliveries: [{}]\n",
        callers.join(", "),
        deliveries.join(", ")
    );
    let access = access(namespace, "prod", &fields).replace(
        "serviceAccountName: reconciler",
        &format!("serviceAccountName: {account}"),
    );
    let text = format!(
        "{HEAD}{}{access}",
        target(&format!("  audience: prod\n{allow}"))
    );
    read(&text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .policy
}

fn hub_of(state: State, labelled: bool, namespace: &str, account: &str) -> Hub {
    let mut hub = super::hub();
    if !labelled {
        hub.namespaces.values_mut().for_each(BTreeMap::clear);
    }
    match state {
        State::AccountGone => drop(hub.accounts.remove(&format!("{namespace}/{account}"))),
        State::NamespaceTerminating => drop(hub.namespaces.remove(namespace)),
        State::Whole | State::TargetMissing => {}
    }
    hub
}
