//! `allow[]` of a TargetCluster: which ServiceAccounts of which namespaces may use it, by which
//! deliveries.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::access_spec::DeliveryType;
use super::check::Check;
use super::selector::{LabelSelector, NamespaceSelector};
use crate::name::{Namespace, ObjectName};
use crate::schema::{choice_names, of_items, set, validation_rule};

/// One entry of `allow[]`: these ServiceAccounts of these namespaces, by these deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowRule {
    /// The namespaces that the rule allows.
    pub namespaces: NamespaceRule,
    /// The ServiceAccounts in those namespaces, by exact name.
    pub service_accounts: BTreeSet<ObjectName>,
    /// The delivery types by which a credential may be issued.
    pub deliveries: BTreeSet<DeliveryType>,
}

impl AllowRule {
    /// Whether it selects namespaces by labels that an admission policy must guard.
    pub fn needs_guarded_labels(&self) -> bool {
        matches!(&self.namespaces, NamespaceRule::Selected(selector) if selector.needs_guarded_labels())
    }
}

/// The namespaces of an [`AllowRule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRule {
    /// These, by exact name.
    Named(BTreeSet<Namespace>),
    /// Those whose labels match.
    Selected(NamespaceSelector),
}

/// ServiceAccounts of some namespaces, and the shapes in which they may have a credential.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(
    extend("x-kubernetes-validations" = [validation_rule(
        "has(self.namespaces) != has(self.namespaceSelector)",
        "an entry has exactly one of namespaces and namespaceSelector",
    )]),
)]
pub(super) struct AllowSpec {
    /// Namespaces by exact name. The only way to name kube-system, kube-public and
    /// kube-node-lease.
    #[schemars(with = "Option<Vec<Namespace>>", length(min = 1, max = 256), transform = set)]
    namespaces: Option<Vec<String>>,
    /// Namespaces by label. Only kubernetes.io/metadata.name and keys that begin with
    /// access.keyferry.dev/, which an admission policy guards; never empty.
    namespace_selector: Option<LabelSelector>,
    /// ServiceAccounts of these namespaces by exact name.
    #[schemars(with = "Vec<ObjectName>", length(min = 1, max = 64), transform = set)]
    service_accounts: Vec<String>,
    /// The shapes in which a credential may be issued. Without it HTTP, Exec and FluxConfigMap,
    /// which store no bearer token. A target with hub: true allows ClientCertificateSecret alone, and
    /// no other target allows it.
    #[schemars(length(min = 1, max = 8), transform = set, transform = delivery_types)]
    deliveries: Option<Vec<String>>,
}

fn delivery_types(schema: &mut Schema) {
    of_items(schema, "enum", json!(choice_names(DeliveryType::ALL)));
}

/// Reads the rules that have no mistakes.
pub(super) fn read_allow_rules(specs: Vec<AllowSpec>, check: &mut Check<'_>) -> Arc<[AllowRule]> {
    specs
        .into_iter()
        .enumerate()
        .filter_map(|(index, spec)| read_allow_rule(spec, index, check))
        .collect()
}

/// Reads the rule at `spec.allow[index]`.
fn read_allow_rule(rule: AllowSpec, index: usize, check: &mut Check<'_>) -> Option<AllowRule> {
    let path = format!("spec.allow[{index}]");
    let namespaces = match (rule.namespaces, rule.namespace_selector) {
        (Some(names), None) => {
            read_names(names, &format!("{path}.namespaces"), Namespace::new, check)
                .map(NamespaceRule::Named)
        }
        (None, Some(selector)) => {
            NamespaceSelector::read(selector, &format!("{path}.namespaceSelector"), check)
                .map(NamespaceRule::Selected)
        }
        (Some(_), Some(_)) => {
            check.wrong(
                &path,
                "has both namespaces and namespaceSelector",
                "keep one of them",
            );
            None
        }
        (None, None) => {
            check.wrong(
                &path,
                "has neither namespaces nor namespaceSelector",
                "list the namespaces by name, or select them",
            );
            None
        }
    };
    let service_accounts = read_names(
        rule.service_accounts,
        &format!("{path}.serviceAccounts"),
        ObjectName::new,
        check,
    );
    let deliveries = match rule.deliveries {
        None => Some(DeliveryType::DEFAULT.iter().copied().collect()),
        Some(names) => read_names(
            names,
            &format!("{path}.deliveries"),
            |text| DeliveryType::parse(&text),
            check,
        ),
    };
    Some(AllowRule {
        namespaces: namespaces?,
        service_accounts: service_accounts?,
        deliveries: deliveries?,
    })
}

fn read_names<T: Ord, E: std::fmt::Display>(
    names: Vec<String>,
    path: &str,
    parse: impl Fn(String) -> Result<T, E>,
    check: &mut Check<'_>,
) -> Option<BTreeSet<T>> {
    if names.is_empty() {
        check.wrong(path, "is empty", "list at least one exact name");
        return None;
    }
    let mut read = BTreeSet::new();
    for (index, name) in names.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let shown = format!("{name:?}");
        let parsed = parse(name).map_err(|error| format!("{shown} {error}"));
        if let Some(name) = check.take(
            &path,
            parsed,
            "write an exact name; patterns are not allowed",
        ) && !read.insert(name)
        {
            check.wrong(
                &path,
                format!("{shown} is listed twice"),
                "list each name once",
            );
        }
    }
    Some(read)
}
