//! Objects that are no longer wanted. Only what was written for this very access is deleted, and
//! only as it was read.

use jiff::Timestamp;
use keyferry_core::access_status::{self, DeliveryReport, TokenReport};
use keyferry_core::config::{Delivery, StoredAccess};
use keyferry_core::delivery::{self, Found, ObjectBody, ObjectPlace, ReadObject};
use keyferry_core::name::AccessName;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::Uid;
use serde_json::Value;

use super::write::Written;
use super::{Deliveries, Round};
use crate::ports::HubError;

/// What became of an object that was to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// There is none now. If there was one, this is when its token expires: no status may have
    /// reported that yet.
    Gone(Option<Timestamp>),
    /// It is still there, and why. Its token, if it has one, is still in it.
    Stays(String),
}

impl Removal {
    /// Keyferry has no right to look.
    pub(super) fn unreadable() -> Self {
        Self::Stays("Keyferry may not read it".to_owned())
    }

    /// When the token expires that was in the deleted object.
    pub(super) fn exposed(&self) -> Option<Timestamp> {
        match self {
            Self::Gone(exposed) => *exposed,
            Self::Stays(_) => None,
        }
    }
}

/// The token that a status says stood at a place, while it has not expired. Whether it still stands
/// there is not known once the object cannot be read or is no longer ours: until it expires, it is
/// reported as if it did.
pub(super) fn earlier_token(
    status: &Value,
    access: &AccessName,
    place: &ObjectPlace,
    now: Timestamp,
) -> Option<TokenReport> {
    let places = access_status::places(status, access);
    let report = places.into_iter().find(|(known, _)| known == place)?.1;
    TokenReport::read(report).filter(|token| token.expires_at > now)
}

impl Deliveries {
    /// Deletes the object at a place if it is ours.
    pub(super) async fn remove(
        &self,
        place: &ObjectPlace,
        owner: &Uid,
    ) -> Result<Removal, HubError> {
        let read = match self.parts.objects.get(&place.path()).await {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(Removal::Gone(None)),
            Err(HubError::Forbidden(_)) => return Ok(Removal::unreadable()),
            Err(error) => return Err(error),
        };
        let held = match delivery::found(Some(ReadObject::value(&read)), owner) {
            Found::Ours(held) => held,
            Found::Absent => return Ok(Removal::Gone(None)),
            Found::Foreign(why) => return Ok(Removal::Stays(why.to_owned())),
        };
        if !self.leads() {
            return Err(HubError::Busy);
        }
        // Others hold it: it would stay with its token for as long as they like.
        let version = if held.has_finalizers() && !held.immutable() {
            self.parts
                .objects
                .replace(&place.path(), &ObjectBody::emptied(&held))
                .await?
        } else {
            held.version().to_owned()
        };
        self.parts
            .objects
            .delete(&place.path(), held.uid(), &version)
            .await?;
        if held.has_finalizers() && held.immutable() {
            return Ok(Removal::Stays(
                "it is immutable, and finalizers of others keep it".to_owned(),
            ));
        }
        tracing::info!(object = %place, "an object was deleted");
        Ok(Removal::Gone(held.expires_at()))
    }

    /// Takes back what a delivery that policy does not grant has written before.
    pub(super) async fn withdraw(
        &self,
        round: &Round<'_>,
        delivery: &Delivery,
        reason: Reason,
    ) -> Written {
        let mut report = DeliveryReport {
            delivery: delivery.clone(),
            reason,
            message: String::new(),
            token: None,
        };
        let (Some(place), Some(owner)) =
            (ObjectPlace::of(round.access, delivery), &round.access.uid)
        else {
            return Written {
                report,
                retry: false,
                retry_after: None,
                exposed: None,
            };
        };
        let now = self.parts.clock.now().wall;
        let earlier = earlier_token(&round.stored.record.status, round.name, &place, now);
        let (retry, exposed) = match self.remove(&place, owner).await {
            Ok(Removal::Gone(exposed)) => (false, exposed),
            // Tried again while a token may stand in it: the owner can give it back.
            // Without a token of ours in it, it is none of ours, and a caller that is refused
            // learns nothing of it.
            Ok(Removal::Stays(why)) => {
                if earlier.is_some() {
                    report.message = format!(
                        "the object was not deleted: {why}; its token may still stand in it"
                    );
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
        Written {
            report,
            retry,
            retry_after: None,
            exposed,
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
        let policy = self.parts.policy.current();
        let target = stored
            .meant()
            .and_then(|access| policy.targets.get(&access.target));
        let mut withdrawn = Vec::new();
        for (place, report) in access_status::places(&stored.record.status, name) {
            // A status of before key IDs were recorded proves nothing against the token, and who
            // drains needs it.
            if report["keyID"]
                .as_str()
                .is_some_and(|key_id| self.is_revoked(Some(key_id), target))
                && let Removal::Gone(_) = self.remove(&place, &stored.record.uid).await?
            {
                withdrawn.push(place);
            }
        }
        Ok(withdrawn)
    }

    /// Deletes what earlier specs of the access had written; what could not be deleted comes back,
    /// and when the last token ends of what was.
    pub(super) async fn remove_unwanted(
        &self,
        round: &Round<'_>,
    ) -> (Vec<Value>, Option<Timestamp>) {
        let Some(owner) = &round.access.uid else {
            return (Vec::new(), None);
        };
        let wanted: Vec<ObjectPlace> = round
            .access
            .deliveries
            .iter()
            .filter_map(|delivery| ObjectPlace::of(round.access, delivery))
            .collect();
        let (mut left_over, mut exposed) = (Vec::new(), None);
        let now = self.parts.clock.now().wall;
        for (place, report) in access_status::places(&round.stored.record.status, round.name) {
            if wanted.contains(&place) {
                continue;
            }
            match self.remove(&place, owner).await {
                Ok(Removal::Gone(end)) => exposed = exposed.max(end),
                // One that others made theirs is theirs to delete, unless a token of ours may stand
                // in it.
                Ok(Removal::Stays(_))
                    if earlier_token(&round.stored.record.status, round.name, &place, now)
                        .is_none() => {}
                Ok(Removal::Stays(_)) | Err(_) => {
                    left_over.push(access_status::left_over(&place, report))
                }
            }
        }
        (left_over, exposed)
    }
}
