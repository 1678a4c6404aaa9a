//! Objects that are no longer wanted. Only what was written for this very access is deleted, and only as it was read.

use jiff::Timestamp;
use keyferry_core::access_status::{self, DeliveryReport};
use keyferry_core::config::{Delivery, StoredAccess};
use keyferry_core::delivery::{self, Found, ObjectPlace, ReadObject};
use keyferry_core::name::AccessName;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::Uid;
use serde_json::Value;

use super::write::Written;
use super::{Deliveries, Round};
use crate::ports::HubError;

impl Deliveries {
    /// Deletes the object at a place if it is ours, and says when the token ends that stood in it: no status may have told of it yet.
    pub(super) async fn remove(&self, place: &ObjectPlace, owner: &Uid) -> Result<Option<Timestamp>, HubError> {
        let Some(read) = self.parts.objects.get(&place.path()).await? else { return Ok(None) };
        let Found::Ours(held) = delivery::found(Some(ReadObject::value(&read)), owner) else { return Ok(None) };
        if !self.leads() {
            return Err(HubError::Busy);
        }
        self.parts.objects.delete(&place.path(), held.uid(), held.version()).await?;
        tracing::info!(object = %place, "an object was deleted");
        Ok(held.expires_at())
    }

    /// Takes back what a delivery that policy does not grant has written before.
    pub(super) async fn withdraw(&self, round: &Round<'_>, delivery: &Delivery, reason: Reason) -> Written {
        let mut report = DeliveryReport { delivery: delivery.clone(), reason, message: String::new(), token: None };
        let removed = match (ObjectPlace::of(round.access, delivery), &round.access.uid) {
            (Some(place), Some(owner)) => self.remove(&place, owner).await,
            _ => Ok(None),
        };
        let exposed = removed.as_ref().ok().copied().flatten();
        // A namespace that Keyferry may not look into holds nothing of ours, and who is refused learns no more than that.
        let failed = removed.err().filter(|error| !matches!(error, HubError::Forbidden(_)));
        if let Some(error) = &failed {
            report.message = format!("taking the object back failed: {error}");
        }
        Written { report, retry: failed.is_some(), retry_after: None, exposed }
    }

    /// Deletes the objects of an access that gets no new tokens, being deleted or invalid, whose tokens were signed by a revoked key: no
    /// target accepts them, and nothing will replace them. Returns their places.
    pub(super) async fn withdraw_revoked(&self, name: &AccessName, stored: &StoredAccess) -> Result<Vec<ObjectPlace>, HubError> {
        let policy = self.parts.policy.current();
        let target = stored.meant().and_then(|access| policy.targets.get(&access.target));
        let mut withdrawn = Vec::new();
        for (place, report) in access_status::places(&stored.record.status, name) {
            // A status of before key IDs were recorded proves nothing against the token, and who drains needs it.
            if report["keyID"].as_str().is_some_and(|key_id| self.is_revoked(Some(key_id), target)) {
                self.remove(&place, &stored.record.uid).await?;
                withdrawn.push(place);
            }
        }
        Ok(withdrawn)
    }

    /// Deletes what earlier specs of the access had written; what could not be deleted comes back, and when the last token
    /// ends of what was.
    pub(super) async fn remove_unwanted(&self, round: &Round<'_>) -> (Vec<Value>, Option<Timestamp>) {
        let Some(owner) = &round.access.uid else { return (Vec::new(), None) };
        let wanted: Vec<ObjectPlace> =
            round.access.deliveries.iter().filter_map(|delivery| ObjectPlace::of(round.access, delivery)).collect();
        let (mut left_over, mut exposed) = (Vec::new(), None);
        for (place, report) in access_status::places(&round.stored.record.status, round.name) {
            if wanted.contains(&place) {
                continue;
            }
            match self.remove(&place, owner).await {
                Ok(end) => exposed = exposed.max(end),
                Err(_) => left_over.push(access_status::left_over(&place, report)),
            }
        }
        (left_over, exposed)
    }
}
