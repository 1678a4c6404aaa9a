//! The inputs that are made from the policy: a cluster's identity, the accesses to it, and the
//! targets of a namespace.

use std::collections::BTreeMap;

use keyferry_api::config::{ClusterIdentity, DeliveryType, Policy, TargetAccess, TargetCluster};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::collection::Collection;
use super::error::InputsError;
use super::fleet_index::FleetIndex;
use crate::authorise::{self, HubView, Requester};
use crate::client_certificate;

/// The identity of a cluster, as its own inputs state it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInput<'a> {
    /// The short name.
    pub cluster_name: &'a str,
    /// The DNS name.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: &'a str,
    /// The environment.
    pub environment: &'a str,
}

impl<'a> ClusterInput<'a> {
    fn of(identity: &'a ClusterIdentity) -> Self {
        Self {
            cluster_name: &identity.cluster_name,
            cluster_dns: identity.cluster_dns.as_str(),
            environment: &identity.environment,
        }
    }
}

/// An access to a cluster, as the cluster's inputs state it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessInput<'a> {
    /// The tenant's namespace on the hub.
    pub namespace: &'a str,
    /// The TargetAccess.
    pub name: &'a str,
    /// The ServiceAccount on the hub.
    pub service_account_name: &'a str,
    /// The user that the cluster authenticates.
    pub username: String,
}

/// A target that a namespace has access to, as the namespace's inputs state it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetInput<'a> {
    /// The TargetAccess.
    pub access: &'a str,
    /// The TargetCluster.
    pub target: &'a str,
    /// The apiserver's URL. A relying party that is not a cluster has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<&'a str>,
    /// The audience of its tokens.
    pub audience: &'a str,
    /// The ServiceAccount on the hub.
    pub service_account_name: &'a str,
    /// The user that the target authenticates.
    pub username: String,
    /// The target's identity, if it has one.
    #[serde(flatten)]
    pub cluster: Option<ClusterInput<'a>>,
}

/// The user name that a target gives a ServiceAccount. It begins with `hub_name`, except for client
/// certificates of the hub itself.
fn username_at_target(hub_name: &str, target: &TargetCluster, account: &ServiceAccount) -> String {
    if target.client_certificates.is_some() {
        return client_certificate::user_of(account);
    }
    format!(
        "{}system:serviceaccount:{}:{}",
        target.username_prefix(hub_name),
        account.namespace,
        account.name
    )
}

/// The inputs of one cluster about itself.
///
/// # Errors
/// [`InputsError`].
pub fn cluster_inputs(
    name: &ObjectName,
    identity: &ClusterIdentity,
) -> Result<Collection, InputsError> {
    let members = to_members(&ClusterInput::of(identity));
    Collection::new(BTreeMap::from([(name.to_string(), members)]))
}

/// The accesses that policy grants to one target, by `<namespace>.<name>`. A suspended access is
/// included, because its rights at the target stay as they are.
///
/// # Errors
/// [`InputsError`].
pub fn access_inputs(
    policy: &Policy,
    index: &FleetIndex,
    hub: &dyn HubView,
    hub_name: &str,
    target: &TargetCluster,
) -> Result<Collection, InputsError> {
    let granted = index
        .accesses(&target.name)
        .iter()
        .filter_map(|name| Some((name, granted_account(policy, hub, name)?)));
    let inputs = granted.map(|(name, account)| {
        let input = AccessInput {
            namespace: name.namespace.as_str(),
            name: name.name.as_str(),
            service_account_name: account.name.as_str(),
            username: username_at_target(hub_name, target, &account),
        };
        // A namespace has no dot, so no two accesses have one id.
        (
            format!("{}.{}", name.namespace, name.name),
            to_members(&input),
        )
    });
    Collection::new(inputs.collect())
}

/// The targets that policy grants to one namespace, by the name of the access. Absent, forbidden
/// and not allowed targets are all left out, so a reader cannot distinguish them.
///
/// # Errors
/// [`InputsError`].
pub fn target_inputs(
    policy: &Policy,
    hub: &dyn HubView,
    hub_name: &str,
    namespace: &Namespace,
) -> Result<Collection, InputsError> {
    let mut inputs = BTreeMap::new();
    for access in of_namespace(policy, namespace) {
        let (Some(account), Some(target)) = (
            granted_account(policy, hub, &access.name),
            policy.targets.get(&access.target),
        ) else {
            continue;
        };
        let input = TargetInput {
            access: access.name.name.as_str(),
            target: target.name.as_str(),
            address: target.is_cluster().then_some(target.address.as_str()),
            audience: target.audience.as_str(),
            service_account_name: account.name.as_str(),
            username: username_at_target(hub_name, target, &account),
            cluster: target.identity.as_ref().map(ClusterInput::of),
        };
        inputs.insert(access.name.name.to_string(), to_members(&input));
    }
    Collection::new(inputs)
}

/// The accesses of one namespace. Accesses are sorted by their namespaces first.
fn of_namespace<'a>(
    policy: &'a Policy,
    namespace: &'a Namespace,
) -> impl Iterator<Item = &'a TargetAccess> {
    // No name is less than this one.
    let first = ObjectName::new("0").ok().map(|name| AccessName {
        namespace: namespace.clone(),
        name,
    });
    first
        .into_iter()
        .flat_map(|first| policy.accesses.range(first..))
        .map(|(_, access)| access)
        .take_while(move |access| access.name.namespace == *namespace)
}

/// The ServiceAccount of an access, if policy grants it its target by any delivery.
fn granted_account(
    policy: &Policy,
    hub: &dyn HubView,
    name: &AccessName,
) -> Option<ServiceAccount> {
    DeliveryType::ALL.iter().find_map(|(_, delivery)| {
        let pair = authorise::authorise_request(policy, hub, &Requester::Operator, name, *delivery)
            .ok()?;
        Some(pair.service_account().account.clone())
    })
}

fn to_members(input: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(input) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
