//! `TargetAccess`: "this ServiceAccount of mine uses that TargetCluster, delivered like so".

use std::collections::BTreeSet;

use serde::Deserialize;

use super::check::Check;
use super::document::{Document, LocalReference, Metadata};
use super::mistake::Mistake;
use super::{Generation, Policy};
use crate::name::{AccessName, Namespace, ObjectName};

/// The shape in which a credential leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeliveryType {
    /// An Argo CD cluster Secret.
    ArgoCDSecret,
    /// A Cluster API kubeconfig Secret.
    ClusterAPISecret,
    /// An item in a ClusterProfile's `status.accessProviders`.
    ClusterProfile,
    /// An ExecCredential for kubectl and client-go.
    Exec,
    /// A Flux `provider: generic` ConfigMap.
    FluxConfigMap,
    /// The token exchange and the kubeconfig route.
    HTTP,
    /// A Secret with a kubeconfig under `value`.
    KubeConfigSecret,
}

impl DeliveryType {
    /// What an allow rule allows when it says nothing: shapes that leave no bearer token at rest.
    pub const DEFAULT: &'static [DeliveryType] = &[DeliveryType::HTTP, DeliveryType::Exec, DeliveryType::FluxConfigMap];

    const ALL: &'static [(&'static str, DeliveryType)] = &[
        ("ArgoCDSecret", DeliveryType::ArgoCDSecret),
        ("ClusterAPISecret", DeliveryType::ClusterAPISecret),
        ("ClusterProfile", DeliveryType::ClusterProfile),
        ("Exec", DeliveryType::Exec),
        ("FluxConfigMap", DeliveryType::FluxConfigMap),
        ("HTTP", DeliveryType::HTTP),
        ("KubeConfigSecret", DeliveryType::KubeConfigSecret),
    ];

    pub(super) fn parse(text: &str) -> Result<DeliveryType, String> {
        DeliveryType::ALL.iter().find(|(name, _)| *name == text).map(|(_, delivery)| *delivery).ok_or_else(|| {
            let names: Vec<&str> = DeliveryType::ALL.iter().map(|(name, _)| *name).collect();
            format!("is no delivery; there are {}", names.join(", "))
        })
    }
}

/// One entry of `deliveries[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its name in the list.
    pub name: ObjectName,
    /// Its shape.
    pub delivery_type: DeliveryType,
}

/// A TargetAccess, checked.
#[derive(Clone, Debug)]
pub struct TargetAccess {
    /// Its namespace and name, which are also its UID in a file.
    pub name: AccessName,
    /// Changes with its spec.
    pub generation: Generation,
    /// The TargetCluster it uses.
    pub target: ObjectName,
    /// The ServiceAccount it mints for, in its own namespace.
    pub service_account: ObjectName,
    /// Other ServiceAccounts of its namespace that may ask for it.
    pub callers: BTreeSet<ObjectName>,
    /// The shapes it asks for. Empty means `HTTP` and `Exec`, on request.
    pub deliveries: Vec<Delivery>,
    /// Whether nothing is minted for the time being.
    pub suspend: bool,
}

impl TargetAccess {
    /// Whether this access asks for credentials in this shape.
    pub fn offers(&self, delivery: DeliveryType) -> bool {
        if self.deliveries.is_empty() {
            return matches!(delivery, DeliveryType::HTTP | DeliveryType::Exec);
        }
        self.deliveries.iter().any(|offered| offered.delivery_type == delivery)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Object {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    target_cluster_ref: LocalReference,
    service_account_name: String,
    #[serde(default)]
    callers: Vec<String>,
    #[serde(default)]
    deliveries: Vec<DeliverySpec>,
    deletion_policy: Option<String>,
    probe: Option<String>,
    #[serde(default)]
    suspend: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DeliverySpec {
    name: String,
    #[serde(rename = "type")]
    delivery_type: String,
    object_name: Option<String>,
    token_lifetime: Option<String>,
}

/// Reads one TargetAccess into the policy.
pub(super) fn read(document: &Document, policy: &mut Policy, mistakes: &mut Vec<Mistake>) {
    let mut check = Check::new(document, mistakes);
    let Some(Object { metadata, spec, .. }) = check.read::<Object>() else { return };
    let namespace =
        metadata.namespace.ok_or("is missing".to_owned()).and_then(|text| Namespace::new(text).map_err(|error| error.to_string()));
    let namespace = check.take("metadata.namespace", namespace, "a TargetAccess is namespaced: write its tenant's namespace");
    let name = check.take("metadata.name", ObjectName::new(metadata.name), "name it as a Kubernetes object");
    let target = check.take("spec.targetClusterRef.name", ObjectName::new(spec.target_cluster_ref.name), "name a TargetCluster");
    let service_account =
        check.take("spec.serviceAccountName", ObjectName::new(spec.service_account_name), "name a ServiceAccount of the same namespace");
    let mut callers = BTreeSet::new();
    for (index, caller) in spec.callers.into_iter().enumerate() {
        let path = format!("spec.callers[{index}]");
        if let Some(caller) = check.take(&path, ObjectName::new(caller), "name a ServiceAccount of the same namespace, without a namespace")
        {
            let shown = caller.to_string();
            if !callers.insert(caller) {
                check.wrong(&path, format!("{shown:?} is listed twice"), "list each caller once");
            }
        }
    }
    let deliveries = read_deliveries(spec.deliveries, &mut check);
    one_of(spec.deletion_policy.as_deref(), "spec.deletionPolicy", &["Drain", "Immediate"], &mut check);
    match spec.probe.as_deref() {
        Some("Require") => check.wrong("spec.probe", "Require is not available yet", "use Off or Report"),
        probe => one_of(probe, "spec.probe", &["Off", "Report"], &mut check),
    }
    if !check.clean() {
        return;
    }
    let (Some(namespace), Some(name), Some(target), Some(service_account)) = (namespace, name, target, service_account) else { return };
    let name = AccessName { namespace, name };
    let generation = document.generation();
    let access = TargetAccess { name: name.clone(), generation, target, service_account, callers, deliveries, suspend: spec.suspend };
    policy.accesses.insert(name, access);
}

fn read_deliveries(deliveries: Vec<DeliverySpec>, check: &mut Check<'_>) -> Vec<Delivery> {
    let mut names = BTreeSet::new();
    let mut read = Vec::new();
    for (index, delivery) in deliveries.into_iter().enumerate() {
        let path = format!("spec.deliveries[{index}]");
        let name = check.take(&format!("{path}.name"), ObjectName::new(delivery.name.clone()), "name the delivery");
        if name.as_ref().is_some_and(|name| !names.insert(name.clone())) {
            check.wrong(&format!("{path}.name"), "a second delivery has this name", "rename one of them");
        }
        let shown = delivery.delivery_type.as_str();
        let delivery_type = DeliveryType::parse(shown).map_err(|error| format!("{shown:?} {error}"));
        let Some(delivery_type) = check.take(&format!("{path}.type"), delivery_type, "use HTTP or Exec") else { continue };
        if matches!(delivery_type, DeliveryType::HTTP | DeliveryType::Exec) {
            refuse_object_fields(&delivery, &path, check);
        } else {
            check.wrong(
                &format!("{path}.type"),
                format!("{shown} is written by the controller, which does not run on a file"),
                "use HTTP or Exec",
            );
        }
        read.extend(name.map(|name| Delivery { name, delivery_type }));
    }
    read
}

/// `HTTP` and `Exec` answer requests: there is no object to name, and nothing at rest that would need a longer life.
fn refuse_object_fields(delivery: &DeliverySpec, path: &str, check: &mut Check<'_>) {
    let shown = &delivery.delivery_type;
    if delivery.object_name.is_some() {
        check.wrong(&format!("{path}.objectName"), format!("{shown} writes no object"), "remove objectName");
    }
    if delivery.token_lifetime.is_some() {
        check.wrong(&format!("{path}.tokenLifetime"), format!("{shown} takes its lifetime from the target"), "remove tokenLifetime");
    }
}

fn one_of(text: Option<&str>, path: &str, choices: &[&str], check: &mut Check<'_>) {
    if let Some(text) = text
        && !choices.contains(&text)
    {
        check.wrong(path, format!("{text:?} is no choice"), format!("use {}", choices.join(" or ")));
    }
}
