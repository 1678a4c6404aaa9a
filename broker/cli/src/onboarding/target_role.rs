//! What a role gives away at the target, and which bindings of earlier runs are there.

use std::collections::BTreeMap;

use keyferry_client::ClientError;
use keyferry_client::objects_of_hub::list_of;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use serde::Deserialize;
use serde_json::Value;

use crate::trust::powers_of;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Why the roles or the bindings of a target are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoleError {
    /// There is no ClusterRole of this name.
    #[error("the target has no such ClusterRole")]
    NoSuchRole,
    /// The ClusterRole cannot be read.
    #[error("reading the ClusterRole: {0}")]
    Role(HubError),
    /// A binding cannot be read.
    #[error("reading ClusterRoleBinding {0}: {1}")]
    Binding(String, HubError),
    /// The roles or the bindings cannot be listed.
    #[error(transparent)]
    List(#[from] ClientError),
}

/// Reads the powers of a ClusterRole of the target, with those that it aggregates.
///
/// # Errors
/// Why they are unknown.
pub(crate) async fn powers(client: &HubClient, role: &str) -> Result<Vec<String>, RoleError> {
    let path = format!("{RBAC}/clusterroles/{role}");
    let role: ClusterRole = match client.get_object(&path, "ClusterRole").await {
        Ok(role) => role,
        Err(HubError::NotFound(_)) => return Err(RoleError::NoSuchRole),
        Err(error) => return Err(RoleError::Role(error)),
    };
    let mut rules = role.rules.clone().unwrap_or_default();
    if !role.selectors().is_empty() {
        let path = format!("{RBAC}/clusterroles");
        let aggregated = |other: ClusterRole| role.aggregates(&other).then_some(other.rules);
        let others = list_of(client, &path, "listing the ClusterRoles", aggregated).await;
        rules.extend(others?.into_iter().flatten().flatten());
    }
    Ok(powers_of(&rules))
}

/// Reads the ClusterRoleBindings of the target that `is_wanted` chooses by their names and the names
/// of their roles.
///
/// # Errors
/// Why they are unknown.
pub(crate) async fn cluster_bindings(
    client: &HubClient,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Value>, RoleError> {
    let path = format!("{RBAC}/clusterrolebindings");
    let wanted = |binding: ClusterRoleBinding| {
        let is_wanted = is_wanted(&binding.metadata.name, &binding.role_ref.name);
        is_wanted.then_some(binding.metadata.name)
    };
    let names = list_of(client, &path, "listing the ClusterRoleBindings", wanted);
    let mut bindings = Vec::new();
    for name in names.await? {
        match client
            .get_object::<Value>(&format!("{path}/{name}"), "object")
            .await
        {
            Ok(binding) => bindings.push(binding),
            Err(HubError::NotFound(_)) => {}
            Err(error) => return Err(RoleError::Binding(name, error)),
        }
    }
    Ok(bindings)
}

/// A ClusterRoleBinding, reduced to the names that say whether an earlier run made it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRoleBinding {
    metadata: Named,
    role_ref: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// A ClusterRole, reduced to what says which rules it has. Metadata but its labels is skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRole {
    metadata: RoleMetadata,
    rules: Option<Vec<Value>>,
    aggregation_rule: Option<AggregationRule>,
}

#[derive(Deserialize)]
struct RoleMetadata {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregationRule {
    cluster_role_selectors: Option<Vec<Value>>,
}

impl ClusterRole {
    /// The selectors of the roles whose rules this one also has. A controller may not have copied
    /// these yet.
    fn selectors(&self) -> &[Value] {
        let rule = self.aggregation_rule.as_ref();
        let selectors = rule.and_then(|rule| rule.cluster_role_selectors.as_deref());
        selectors.unwrap_or_default()
    }

    fn aggregates(&self, other: &Self) -> bool {
        let labels = other.metadata.labels.as_ref();
        let mut selectors = self.selectors().iter();
        selectors.any(|selector| selects(selector, labels))
    }
}

/// Whether a selector of `matchLabels` selects a role with these labels. One with expressions too
/// counts as if it had none, so that no power is missed.
fn selects(selector: &Value, of_role: Option<&BTreeMap<String, String>>) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").is_some();
    if labels.is_none_or(|labels| labels.is_empty()) {
        return expressions;
    }
    labels.into_iter().flatten().all(|(name, value)| {
        let of_role = of_role.and_then(|labels| labels.get(name));
        of_role.map(String::as_str) == value.as_str()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rules_of_aggregated_roles_count() {
        let role = |role: Value| serde_json::from_value::<ClusterRole>(role).unwrap();
        let label = json!({ "aggregate": "yes" });
        let labelled =
            |labels: Value| role(json!({ "metadata": { "name": "x", "labels": labels } }));
        let whole = |selector: Value| {
            role(json!({
                "metadata": { "name": "whole" }, "rules": [],
                "aggregationRule": { "clusterRoleSelectors": [selector] },
            }))
        };
        let by_label = whole(json!({ "matchLabels": label }));
        assert!(by_label.aggregates(&labelled(label.clone())));
        assert!(!by_label.aggregates(&labelled(json!({ "aggregate": "no" }))));
        assert!(!by_label.aggregates(&labelled(Value::Null)));
        assert!(!whole(json!({})).aggregates(&labelled(label.clone())));
        let by_expression = whole(json!({ "matchExpressions": [] }));
        assert!(by_expression.aggregates(&labelled(Value::Null)));
        assert!(!labelled(label.clone()).aggregates(&labelled(label)));
    }
}
