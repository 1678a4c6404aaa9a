//! Checks whether Flux still uses an object of a deleted access. If so, the object stays: a
//! Kustomization that is being deleted needs it to prune.

use keyferry_api::config::{DeliveryType, TargetAccess};
use keyferry_core::delivery::{FluxObject, ObjectPlace};
use keyferry_hub::ports::HubError;

use super::Deliveries;

/// Flux's kinds that refer to a kubeconfig in their own namespace, by API group and version.
const FLUX_KINDS: [&str; 2] = [
    "kustomize.toolkit.fluxcd.io/v1/%/kustomizations",
    "helm.toolkit.fluxcd.io/v2/%/helmreleases",
];

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
        for kind in FLUX_KINDS {
            match self.check_flux_use(kind, access, &places).await {
                FluxUse::MayBeUsed => return false,
                FluxUse::Unused => served = true,
                FluxUse::NotServed => {}
            }
        }
        served || lasting().all(|delivery| delivery.delivery_type == DeliveryType::FluxConfigMap)
    }

    async fn check_flux_use(
        &self,
        kind: &str,
        access: &TargetAccess,
        places: &[ObjectPlace],
    ) -> FluxUse {
        let path = kind.replace('%', &format!("namespaces/{}", access.name.namespace));
        let path = format!("/apis/{path}");
        let uses = |object: &FluxObject| places.iter().any(|place| object.names(place));
        match self.context.objects.is_used_by_flux(&path, &uses).await {
            Err(HubError::NotFound(_)) => FluxUse::NotServed,
            Ok(false) => FluxUse::Unused,
            // Without the right to list them, the objects stay as well, as promised. In a namespace
            // with more objects than are read, only time ends a drain.
            Ok(true) | Err(_) => FluxUse::MayBeUsed,
        }
    }
}
