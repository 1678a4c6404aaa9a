//! Drains a deleted access: its objects remain until the last written token has expired, so that
//! their consumers can finish cleanly. Meanwhile nothing is minted or written. When the finalizer
//! is removed, the objects lose their owner and the hub garbage-collects them.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{
    DeletionPolicy, Delivery, DeliveryType, ObjectSize, StoredAccess, TargetAccess,
};
use keyferry_api::lifetime;
use keyferry_api::name::AccessName;
use keyferry_core::authorise::{self, HubView};
use keyferry_core::delivery::{self, DeliveredObject, ObjectPlace, ReadObject};
use keyferry_hub::finalizer::{self, FinalizerState};
use keyferry_hub::ports::HubError;

use super::removal::Removal;
use super::{Deliveries, Next, Reconciliation, status};

/// How long Flux may use a token that it minted itself: it requests the hub's default lifetime.
pub(super) const FLUX_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// The first pause between checks whether Flux still uses an object of a deleted access.
const MIN_DRAIN_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Whether an access carries the finalizer that keeps it while it drains.
pub(super) enum FinalizerOutcome {
    /// It already does, or its deletion policy needs none.
    Unchanged,
    /// The finalizer was added; this is the new state.
    Added(Box<StoredAccess>),
    /// The access is gone, or has changed since the decision.
    Gone,
}

impl Deliveries {
    /// Adds the finalizer, if wanted, before anything is written for the access.
    pub(super) async fn add_drain_finalizer(
        &self,
        run: &Reconciliation<'_>,
    ) -> Result<FinalizerOutcome, HubError> {
        let record = &run.stored.record;
        let wanted = run.access.deletion_policy == DeletionPolicy::Drain;
        if !wanted || record.finalizers.ours {
            return Ok(FinalizerOutcome::Unchanged);
        }
        let kept = self
            .set_finalizer(run.name, run.stored, FinalizerState::Present)
            .await?;
        let same = |kept: &StoredAccess| {
            kept.record.generation == record.generation && kept.record.deleting.is_none()
        };
        Ok(kept.filter(same).map_or(FinalizerOutcome::Gone, |kept| {
            FinalizerOutcome::Added(Box::new(kept))
        }))
    }

    /// Removes the finalizer of a deleted access when its objects are no longer needed.
    pub(super) async fn drain_access(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        since: Timestamp,
    ) -> Result<Next, HubError> {
        if !stored.record.finalizers.ours {
            return Ok(Next::OnChange);
        }
        let now = self.context.clock.now().wall;
        // No written token lives longer, so this needs no read: an access can go even if Keyferry
        // lost its rights in the namespace.
        if since
            .saturating_add(lifetime::MAX)
            .is_ok_and(|end| end <= now)
        {
            self.set_finalizer(name, stored, FinalizerState::Absent)
                .await?;
            tracing::info!(access = %name, "the finalizer of a deleted access was removed: no \
                token written for it is still valid");
            return Ok(Next::OnChange);
        }
        let until = match self.drains_until(name, stored, since).await? {
            until
                if until > now
                    && (self.has_no_retained_objects(stored).await?
                        || self.has_no_users(stored).await) =>
            {
                since
            }
            until => until,
        };
        if until <= now {
            self.set_finalizer(name, stored, FinalizerState::Absent)
                .await?;
            tracing::info!(access = %name, "the finalizer of a deleted access was removed");
            return Ok(Next::OnChange);
        }
        self.report_drain(name, stored, until).await?;
        let [left, passed] = [until.duration_since(now), now.duration_since(since)]
            .map(|span| Duration::try_from(span).unwrap_or_default());
        // Most consumers finish soon, or take long.
        Ok(Next::After(left.min(
            (passed / 4).clamp(MIN_DRAIN_CHECK_INTERVAL, super::RECHECK_INTERVAL),
        )))
    }

    async fn has_no_users(&self, stored: &StoredAccess) -> bool {
        match &stored.read {
            Ok(access) => self.is_unused(access).await,
            Err(_) => false,
        }
    }

    async fn has_no_retained_objects(&self, stored: &StoredAccess) -> Result<bool, HubError> {
        match stored.meant() {
            Some(access) => self.withdraw_ungranted(access).await,
            None => Ok(false),
        }
    }

    /// For an access that is being deleted or is invalid, deletes every object that policy no
    /// longer grants. Returns whether none remains that may stay.
    pub(super) async fn withdraw_ungranted(&self, access: &TargetAccess) -> Result<bool, HubError> {
        let Some(owner) = &access.uid else {
            return Ok(false);
        };
        let policy = self.policy_for(access);
        let writing = || {
            access
                .deliveries
                .iter()
                .filter(|delivery| delivery.object_name.is_some())
        };
        let refused = |delivery: &&Delivery| {
            authorise::delivery_pair(&policy, &*self.context.live, &access.name, &delivery.name)
                .is_err()
        };
        let mut stays = false;
        for place in writing()
            .filter(refused)
            .filter_map(|delivery| ObjectPlace::of(access, delivery))
        {
            // Keyferry does not wait for an object that is not ours any more. One that it may not
            // read may still be ours.
            stays |= self.remove_object(&place, owner).await? == Removal::unreadable();
        }
        Ok(!stays && writing().all(|delivery| refused(&delivery)))
    }

    async fn drains_until(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        since: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let access = stored.read.as_ref().ok();
        let at_once =
            access.is_some_and(|access| access.deletion_policy == DeletionPolicy::Immediate);
        if at_once
            || self
                .context
                .live
                .namespace_labels(&name.namespace)
                .is_none()
        {
            return Ok(since);
        }
        let mut until = match stored.record.size {
            // When its tokens expire is not known.
            ObjectSize::StatusTooLarge => since.saturating_add(lifetime::MAX).unwrap_or(since),
            _ => status::exposure_until(&stored.record.status).unwrap_or(since),
        };
        if let Some(access) = access {
            // If a process ended between a write and its status, only the object has the time.
            until = until.max(self.last_token_expiry(access).await?.unwrap_or(since));
            if access
                .deliveries
                .iter()
                .any(|delivery| delivery.delivery_type == DeliveryType::FluxConfigMap)
            {
                until = until.max(since.saturating_add(FLUX_TOKEN_LIFETIME).unwrap_or(since));
            }
        }
        // No written token lives longer.
        Ok(until.min(since.saturating_add(lifetime::MAX).unwrap_or(until)))
    }

    async fn last_token_expiry(
        &self,
        access: &TargetAccess,
    ) -> Result<Option<Timestamp>, HubError> {
        let mut until = None;
        for delivery in access
            .deliveries
            .iter()
            .filter(|delivery| delivery.holds_credential())
        {
            let (Some(place), Some(owner)) = (ObjectPlace::of(access, delivery), &access.uid)
            else {
                continue;
            };
            let read = match self.context.objects.get(&place.path()).await {
                Ok(Some(read)) => read,
                // The status already covers what is known of it.
                Ok(None) | Err(HubError::Forbidden(_)) => continue,
                Err(error) => return Err(error),
            };
            if let DeliveredObject::Ours(owned) =
                delivery::classify_object(Some(ReadObject::value(&read)), owner)
            {
                until = until.max(owned.expires_at());
            }
        }
        Ok(until)
    }

    /// Adds or removes Keyferry's finalizer and returns the new access; `None` if it is gone or was
    /// replaced.
    async fn set_finalizer(
        &self,
        name: &AccessName,
        stored: &StoredAccess,
        wanted: FinalizerState,
    ) -> Result<Option<StoredAccess>, HubError> {
        let written = finalizer::set_finalizer(
            &*self.context.objects,
            &status::access_path(name),
            &stored.record,
            wanted,
        )
        .await?;
        Ok(written.and_then(|object| self.context.store.store_written(&object)))
    }
}
