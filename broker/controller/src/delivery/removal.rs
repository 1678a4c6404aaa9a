//! Deletes objects that are no longer wanted: only those that were written for this access, and
//! only in the version that was read.

use jiff::Timestamp;
use keyferry_api::config::{Delivery, StoredAccess};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::Uid;
use keyferry_api::status::DeliveryStatus;
use keyferry_core::access_status::{self, DeliveryReport, TokenReport};
use keyferry_core::delivery::{self, DeliveredObject, ObjectBody, ObjectPlace, ReadObject};
use keyferry_hub::ports::HubError;
use serde_json::Value;

use super::object::DeliveryOutcome;
use super::{Deliveries, Reconciliation};

/// The result of deleting an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// The object does not exist now. If it was just deleted, this is when its token expires, which
    /// no status may have reported yet.
    Gone(Option<Timestamp>),
    /// The object is still there, and why. It still contains its token, if it has one.
    Retained(String),
}

impl Removal {
    /// Keyferry may not read the object.
    pub(super) fn unreadable() -> Self {
        Self::Retained("Keyferry may not read it".to_owned())
    }

    /// Returns when the token of the deleted object expires.
    pub(super) fn exposed_until(&self) -> Option<Timestamp> {
        match self {
            Self::Gone(exposed_until) => *exposed_until,
            Self::Retained(_) => None,
        }
    }
}

/// Returns the unexpired token that the status reports for a place. If the object cannot be read or
/// is no longer ours, the token may have been removed. It is still reported until it expires.
pub(super) fn earlier_token(
    status: &Value,
    access: &AccessName,
    place: &ObjectPlace,
    now: Timestamp,
) -> Option<TokenReport> {
    let places = access_status::delivered_objects(status, access);
    let report = places.into_iter().find(|(known, _)| known == place)?.1;
    TokenReport::read(&report).filter(|token| token.expires_at > now)
}

impl Deliveries {
    /// Deletes the object at a place if it is ours.
    pub(super) async fn remove_object(
        &self,
        place: &ObjectPlace,
        owner: &Uid,
    ) -> Result<Removal, HubError> {
        let read = match self.context.objects.get(&place.path()).await {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(Removal::Gone(None)),
            Err(HubError::Forbidden(_)) => return Ok(Removal::unreadable()),
            Err(error) => return Err(error),
        };
        let owned = match delivery::classify_object(Some(ReadObject::value(&read)), owner) {
            DeliveredObject::Ours(owned) => owned,
            DeliveredObject::Absent => return Ok(Removal::Gone(None)),
            DeliveredObject::Foreign(why) => return Ok(Removal::Retained(why.to_owned())),
        };
        if !self.context.is_leader() {
            return Err(HubError::Busy);
        }
        // Finalizers of others keep the object for an unknown time, so its token is removed first.
        let version = if owned.has_finalizers() && !owned.immutable() {
            self.context
                .objects
                .replace(&place.path(), &ObjectBody::without_data(&owned))
                .await?
        } else {
            owned.version().to_owned()
        };
        self.context
            .objects
            .delete(&place.path(), owned.uid(), &version)
            .await?;
        if owned.has_finalizers() && owned.immutable() {
            return Ok(Removal::Retained(
                "it is immutable, and finalizers of others keep it".to_owned(),
            ));
        }
        if owned.has_finalizers() {
            tracing::info!(object = %place, "an object was emptied; finalizers of others keep it");
        } else {
            tracing::info!(object = %place, "an object was deleted");
        }
        Ok(Removal::Gone(owned.expires_at()))
    }

    /// Deletes what a delivery wrote before policy stopped granting it.
    pub(super) async fn withdraw_delivery(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        reason: Reason,
    ) -> DeliveryOutcome {
        self.certificates.finish_request(run.name, &delivery.name);
        let mut report = DeliveryReport {
            delivery: delivery.clone(),
            reason,
            message: String::new(),
            token: None,
        };
        let (Some(place), Some(owner)) = (ObjectPlace::of(run.access, delivery), &run.access.uid)
        else {
            return DeliveryOutcome {
                report,
                retry: false,
                retry_after: None,
                exposed_until: None,
            };
        };
        let now = self.context.clock.now().wall;
        let earlier = earlier_token(&run.stored.record.status, run.name, &place, now);
        let (retry, exposed_until) = match self.remove_object(&place, owner).await {
            Ok(Removal::Gone(exposed_until)) => (false, exposed_until),
            // Retries while a token may be in it, because the owner can give it back. Without our
            // token in it the object is not ours, so the refused caller learns nothing about it.
            Ok(Removal::Retained(why)) => {
                if earlier.is_some() {
                    report.message =
                        format!("the object was not deleted: {why}; its token may still be in it");
                }
                report.token = earlier;
                (report.token.is_some(), None)
            }
            Err(error) => {
                report.message = format!("deleting the object failed: {error}");
                report.token = earlier;
                (true, None)
            }
        };
        DeliveryOutcome {
            report,
            retry,
            retry_after: None,
            exposed_until,
        }
    }

    /// Deletes the objects of an access that gets no new tokens, being deleted or invalid, whose
    /// tokens were signed by a revoked key: no target accepts them, and nothing will replace them.
    /// Returns their places.
    pub(super) async fn withdraw_revoked(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
    ) -> Result<Vec<ObjectPlace>, HubError> {
        let policy = self.context.policy.current();
        let target = stored
            .meant()
            .and_then(|access| policy.targets.get(&access.target));
        let mut withdrawn = Vec::new();
        for (place, report) in access_status::delivered_objects(&stored.record.status, name) {
            // A status from before key IDs were recorded does not prove the token revoked, and a
            // draining consumer needs it.
            if report
                .key_id
                .as_deref()
                .is_some_and(|key_id| self.is_revoked(Some(key_id), target))
                && let Removal::Gone(_) = self.remove_object(&place, &stored.record.uid).await?
            {
                withdrawn.push(place);
            }
        }
        Ok(withdrawn)
    }

    /// Deletes objects that only earlier specs of the access wanted. Returns the status entries of
    /// those that could not be deleted, and the latest expiry of the deleted tokens.
    pub(super) async fn remove_unwanted(
        &self,
        run: &Reconciliation<'_>,
    ) -> (Vec<DeliveryStatus>, Option<Timestamp>) {
        let Some(owner) = &run.access.uid else {
            return (Vec::new(), None);
        };
        let wanted: Vec<ObjectPlace> = run
            .access
            .deliveries
            .iter()
            .filter_map(|delivery| ObjectPlace::of(run.access, delivery))
            .collect();
        let (mut left_over, mut exposed_until) = (Vec::new(), None);
        let now = self.context.clock.now().wall;
        for (place, report) in access_status::delivered_objects(&run.stored.record.status, run.name)
        {
            if wanted.contains(&place) {
                continue;
            }
            match self.remove_object(&place, owner).await {
                Ok(Removal::Gone(end)) => exposed_until = exposed_until.max(end),
                // An object that another owner took over is not deleted, unless it may still
                // contain our token.
                Ok(Removal::Retained(_))
                    if earlier_token(&run.stored.record.status, run.name, &place, now)
                        .is_none() => {}
                Ok(Removal::Retained(_)) | Err(_) => {
                    left_over.push(access_status::rename_left_over_report(&place, report))
                }
            }
        }
        (left_over, exposed_until)
    }
}
