//! Checks whether Flux still uses an object of a deleted access. If so, the object stays: a
//! Kustomization that is being deleted needs it to prune.

use keyferry_api::config::{DeliveryType, TargetAccess};
use keyferry_core::delivery::{ObjectPlace, ReadObject};
use keyferry_hub::ports::HubError;
use serde_json::Value;

use super::Deliveries;

/// Flux's kinds that refer to a kubeconfig in their own namespace, by API group and version.
const KINDS: [&str; 2] = [
    "kustomize.toolkit.fluxcd.io/v1/%/kustomizations",
    "helm.toolkit.fluxcd.io/v2/%/helmreleases",
];
/// How many objects of a kind are read. In a namespace with more, only time ends a drain.
const MOST: usize = 500;

/// Whether Flux's objects of one kind use an object of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FluxUse {
    /// The hub does not serve the kind.
    NotServed,
    /// None names an object of the access.
    Unused,
    /// An object uses it, or the answer is unknown.
    MayBeUsed,
}

impl Deliveries {
    /// Whether no consumer needs the objects of a deleted access any more.
    ///
    /// This can be known only of delivery types that Flux alone reads; consumers of Secrets for
    /// Argo CD or Cluster API are not checked. A plain kubeconfig may have other readers than Flux,
    /// so it counts as unused only if the hub serves Flux's kinds.
    pub(super) async fn is_unused(&self, access: &TargetAccess) -> bool {
        let lasting = || {
            access.deliveries.iter().filter(|delivery| {
                delivery.holds_token() || delivery.delivery_type == DeliveryType::FluxConfigMap
            })
        };
        if lasting().any(|delivery| {
            !matches!(
                delivery.delivery_type,
                DeliveryType::FluxConfigMap | DeliveryType::KubeConfigSecret
            )
        }) {
            return false;
        }
        let places: Vec<ObjectPlace> = lasting()
            .filter_map(|delivery| ObjectPlace::of(access, delivery))
            .collect();
        let mut served = false;
        for kind in KINDS {
            match self.ask(kind, access, &places).await {
                FluxUse::MayBeUsed => return false,
                FluxUse::Unused => served = true,
                FluxUse::NotServed => {}
            }
        }
        served || lasting().all(|delivery| delivery.delivery_type == DeliveryType::FluxConfigMap)
    }

    async fn ask(&self, kind: &str, access: &TargetAccess, places: &[ObjectPlace]) -> FluxUse {
        let path = kind.replace('%', &format!("namespaces/{}", access.name.namespace));
        match self
            .parts
            .objects
            .get(&format!("/apis/{path}?limit={MOST}"))
            .await
        {
            Ok(None) | Err(HubError::NotFound(_)) => FluxUse::NotServed,
            Ok(Some(list)) if !may_use(&list, places) => FluxUse::Unused,
            // Without the right to list them, the objects stay as well, as promised.
            Ok(Some(_)) | Err(_) => FluxUse::MayBeUsed,
        }
    }
}

/// Whether an object of a list names one of the places, or the list is incomplete or malformed.
fn may_use(list: &ReadObject, places: &[ObjectPlace]) -> bool {
    let list = list.value();
    let more = list
        .pointer("/metadata/continue")
        .and_then(Value::as_str)
        .is_some_and(|token| !token.is_empty());
    let Some(items) = list.get("items").and_then(Value::as_array) else {
        return true;
    };
    let names = |item: &Value, place: &ObjectPlace| {
        let named = |field: &str| item["spec"]["kubeConfig"][field]["name"] == place.name.as_str();
        match place.kind.as_str() {
            "ConfigMap" => named("configMapRef"),
            _ => named("secretRef"),
        }
    };
    more || items
        .iter()
        .any(|item| places.iter().any(|place| names(item, place)))
}
