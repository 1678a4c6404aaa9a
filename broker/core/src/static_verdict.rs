//! The decision of the configuration alone, before the hub's live objects are checked.

use keyferry_api::config::{
    AllowRule, DeliveryType, NamespaceRule, Policy, TargetAccess, TargetCluster,
};
use keyferry_api::name::AccessName;

use crate::authorise;

/// Whether the configuration files allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticVerdict {
    /// An allow rule names its namespace and its ServiceAccount.
    Allowed,
    /// An allow rule names its ServiceAccount, and selects namespaces by labels that only the hub
    /// knows.
    ByNamespaceLabels,
    /// Rules match some of its deliveries, and not all.
    PartlyAllowed,
    /// No allow rule matches.
    NotAllowed,
    /// Its target, or the access itself, is suspended.
    Suspended,
    /// Its target does not exist.
    NoSuchTarget,
}

impl StaticVerdict {
    /// Evaluates `policy` for each delivery of `access`.
    pub fn of(policy: &Policy, access: &TargetAccess) -> Self {
        let Some(target) = policy.targets.get(&access.target) else {
            return Self::NoSuchTarget;
        };
        if policy.own_namespace.as_ref() == Some(&access.name.namespace) {
            return Self::NotAllowed;
        }
        let verdicts: Vec<Self> = offered_deliveries(access)
            .map(|delivery| verdict_of(target, access, delivery))
            .collect();
        let refused = verdicts
            .iter()
            .filter(|verdict| **verdict == Self::NotAllowed)
            .count();
        match verdicts
            .iter()
            .find(|verdict| **verdict != Self::NotAllowed)
        {
            None => Self::NotAllowed,
            Some(_) if target.suspend || access.suspend => Self::Suspended,
            // Without deliveries of its own, an access offers HTTP and Exec; one of them is enough.
            Some(_) if refused > 0 && !access.deliveries.is_empty() => Self::PartlyAllowed,
            Some(_) if verdicts.contains(&Self::Allowed) => Self::Allowed,
            Some(verdict) => *verdict,
        }
    }

    /// The text that is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "yes",
            Self::ByNamespaceLabels => "by namespace labels",
            Self::PartlyAllowed => "in part",
            Self::NotAllowed => "no",
            Self::Suspended => "suspended",
            Self::NoSuchTarget => "no such target",
        }
    }
}

/// The delivery types that an access offers.
pub fn offered_deliveries(access: &TargetAccess) -> impl Iterator<Item = DeliveryType> {
    DeliveryType::ALL
        .iter()
        .map(|(_, kind)| *kind)
        .filter(|kind| access.offers(*kind))
}

/// Explains why an access gives no token on request: to a caller of the server, or to a command
/// without one. The reader may read the policy.
pub fn explain_refusal(policy: &Policy, name: &AccessName) -> String {
    let Some(access) = policy.accesses.get(name) else {
        return "there is no TargetAccess of this name, or its spec has a mistake".to_owned();
    };
    let Some(target) = policy.targets.get(&access.target) else {
        return format!(
            "there is no TargetCluster {}, or its spec has a mistake: see the condition Ready",
            access.target
        );
    };
    if policy.own_namespace.as_ref() == Some(&name.namespace) {
        return "no access in Keyferry's own namespace is granted".to_owned();
    }
    let account = format!("{}/{}", name.namespace, access.service_account);
    let rules: Vec<(&AllowRule, StaticVerdict)> = rules_for(target, access).collect();
    if rules.is_empty() {
        return format!(
            "no rule of allow[] of TargetCluster {} names ServiceAccount {account}",
            target.name
        );
    }
    let allowed = |kind: DeliveryType| {
        rules
            .iter()
            .any(|(rule, _)| rule.deliveries.contains(&kind))
    };
    let types = |kinds: &mut dyn Iterator<Item = DeliveryType>| {
        let names: Vec<&str> = kinds.map(DeliveryType::as_str).collect();
        names.join(", ")
    };
    let all_types = || DeliveryType::ALL.iter().map(|(_, kind)| *kind);
    let offers_on_request = ON_REQUEST.iter().any(|kind| access.offers(*kind));
    if !offers_on_request {
        let offered = types(&mut all_types().filter(|kind| access.offers(*kind)));
        let starts: Vec<String> = access.deliveries.iter().filter_map(start_of).collect();
        let start = match starts.first() {
            Some(start) => format!("start from {start}, or "),
            None => String::new(),
        };
        return format!("{name} delivers only {offered}: {start}add {{type: HTTP}} to it");
    }
    if !ON_REQUEST
        .iter()
        .any(|kind| access.offers(*kind) && allowed(*kind))
    {
        let granted = types(&mut all_types().filter(|kind| allowed(*kind)));
        return format!(
            "TargetCluster {} allows ServiceAccount {account} only {granted}",
            target.name
        );
    }
    if rules
        .iter()
        .all(|(_, verdict)| *verdict == StaticVerdict::ByNamespaceLabels)
    {
        return format!(
            "ServiceAccount {account} does not exist on the hub, or the namespace has none of the \
             labels that allow[] of TargetCluster {} selects",
            target.name
        );
    }
    format!("ServiceAccount {account} does not exist on the hub")
}

/// What `doctor` starts from to follow a delivery.
fn start_of(delivery: &keyferry_api::config::Delivery) -> Option<String> {
    let kind = match delivery.delivery_type {
        DeliveryType::FluxConfigMap => "configmap",
        DeliveryType::KubeConfigSecret | DeliveryType::ClusterAPISecret => "secret",
        _ => return None,
    };
    Some(format!("{kind}/{}", delivery.object_name.as_ref()?))
}

/// The position in `allow[]` of each rule that names the access's ServiceAccount, names or selects its
/// namespace, and allows one of its deliveries; and whether it selects namespaces by labels, which
/// only the hub knows.
pub fn matching_rules(target: &TargetCluster, access: &TargetAccess) -> Vec<(usize, bool)> {
    let offered: Vec<DeliveryType> = offered_deliveries(access).collect();
    let position = |rule: &AllowRule| target.allow.iter().position(|other| other == rule);
    rules_for(target, access)
        .filter(|(rule, _)| offered.iter().any(|kind| rule.deliveries.contains(kind)))
        .filter_map(|(rule, verdict)| {
            Some((position(rule)?, verdict == StaticVerdict::ByNamespaceLabels))
        })
        .collect()
}

/// The types that give a token on request.
const ON_REQUEST: [DeliveryType; 2] = [DeliveryType::HTTP, DeliveryType::Exec];

/// Returns the rules that name the access's ServiceAccount and namespace, whatever they deliver.
fn rules_for<'a>(
    target: &'a TargetCluster,
    access: &'a TargetAccess,
) -> impl Iterator<Item = (&'a AllowRule, StaticVerdict)> {
    target.allow.iter().filter_map(|rule| {
        if !rule.service_accounts.contains(&access.service_account) {
            return None;
        }
        let verdict = match &rule.namespaces {
            NamespaceRule::Named(names) => names
                .contains(&access.name.namespace)
                .then_some(StaticVerdict::Allowed),
            NamespaceRule::Selected(_) if authorise::is_system(&access.name.namespace) => None,
            NamespaceRule::Selected(_) => Some(StaticVerdict::ByNamespaceLabels),
        };
        Some((rule, verdict?))
    })
}

/// Judges one delivery type of the access.
fn verdict_of(
    target: &TargetCluster,
    access: &TargetAccess,
    delivery: DeliveryType,
) -> StaticVerdict {
    rules_for(target, access)
        .filter(|(rule, _)| rule.deliveries.contains(&delivery))
        .map(|(_, verdict)| verdict)
        .min_by_key(|verdict| *verdict != StaticVerdict::Allowed)
        .unwrap_or(StaticVerdict::NotAllowed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::{self, Policy};
    use keyferry_api::name::AccessName;
    use serde_json::{Value, json};

    use super::{StaticVerdict, explain_refusal};

    const RECONCILER: &str = "reconciler";

    /// A policy with one access, whose target has one rule that allows these delivery types.
    fn policy(deliveries: &Value, account: &str, allowed: &Value) -> Policy {
        let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: \
                    CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\ndiscovery: \
                    {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n";
        let server = config::read(text).unwrap().server;
        let metadata = |name: &str| json!({ "name": name, "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" });
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata("prod"),
            "spec": { "address": "https://prod.example.com", "audience": "prod",
                "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER], "deliveries": allowed }] },
        });
        let mut access = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata("prod"),
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": account, "deliveries": deliveries },
        });
        access["metadata"]["namespace"] = json!("tenant-a");
        let mut objects = config::StoredObjects::default();
        objects
            .targets
            .extend(config::StoredTarget::read(&target, &server));
        objects.accesses.extend(config::StoredAccess::read(&access));
        objects.assemble(&server.cluster_resource_namespace).policy
    }

    fn judged(policy: &Policy) -> (&'static str, String) {
        let name = AccessName::parse("tenant-a/prod").unwrap();
        let verdict = StaticVerdict::of(policy, &policy.accesses[&name]);
        (verdict.as_str(), explain_refusal(policy, &name))
    }

    const ALL: [&str; 4] = ["HTTP", "Exec", "FluxConfigMap", "KubeConfigSecret"];

    /// The deliveries that pages recommend were called not allowed.
    #[test]
    fn every_delivery_is_judged_and_not_only_those_on_request() {
        let flux = json!([{ "name": "f", "type": "FluxConfigMap", "objectName": "prod" }]);
        let secret = json!([{ "name": "s", "type": "KubeConfigSecret", "objectName": "prod" }]);
        let both = json!([{ "name": "f", "type": "FluxConfigMap", "objectName": "prod" }, { "name": "s", "type": "KubeConfigSecret", "objectName": "prod" }]);
        for (deliveries, allowed, verdict) in [
            (&flux, json!(ALL), "yes"),
            (&secret, json!(ALL), "yes"),
            (&both, json!(ALL), "yes"),
            (&both, json!(["FluxConfigMap"]), "in part"),
            (&secret, json!(["FluxConfigMap"]), "no"),
            (&json!([]), json!(["HTTP"]), "yes"),
            (&json!([]), json!(["FluxConfigMap"]), "no"),
        ] {
            let policy = policy(deliveries, RECONCILER, &allowed);
            assert_eq!(judged(&policy).0, verdict, "{deliveries} {allowed}");
        }
    }

    #[test]
    fn a_refusal_names_its_cause() {
        let flux = json!([{ "name": "f", "type": "FluxConfigMap", "objectName": "prod" }]);
        let argo =
            json!([{ "name": "a", "type": "ArgoCDSecret", "argoCD": { "project": "apps" } }]);
        let none = json!([]);
        for (deliveries, account, allowed, text) in [
            (
                &flux,
                RECONCILER,
                json!(ALL),
                "tenant-a/prod delivers only FluxConfigMap: start from configmap/prod, or add \
                 {type: HTTP} to it",
            ),
            (
                &argo,
                RECONCILER,
                json!(ALL),
                "tenant-a/prod delivers only ArgoCDSecret: add {type: HTTP} to it",
            ),
            (
                &none,
                "other",
                json!(ALL),
                "no rule of allow[] of TargetCluster prod names ServiceAccount tenant-a/other",
            ),
            (
                &none,
                RECONCILER,
                json!(["FluxConfigMap"]),
                "TargetCluster prod allows ServiceAccount tenant-a/reconciler only FluxConfigMap",
            ),
            (
                &none,
                RECONCILER,
                json!(ALL),
                "ServiceAccount tenant-a/reconciler does not exist on the hub",
            ),
        ] {
            assert_eq!(judged(&policy(deliveries, account, &allowed)).1, text);
        }
        let mut policy = policy(&none, RECONCILER, &json!(ALL));
        policy.targets.clear();
        assert!(judged(&policy).1.contains("there is no TargetCluster prod"));
    }
}
