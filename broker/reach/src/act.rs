//! Acts: what a subject changes on the hub so that other doors open, and the world after it.
//!
//! Doors 9 and 10 lead to no identity. Whoever goes through one writes policy, or takes an admission
//! policy away, and goes through another door then. So the question is asked again in the world
//! after the act, with all that the subject can do together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::config::{AllowRule, DeliveryType, NamespaceRule, Policy, StoredAccess};
use keyferry_api::name::ObjectName;
use keyferry_core::admission_policy::{PAIRING_CLOSED, PAIRING_POLICY};
use keyferry_core::authorise::{Requester, authorise_request};
use serde_json::json;

use crate::keyferry_mint::View;
use crate::world::{ActNames, Hub, Secret, World};

/// How many TargetAccesses a subject may write in the world after its acts.
const MAX_WRITTEN_ACCESSES: usize = 2_000;

/// The deliveries that give a token.
const TOKEN_DELIVERIES: [DeliveryType; 7] = [
    DeliveryType::ArgoCDSecret,
    DeliveryType::ClusterAPISecret,
    DeliveryType::ClusterProfile,
    DeliveryType::Exec,
    DeliveryType::FluxConfigMap,
    DeliveryType::HTTP,
    DeliveryType::KubeConfigSecret,
];

/// One act.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Act {
    /// Takes shipped admission policies away, by the names of their bindings.
    TakePolicies(BTreeSet<&'static str>),
    /// Lists whatever it wants in the AudiencePairing.
    ListPairs,
    /// Adds entries to `allow[]` of TargetClusters.
    Allow(ActNames),
    /// Writes TargetAccesses of these ServiceAccounts, in one namespace or in all.
    WriteAccess {
        namespace: Option<String>,
        accounts: ActNames,
    },
}

fn has_name(names: &ActNames, name: &str) -> bool {
    names.as_ref().is_none_or(|names| names.contains(name))
}

impl World {
    /// The world after the acts, with TargetAccesses for these targets, or all; `None` if it is too
    /// large.
    pub(crate) fn after(
        &self,
        acts: &BTreeSet<Act>,
        targets: &BTreeSet<ObjectName>,
    ) -> Option<Self> {
        let mut world = self.clone();
        let hub = &mut world.hub;
        for act in acts {
            match act {
                Act::TakePolicies(names) => hub.taken_policies.extend(names),
                Act::ListPairs => {
                    let pairing = [PAIRING_POLICY.name(), PAIRING_CLOSED.name()];
                    hub.taken_policies.extend(pairing);
                }
                Act::Allow(names) => hub.opened_targets.push(names.clone()),
                Act::WriteAccess { .. } => {}
            }
        }
        let policy = hub.policy();
        let is_asked = |name: &ObjectName| targets.is_empty() || targets.contains(name);
        let mut written = 0;
        for act in acts {
            let Act::WriteAccess {
                namespace,
                accounts,
            } = act
            else {
                continue;
            };
            let candidates: Vec<(String, String)> = (hub.accounts.keys())
                .filter(|(own, _)| namespace.as_ref().is_none_or(|namespace| namespace == own))
                .filter(|(_, account)| has_name(accounts, account))
                .cloned()
                .collect();
            for target in policy.targets.keys().filter(|name| is_asked(name)) {
                for (namespace, account) in &candidates {
                    if hub.may_be_allowed(&policy, target, namespace, account) {
                        written += 1;
                        hub.write_access(written, target, namespace, account);
                    }
                    if written > MAX_WRITTEN_ACCESSES {
                        return None;
                    }
                }
            }
        }
        hub.list_new_pairs(&policy);
        Some(world)
    }
}

impl Hub {
    /// Adds to `allow[]` of the targets that an act opens: every access that there is.
    pub(crate) fn open_targets(&self, policy: &mut Policy) {
        if self.opened_targets.is_empty() {
            return;
        }
        let mut rules: BTreeMap<ObjectName, Vec<AllowRule>> = BTreeMap::new();
        for access in policy.accesses.values() {
            let rule = AllowRule {
                namespaces: NamespaceRule::Named(BTreeSet::from([access.name.namespace.clone()])),
                service_accounts: BTreeSet::from([access.service_account.clone()]),
                deliveries: BTreeSet::from(TOKEN_DELIVERIES),
            };
            rules.entry(access.target.clone()).or_default().push(rule);
        }
        for (name, rules) in rules {
            let is_opened = self.is_opened(&name);
            if let Some(target) = policy.targets.get_mut(&name).filter(|_| is_opened) {
                target.allow = target.allow.iter().cloned().chain(rules).collect();
            }
        }
    }

    fn is_opened(&self, target: &ObjectName) -> bool {
        let mut opened = self.opened_targets.iter();
        opened.any(|names| has_name(names, target.as_str()))
    }

    fn may_be_allowed(
        &self,
        policy: &Policy,
        target: &ObjectName,
        namespace: &str,
        account: &str,
    ) -> bool {
        let allow = policy.targets.get(target).map(|target| &target.allow);
        self.is_opened(target)
            || allow
                .into_iter()
                .flat_map(|allow| allow.iter())
                .any(|rule| {
                    let is_selected = match &rule.namespaces {
                        NamespaceRule::Named(names) => {
                            names.iter().any(|it| it.as_str() == namespace)
                        }
                        NamespaceRule::Selected(_) => true,
                    };
                    let mut accounts = rule.service_accounts.iter();
                    is_selected && accounts.any(|it| it.as_str() == account)
                })
    }

    /// Adds a TargetAccess, and the Secret that it delivers.
    fn write_access(&mut self, number: usize, target: &ObjectName, namespace: &str, account: &str) {
        let name = format!("new-{number}");
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "namespace": namespace, "name": name, "uid": name, "resourceVersion": "1",
                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "targetClusterRef": { "name": target }, "serviceAccountName": account,
                "deliveries": [
                    { "name": "http", "type": "HTTP" },
                    { "name": "secret", "type": "KubeConfigSecret", "objectName": name },
                ],
            },
        });
        if let Some((key, access)) = StoredAccess::read(&object) {
            Arc::make_mut(&mut self.stored).accesses.insert(key, access);
            // Without keyferry-author, Keyferry delivers nothing as long as it notices. So the
            // Secret is in doubt, as one that no TargetAccess controls is.
            let secrets = Arc::make_mut(&mut self.secrets);
            secrets.insert((namespace.to_owned(), name), Secret::default());
        }
    }

    /// Lists in the AudiencePairing what policy allows since the acts.
    fn list_new_pairs(&mut self, before: &Policy) {
        let policy = self.policy();
        let Some(mut pairs) = self.pairs.clone() else {
            return;
        };
        for access in policy.accesses.values() {
            let is_new =
                !before.accesses.contains_key(&access.name) || self.is_opened(&access.target);
            let Some(target) = policy.targets.get(&access.target).filter(|_| is_new) else {
                continue;
            };
            let view = View { hub: self };
            let is_allowed = TOKEN_DELIVERIES.into_iter().any(|kind| {
                let name = &access.name;
                authorise_request(&policy, &view, &Requester::Operator, name, kind).is_ok()
            });
            if is_allowed {
                let account = format!("{}/{}", access.name.namespace, access.service_account);
                let listed = Arc::make_mut(&mut pairs);
                let listed = listed.entry(target.audience.to_string()).or_default();
                listed.insert(account);
            }
        }
        self.pairs = Some(pairs);
    }
}
