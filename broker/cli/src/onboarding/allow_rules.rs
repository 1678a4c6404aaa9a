//! The rules of `spec.allow` of a TargetCluster that name ServiceAccounts. A rule that this command
//! does not change stays as it was written.

use keyferry_api::config::DeliveryType;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::lenient::{Lenient, or_default, readable_items};
use serde::Deserialize;
use serde_json::{Value, json};

/// What is read of one rule.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AllowRule {
    #[serde(deserialize_with = "readable_items")]
    namespaces: Vec<String>,
    #[serde(deserialize_with = "readable_items")]
    service_accounts: Vec<String>,
    /// `None` for the default deliveries.
    #[serde(deserialize_with = "or_default")]
    deliveries: Option<Vec<String>>,
    /// Set if the rule selects namespaces by label.
    namespace_selector: Option<Value>,
}

impl AllowRule {
    fn of(rule: &Value) -> Self {
        Lenient::deserialize(rule)
            .map(|Lenient(rule)| rule)
            .unwrap_or_default()
    }

    fn names_namespace(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|name| name == namespace)
    }

    fn names_account(&self, account: &str) -> bool {
        self.service_accounts.iter().any(|name| name == account)
    }

    /// Whether the rule grants a delivery to the ServiceAccount by exact names.
    fn grants(&self, account: &ServiceAccount, delivery: &str) -> bool {
        let is_allowed = match &self.deliveries {
            Some(deliveries) => deliveries.iter().any(|name| name == delivery),
            None => DeliveryType::DEFAULT
                .iter()
                .any(|default| default.as_str() == delivery),
        };
        self.names_namespace(account.namespace.as_str())
            && self.names_account(account.name.as_str())
            && is_allowed
    }
}

/// Returns the rules of a TargetCluster as they were written.
pub(crate) fn rules_of(target: &Value) -> &[Value] {
    let rules = target.pointer("/spec/allow").and_then(Value::as_array);
    rules.map(Vec::as_slice).unwrap_or_default()
}

fn set_rules(target: &mut Value, rules: Value) {
    if let Some(spec) = target.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("allow".to_owned(), rules);
    }
}

/// Adds to `spec.allow` what this ServiceAccount and these deliveries lack. Returns whether anything
/// was added.
pub(crate) fn allow(
    target: &mut Value,
    account: &ServiceAccount,
    deliveries: &[DeliveryType],
) -> bool {
    let wanted: Vec<DeliveryType> = if deliveries.is_empty() {
        vec![DeliveryType::HTTP, DeliveryType::Exec]
    } else {
        deliveries.to_vec()
    };
    let read: Vec<AllowRule> = rules_of(target).iter().map(AllowRule::of).collect();
    let granted = |delivery: &DeliveryType| {
        read.iter()
            .any(|rule| rule.grants(account, delivery.as_str()))
    };
    if wanted.iter().all(granted) {
        return false;
    }
    let mut rule = json!({
        "namespaces": [account.namespace.as_str()],
        "serviceAccounts": [account.name.as_str()],
    });
    if !wanted
        .iter()
        .all(|delivery| DeliveryType::DEFAULT.contains(delivery))
    {
        let named: Vec<&str> = wanted.iter().map(|delivery| delivery.as_str()).collect();
        rule["deliveries"] = json!(named);
    }
    let mut rules = rules_of(target).to_vec();
    rules.push(rule);
    set_rules(target, Value::Array(rules));
    true
}

/// Makes the rules that name this ServiceAccount exactly allow what [`allow`] adds for these
/// deliveries, and nothing else.
/// Returns whether anything changed.
pub(crate) fn allow_exactly(
    target: &mut Value,
    account: &ServiceAccount,
    deliveries: &[DeliveryType],
) -> bool {
    let before = target.clone();
    disallow(target, account);
    allow(target, account, deliveries);
    let (old, new) = (rules_of(&before), rules_of(target));
    let same = old.len() == new.len() && new.iter().all(|rule| old.contains(rule));
    if same {
        *target = before;
    }
    !same
}

/// Returns every ServiceAccount that the rules name exactly.
pub(crate) fn all_allowed(target: &Value) -> Vec<ServiceAccount> {
    let mut namespaces: Vec<Namespace> = rules_of(target)
        .iter()
        .flat_map(|rule| AllowRule::of(rule).namespaces)
        .filter_map(|name| Namespace::new(name).ok())
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
        .iter()
        .flat_map(|namespace| allowed_in(target, namespace))
        .collect()
}

/// Removes this ServiceAccount from the rules of `spec.allow` that name it exactly. Returns whether
/// anything was removed. A rule that selects namespaces by labels stays.
pub(crate) fn disallow(target: &mut Value, account: &ServiceAccount) -> bool {
    let (namespace, name) = (account.namespace.as_str(), account.name.as_str());
    let before = rules_of(target);
    let kept: Vec<Value> = before
        .iter()
        .flat_map(|rule| without(rule, namespace, name))
        .collect();
    let changed = kept != before;
    if changed {
        set_rules(target, Value::Array(kept));
    }
    changed
}

/// Returns the ServiceAccounts of a namespace that the rules name exactly.
pub(crate) fn allowed_in(target: &Value, namespace: &Namespace) -> Vec<ServiceAccount> {
    let rules = rules_of(target).iter().map(AllowRule::of);
    let names = rules
        .filter(|rule| rule.names_namespace(namespace.as_str()))
        .flat_map(|rule| rule.service_accounts);
    names
        .filter_map(|name| {
            Some(ServiceAccount {
                namespace: namespace.clone(),
                name: ObjectName::new(name).ok()?,
            })
        })
        .collect()
}

/// Returns the places of the rules that select namespaces by label, like `spec.allow[0]`.
pub(crate) fn rules_by_label(target: &Value) -> Vec<String> {
    let rules = rules_of(target).iter().map(AllowRule::of);
    (0_usize..)
        .zip(rules)
        .filter(|(_, rule)| rule.namespace_selector.is_some())
        .map(|(index, _)| format!("spec.allow[{index}]"))
        .collect()
}

/// Splits a rule so that all its other combinations of namespace and ServiceAccount stay.
fn without(rule: &Value, namespace: &str, name: &str) -> Vec<Value> {
    let read = AllowRule::of(rule);
    if !read.names_namespace(namespace) || !read.names_account(name) {
        return vec![rule.clone()];
    }
    let except = |all: &[String], one: &str| -> Vec<String> {
        all.iter().filter(|text| *text != one).cloned().collect()
    };
    let part_of = |namespaces: Vec<String>, accounts: Vec<String>| {
        let mut part = rule.clone();
        let empty = namespaces.is_empty() || accounts.is_empty();
        part["namespaces"] = json!(namespaces);
        part["serviceAccounts"] = json!(accounts);
        (!empty).then_some(part)
    };
    let accounts = &read.service_accounts;
    [
        part_of(except(&read.namespaces, namespace), accounts.clone()),
        part_of(vec![namespace.to_owned()], except(accounts, name)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;
