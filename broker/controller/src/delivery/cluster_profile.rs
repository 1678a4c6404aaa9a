//! Writes the status of a ClusterProfile after the object itself.

use keyferry_api::config::{Delivery, DeliveryType};
use keyferry_api::reason::Reason;
use keyferry_core::delivery::{self, ObjectPlace, OwnedObject, Snapshot};
use keyferry_hub::ports::HubError;

use super::Deliveries;
use super::error::DeliveryError;

impl Deliveries {
    /// Checks the status of an object whose content is already right, and applies it if it is
    /// missing.
    pub(super) async fn reconcile_profile_status(
        &self,
        snapshot: &Snapshot<'_>,
        delivery: &Delivery,
        place: &ObjectPlace,
        owned: &OwnedObject<'_>,
    ) -> Result<(), DeliveryError> {
        if delivery.delivery_type != DeliveryType::ClusterProfile {
            return Ok(());
        }
        let wanted =
            delivery::cluster_profile_status(snapshot, place.name.as_str(), owned.version());
        let ours = |object: &serde_json::Value| {
            let providers = object
                .pointer("/status/accessProviders")
                .and_then(|list| list.as_array())
                .cloned()
                .unwrap_or_default();
            providers
                .into_iter()
                .find(|provider| provider["name"] == "keyferry")
        };
        if ours(owned.object()) == ours(&wanted) {
            Ok(())
        } else {
            self.apply_profile_status(snapshot, delivery, place, owned.version())
                .await
        }
    }

    /// Applies the status to the object of this version. An object that replaced it is not ours,
    /// and is read again first.
    pub(super) async fn apply_profile_status(
        &self,
        snapshot: &Snapshot<'_>,
        delivery: &Delivery,
        place: &ObjectPlace,
        version: &str,
    ) -> Result<(), DeliveryError> {
        if delivery.delivery_type != DeliveryType::ClusterProfile {
            return Ok(());
        }
        let status = delivery::cluster_profile_status(snapshot, place.name.as_str(), version);
        self.context
            .objects
            .apply_status(&place.path(), &status)
            .await
            .map_err(|error| match error {
                HubError::NotFound(_) | HubError::Conflict(_) => DeliveryError::new(
                    Reason::DeliveryFailed,
                    format!("{place} was changed or deleted before its status was written"),
                ),
                error => error.into(),
            })
    }
}
