//! Drains accesses whose TargetCluster is being deleted. Policy no longer grants them anything, so
//! nothing is minted, written or renewed. Delivered objects stay until their tokens expire: a
//! Kustomization that still has to prune needs them.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::condition::{Finding, format_seconds};
use keyferry_api::config::{Delivery, DeliveryType, DrainingTarget, Policy, TargetAccess};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::{AccessReport, DeliveryReport, TokenReport};
use keyferry_core::authorise;
use keyferry_core::delivery::{self, DeliveredObject, ObjectPlace, ReadObject};
use keyferry_hub::ports::HubError;

use super::delivered_token::token_report;
use super::object::DeliveryOutcome;
use super::{Deliveries, Next, RECHECK_INTERVAL, Reconciliation, access_drain, status};

/// An object that stays for now, at most until `until`.
struct RetainedObject<'a> {
    delivery: &'a Delivery,
    until: Timestamp,
    token: Option<TokenReport>,
}

impl RetainedObject<'_> {
    fn into_report(self) -> DeliveryReport {
        DeliveryReport {
            delivery: self.delivery.clone(),
            reason: Reason::TargetDraining,
            message: String::new(),
            token: self.token,
        }
    }
}

/// Returns the deliveries that write an object.
fn object_deliveries(access: &TargetAccess) -> impl Iterator<Item = &Delivery> {
    access
        .deliveries
        .iter()
        .filter(|delivery| delivery.object_name.is_some())
}

/// Reports an access whose target is being deleted, without its deliveries.
fn draining_report(draining: &DrainingTarget, until: Timestamp) -> AccessReport {
    let message = format!(
        "TargetCluster/{} is being deleted: nothing is minted or refreshed for it, and the objects \
         stay until {} at the latest; fix: delete the Kustomizations and HelmReleases that use them, \
         then this access",
        draining.target.name,
        format_seconds(until)
    );
    AccessReport {
        authorized: Finding::failed(Reason::TargetDraining, message),
        delivered: Finding::failed(
            Reason::TargetDraining,
            "what was delivered before stays and is not refreshed",
        ),
        reachable: None,
        authenticates: None,
        silence: None,
        probed_at: None,
        identity: None,
        passes: true,
        deliveries: Vec::new(),
        left_over: Vec::new(),
        exposure_until: None,
        handled: None,
    }
}

impl Deliveries {
    /// Keeps the objects that may stay of an access whose target is being deleted, and removes the
    /// rest. Returns `None` if no object may stay: then it is an ordinary access that no target
    /// grants.
    pub(super) async fn drain_for_deleted_target(
        &self,
        run: &Reconciliation<'_>,
        draining: &DrainingTarget,
    ) -> Result<Option<Next>, HubError> {
        let now = self.context.clock.now().wall;
        let retained = self.retained_objects(run, draining, now).await?;
        let Some(until) = retained.iter().map(|object| object.until).max() else {
            return Ok(None);
        };
        let withdrawn = self.withdraw_all_except(run, &retained).await;
        let (left_over, removed) = self.remove_unwanted(run).await;
        let retry = !left_over.is_empty() || withdrawn.iter().any(|outcome| outcome.retry);
        let exposure_until = retained
            .iter()
            .filter_map(|object| object.token.as_ref())
            .map(|token| token.expires_at)
            .chain(withdrawn.iter().filter_map(|outcome| outcome.exposed_until))
            .chain(removed)
            .chain(status::exposure_until(&run.stored.record.status))
            .max()
            .filter(|until| *until > now);
        let report = AccessReport {
            left_over,
            exposure_until,
            handled: run.stored.record.requested_at.clone(),
            deliveries: retained
                .into_iter()
                .map(RetainedObject::into_report)
                .chain(withdrawn.into_iter().map(|outcome| outcome.report))
                .collect(),
            ..draining_report(draining, until)
        };
        self.write_status(run.name, run.stored, &report, None)
            .await?;
        let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        Ok(Some(if retry {
            Next::Retry
        } else {
            Next::After(left.min(RECHECK_INTERVAL))
        }))
    }

    /// Returns the objects that may stay for now.
    async fn retained_objects<'a>(
        &self,
        run: &Reconciliation<'a>,
        draining: &DrainingTarget,
        now: Timestamp,
    ) -> Result<Vec<RetainedObject<'a>>, HubError> {
        let policy = self.policy_for(run.access);
        let mut retained = Vec::new();
        for delivery in object_deliveries(run.access) {
            // Objects that allow[] of the deleted target does not grant are removed at once, as
            // always.
            if authorise::delivery_pair(&policy, &*self.context.live, run.name, &delivery.name)
                .is_err()
            {
                continue;
            }
            let object = self.retained_object(run.access, delivery, draining).await?;
            retained.extend(object.filter(|object| object.until > now));
        }
        Ok(retained)
    }

    /// Withdraws every delivery whose object may not stay.
    async fn withdraw_all_except(
        &self,
        run: &Reconciliation<'_>,
        retained: &[RetainedObject<'_>],
    ) -> Vec<DeliveryOutcome> {
        let mut withdrawn = Vec::new();
        for delivery in object_deliveries(run.access) {
            if retained
                .iter()
                .any(|object| object.delivery.name == delivery.name)
            {
                continue;
            }
            withdrawn.push(
                self.withdraw_delivery(run, delivery, Reason::TargetNotGranted)
                    .await,
            );
        }
        withdrawn
    }

    async fn retained_object<'a>(
        &self,
        access: &TargetAccess,
        delivery: &'a Delivery,
        draining: &DrainingTarget,
    ) -> Result<Option<RetainedObject<'a>>, HubError> {
        let (Some(place), Some(owner)) = (ObjectPlace::of(access, delivery), &access.uid) else {
            return Ok(None);
        };
        let Some(read) = self.context.objects.get(&place.path()).await? else {
            return Ok(None);
        };
        let DeliveredObject::Ours(owned) =
            delivery::classify_object(Some(ReadObject::value(&read)), owner)
        else {
            return Ok(None);
        };
        // The object may lead to the access's previous target.
        if owned.target() != Some(draining.target.name.as_str()) {
            return Ok(None);
        }
        // No target accepts a revoked token, so consumers that still have to prune cannot use it.
        if delivery.holds_token() && self.holds_revoked_token(&owned, Some(&draining.target)) {
            return Ok(None);
        }
        let until = match delivery.delivery_type {
            // Flux mints its own tokens and continues to use the current one.
            DeliveryType::FluxConfigMap => draining
                .since
                .saturating_add(access_drain::FLUX_TOKEN_LIFETIME)
                .unwrap_or(draining.since),
            _ if delivery.holds_credential() => owned.expires_at().unwrap_or(draining.since),
            // Its consumer asks Keyferry for tokens, and Keyferry refuses.
            _ => draining.since,
        };
        // Tenants can edit the annotation, so it is capped: it must not delay the target's
        // deletion.
        Ok(Some(RetainedObject {
            delivery,
            until: until.min(draining.ends()),
            token: token_report(&owned),
        }))
    }

    /// Returns the part of the policy for this access, as if the access were valid and its target
    /// were not being deleted.
    pub(super) fn policy_for(&self, access: &TargetAccess) -> Policy {
        let current = self.context.policy.current();
        let mut policy = Policy {
            own_namespace: current.own_namespace.clone(),
            ..Policy::default()
        };
        policy.accesses.insert(access.name.clone(), access.clone());
        let draining = || {
            self.context
                .store
                .draining_target(&access.target)
                .map(|draining| draining.target)
        };
        if let Some(target) = current
            .targets
            .get(&access.target)
            .cloned()
            .or_else(draining)
        {
            policy.targets.insert(access.target.clone(), target);
        }
        policy
    }
}
