//! Writes the object of one delivery: creates, replaces or removes it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Delivery, Probe, TargetCluster};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::Uid;
use keyferry_core::access_status::TokenReport;
use keyferry_core::authorise::Pair;
use keyferry_core::delivery::{
    self, DeliveredObject, ObjectBody, ObjectPlace, OwnedObject, ReadObject, Snapshot, Step,
};
use keyferry_core::readiness::NotReady;

use super::client_certificate::{Issuance, is_of_another_user};
use super::delivered_token::token_report;
use super::error::DeliveryError;
use super::last_probe::LastProbe;
use super::object::{DELIVERY_ROUTE, Progress, render_object};
use super::removal::{Removal, earlier_token};
use super::{Deliveries, Reconciliation};

/// What is written, for whom, and where.
#[derive(Clone, Copy)]
struct ObjectWrite<'a> {
    run: &'a Reconciliation<'a>,
    delivery: &'a Delivery,
    pair: &'a Pair,
    target: &'a TargetCluster,
    object_place: &'a ObjectPlace,
    owner: &'a Uid,
}

impl Deliveries {
    /// Writes the object of one delivery, or removes it if it cannot express its target.
    pub(super) async fn write_object(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        probe: &LastProbe,
        progress: &mut Progress,
    ) -> Result<(), DeliveryError> {
        let (Some(target), Some(owner)) = (run.policy.targets.get(pair.target()), &run.access.uid)
        else {
            return Err(DeliveryError::new(Reason::TargetNotGranted, ""));
        };
        let Some(place) = &ObjectPlace::of(run.access, delivery) else {
            return Ok(());
        };
        let write = ObjectWrite {
            run,
            delivery,
            pair,
            target,
            object_place: place,
            owner,
        };
        self.remove_if_not_expressible(&write, progress).await?;
        self.update_object(&write, probe, progress).await
    }

    /// Brings the object up to date, step by step. Each step may end the run with the obstacle that
    /// the status reports.
    async fn update_object(
        &self,
        write: &ObjectWrite<'_>,
        probe: &LastProbe,
        progress: &mut Progress,
    ) -> Result<(), DeliveryError> {
        let ObjectWrite {
            run,
            delivery,
            pair,
            target,
            object_place: place,
            owner,
        } = *write;
        let read = self.read_object(write, progress).await?;
        let object = delivery::classify_object(read.as_ref().map(ReadObject::value), owner);
        self.note_current_token(write, &object, progress);
        let ca_pem = self
            .require_target_ca(write, &object, probe, progress)
            .await?;
        let snapshot = Snapshot {
            access: run.access,
            owner,
            target,
            ca_pem: ca_pem.as_deref(),
            account_uid: &pair.service_account().uid,
        };
        let planned = render_object(&snapshot, delivery, None)?;
        let now = self.context.clock.now().wall;
        let step = delivery::plan_step(
            object,
            planned.form(),
            delivery.holds_credential(),
            progress.key_revoked,
            now,
        );
        let certificate = self
            .advance_certificate(write, &step, now, progress)
            .await?;
        if let Some(Issuance::Waiting(check_again_after)) = certificate {
            progress.check_again_after = Some(check_again_after);
            return Ok(());
        }
        let replaced = match step {
            Step::Leave(why) => return Err(not_ours(place, why)),
            Step::Keep(owned) => {
                return self
                    .reconcile_profile_status(&snapshot, delivery, place, &owned)
                    .await;
            }
            Step::Create => None,
            Step::Replace(owned) => self.remove_if_immutable(write, owned, &planned).await?,
        };
        self.check_conflicting_objects(run, delivery, place, target)
            .await?;
        let (body, token) = self
            .issue_body(write, &snapshot, planned, certificate, progress)
            .await?;
        let version = self.send_body(place, body, replaced).await?;
        progress.token = token;
        self.certificates.finish_request(run.name, &delivery.name);
        tracing::info!(access = %run.name, object = %place, "an object was written");
        self.apply_profile_status(&snapshot, delivery, place, &version)
            .await
    }

    /// Removes an object that cannot express its target: it may still contain the data of an
    /// earlier target, and clients would connect there.
    async fn remove_if_not_expressible(
        &self,
        write: &ObjectWrite<'_>,
        progress: &mut Progress,
    ) -> Result<(), DeliveryError> {
        let Err(gap) = delivery::check_expressible(write.delivery.delivery_type, write.target)
        else {
            return Ok(());
        };
        progress.exposed_until = self
            .remove_object(write.object_place, write.owner)
            .await?
            .exposed_until();
        Err(DeliveryError::new(Reason::NotExpressible, gap.to_string()))
    }

    /// Reads the object. Until it has been read, the token that was last written to it is assumed.
    async fn read_object(
        &self,
        write: &ObjectWrite<'_>,
        progress: &mut Progress,
    ) -> Result<Option<ReadObject>, DeliveryError> {
        let read = self.context.objects.get(&write.object_place.path()).await;
        if !matches!(read, Ok(None)) {
            progress.set_token(earlier_token(
                &write.run.stored.record.status,
                write.run.name,
                write.object_place,
                self.context.clock.now().wall,
            ));
        }
        Ok(read?)
    }

    /// Notes which token the object contains, and whether its key was revoked.
    fn note_current_token(
        &self,
        write: &ObjectWrite<'_>,
        object: &DeliveredObject<'_>,
        progress: &mut Progress,
    ) {
        if let DeliveredObject::Ours(owned) = object {
            progress.set_token(token_report(owned));
            progress.key_revoked =
                write.delivery.holds_token() && self.holds_revoked_token(owned, Some(write.target));
        }
    }

    /// Returns the CA certificates for the object, if the target is ready. If it is not, an object
    /// that must not outlive its target's readiness is removed.
    async fn require_target_ca(
        &self,
        write: &ObjectWrite<'_>,
        object: &DeliveredObject<'_>,
        probe: &LastProbe,
        progress: &mut Progress,
    ) -> Result<Option<Arc<str>>, DeliveryError> {
        let ObjectWrite {
            run,
            delivery,
            pair,
            target,
            ..
        } = *write;
        let ready_ca = self.ready_target_ca(run, target, delivery, probe);
        if let (Err(_), DeliveredObject::Ours(owned)) = (&ready_ca, object)
            && (progress.key_revoked
                || is_of_another_user(delivery, pair, owned)
                || owned
                    .target()
                    .is_some_and(|earlier| earlier != target.name.as_str()))
        {
            // An object for the access's previous target is removed now, even if the new target is
            // not ready. So is a token of a revoked key, which a tenant could otherwise keep by
            // suspending its access.
            self.remove_with_token(write, progress).await?;
        }
        match ready_ca? {
            None if delivery.holds_certificate() => self.hub_authority(run).await.map(Some),
            ca_pem => Ok(ca_pem),
        }
    }

    async fn remove_with_token(
        &self,
        write: &ObjectWrite<'_>,
        progress: &mut Progress,
    ) -> Result<(), DeliveryError> {
        if let Removal::Gone(_) = self.remove_object(write.object_place, write.owner).await? {
            progress.token = None;
        }
        Ok(())
    }

    /// Requests the certificate that the step needs, if it needs one.
    ///
    /// The current pair stays in the object until the next one is issued, however long its approval
    /// takes. A pair for another user does not stay.
    async fn advance_certificate(
        &self,
        write: &ObjectWrite<'_>,
        step: &Step<'_>,
        now: Timestamp,
        progress: &mut Progress,
    ) -> Result<Option<Issuance>, DeliveryError> {
        let ObjectWrite {
            run,
            delivery,
            pair,
            ..
        } = *write;
        if !delivery.holds_certificate() {
            return Ok(None);
        }
        let current = match step {
            Step::Keep(_) => {
                self.certificates.finish_request(run.name, &delivery.name);
                return Ok(None);
            }
            Step::Leave(_) => return Ok(None),
            Step::Create => None,
            Step::Replace(owned) if is_of_another_user(delivery, pair, owned) => {
                self.remove_with_token(write, progress).await?;
                // The object that was read is gone, so the next run creates another.
                return Err(DeliveryError::new(
                    Reason::CertificatePending,
                    "the certificate of another ServiceAccount was removed",
                )
                .with_retry_after(Duration::from_secs(1)));
            }
            Step::Replace(owned) => owned
                .expires_at()
                .is_some_and(|end| now < end)
                .then_some(*owned),
        };
        self.obtain_certificate(run, delivery, pair, current)
            .await
            .map(Some)
    }

    /// Returns the object to replace. One that is immutable, or whose type is another, is removed
    /// instead, and the write creates another.
    async fn remove_if_immutable<'a>(
        &self,
        write: &ObjectWrite<'_>,
        owned: OwnedObject<'a>,
        planned: &ObjectBody,
    ) -> Result<Option<OwnedObject<'a>>, DeliveryError> {
        if !owned.immutable() && planned.has_type_of(&owned) {
            return Ok(Some(owned));
        }
        match self.remove_object(write.object_place, write.owner).await? {
            Removal::Gone(_) => Ok(None),
            Removal::Retained(why) => Err(not_ours(write.object_place, &why)),
        }
    }

    /// Returns the body to write, with its credential. Every issuance is recorded first.
    async fn issue_body(
        &self,
        write: &ObjectWrite<'_>,
        snapshot: &Snapshot<'_>,
        planned: ObjectBody,
        certificate: Option<Issuance>,
        progress: &mut Progress,
    ) -> Result<(ObjectBody, Option<TokenReport>), DeliveryError> {
        let ObjectWrite {
            run,
            delivery,
            pair,
            ..
        } = *write;
        let (body, token) = if let Some(Issuance::Issued(issued)) = &certificate {
            self.render_with_certificate(run, delivery, snapshot, issued)
                .await?
        } else if delivery.holds_token() {
            self.render_with_token(run, delivery, pair, snapshot)
                .await?
        } else {
            self.record_issuance(DELIVERY_ROUTE, run, delivery, pair, None)
                .await?;
            return Ok((planned, None));
        };
        // Set whether or not the write succeeds: it may have succeeded although its answer was
        // lost.
        progress.exposed_until = progress.exposed_until.max(Some(token.expires_at));
        Ok((body, Some(token)))
    }

    /// Sends the body to the hub and returns the version of the written object.
    async fn send_body(
        &self,
        place: &ObjectPlace,
        body: ObjectBody,
        replaced: Option<OwnedObject<'_>>,
    ) -> Result<String, DeliveryError> {
        if !self.context.is_leader() {
            return Err(DeliveryError::new(
                Reason::DeliveryFailed,
                "another replica leads now",
            ));
        }
        let objects = &self.context.objects;
        let version = match replaced {
            None => objects.create(&place.collection(), &body).await,
            Some(owned) => {
                let body = body.for_replacement(owned.uid(), owned.version(), owned.object());
                objects.replace(&place.path(), &body).await
            }
        };
        Ok(version?)
    }

    /// Returns the target's CA certificates, if the target is ready.
    fn ready_target_ca(
        &self,
        run: &Reconciliation<'_>,
        target: &TargetCluster,
        delivery: &Delivery,
        probe: &LastProbe,
    ) -> Result<Option<Arc<str>>, DeliveryError> {
        let published = self.context.published.current();
        let issuer = published.as_ref().map(|published| &published.issuer);
        let ready = if run.access.suspend {
            Err(NotReady::Suspended)
        } else {
            self.context.targets.ready_ca(target, issuer)
        };
        let ca_pem =
            ready.map_err(|error| DeliveryError::new(error.reason(), error.to_string()))?;
        if delivery.holds_credential() {
            self.context
                .author_policy
                .require_active()
                .map_err(|gap| DeliveryError::new(Reason::AuthorUnchecked, gap.to_string()))?;
        }
        if (run.access.probe == Probe::Require || probe.misses_role())
            && target.client_certificates.is_none()
            && let Some((reason, message)) = probe.blocking_reason()
        {
            return Err(DeliveryError::new(reason, message));
        }
        Ok(ca_pem)
    }
}

fn not_ours(place: &ObjectPlace, why: &str) -> DeliveryError {
    DeliveryError::new(
        Reason::ObjectNotOurs,
        format!("{place} already exists, and {why}"),
    )
}
