//! Reconciles the object of one delivery: creates, replaces or removes it.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Delivery, DeliveryType, Probe, TargetCluster};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::{DeliveryReport, TokenReport};
use keyferry_core::audit::{AuditRecord, TokenNote};
use keyferry_core::authorise::{Grant, Pair};
use keyferry_core::delivery::{self, Bearer, ObjectBody, ObjectPlace, Snapshot, Step};
use keyferry_core::readiness::NotReady;

use super::client_certificate::{Issuance, is_of_another_user};
use super::delivered_token::token_report;
use super::error::DeliveryError;
use super::probe::LastProbe;
use super::removal::{Removal, earlier_token};
use super::{Deliveries, Reconciliation};

/// The route name in audit records.
pub(super) const DELIVERY_ROUTE: &str = "delivery";

/// The result of one delivery.
pub(super) struct DeliveryOutcome {
    pub(super) report: DeliveryReport,
    /// Whether the obstacle may pass by itself.
    pub(super) retry: bool,
    /// When the obstacle passes, if known.
    pub(super) retry_after: Option<Duration>,
    /// The latest expiry of the tokens that the object contains now or contained at the start.
    pub(super) exposed_until: Option<Timestamp>,
}

/// What a delivery learns while it runs, whether or not it succeeds.
struct Progress {
    token: Option<TokenReport>,
    exposed_until: Option<Timestamp>,
    /// Whether the token in the object was signed by a key that was revoked.
    key_revoked: bool,
    /// When to check again although nothing blocks the delivery.
    check_again_after: Option<Duration>,
}

impl Progress {
    fn set_token(&mut self, token: Option<TokenReport>) {
        self.exposed_until = self
            .exposed_until
            .max(token.as_ref().map(|token| token.expires_at));
        self.token = token;
    }
}

impl Deliveries {
    /// Reconciles the object of one delivery.
    pub(super) async fn reconcile_delivery(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        probe: &LastProbe,
    ) -> DeliveryOutcome {
        let mut progress = Progress {
            token: None,
            exposed_until: None,
            key_revoked: false,
            check_again_after: None,
        };
        let outcome = self
            .write_one(run, delivery, pair, probe, &mut progress)
            .await
            .and_then(|()| self.check_flux_credential(delivery, pair));
        let Progress {
            token,
            exposed_until,
            key_revoked,
            check_again_after,
        } = progress;
        let (reason, message, retry, retry_after) = match outcome {
            Ok(()) => (Reason::Ready, String::new(), false, check_again_after),
            Err(error) => {
                let stale = if key_revoked && token.is_some() {
                    "the key that signed the object's token was revoked; "
                } else {
                    ""
                };
                (
                    error.reason,
                    format!("{stale}{}", error.message),
                    error.is_transient(),
                    error.retry_after,
                )
            }
        };
        DeliveryOutcome {
            report: DeliveryReport {
                delivery: delivery.clone(),
                reason,
                message,
                token,
            },
            retry,
            retry_after,
            exposed_until,
        }
    }

    /// Checks that Flux, which reads the written ConfigMap, gets a token of the hub for the
    /// ServiceAccount. The ConfigMap stays: Flux before 2.10 does not know the annotations.
    fn check_flux_credential(&self, delivery: &Delivery, pair: &Pair) -> Result<(), DeliveryError> {
        if delivery.delivery_type != DeliveryType::FluxConfigMap {
            return Ok(());
        }
        let account = &pair.service_account().account;
        match self.context.live.flux_credential(account) {
            None => Ok(()),
            Some(other) => Err(DeliveryError::new(
                Reason::FluxCredentialDiffers,
                other.to_string(),
            )),
        }
    }

    async fn write_one(
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
        let Some(place) = ObjectPlace::of(run.access, delivery) else {
            return Ok(());
        };
        if let Err(gap) = delivery::check_expressible(delivery.delivery_type, target) {
            // The object may still contain the data of an earlier target, and clients would connect
            // there.
            progress.exposed_until = self.remove_object(&place, owner).await?.exposed_until();
            return Err(DeliveryError::new(Reason::NotExpressible, gap.to_string()));
        }
        let read = self.context.objects.get(&place.path()).await;
        if !matches!(read, Ok(None)) {
            // Until the object has been read, assume the token that was last written to it.
            progress.set_token(earlier_token(
                &run.stored.record.status,
                run.name,
                &place,
                self.context.clock.now().wall,
            ));
        }
        let read = read?;
        let found =
            delivery::classify_object(read.as_ref().map(delivery::ReadObject::value), owner);
        if let delivery::DeliveredObject::Ours(owned) = &found {
            progress.set_token(token_report(owned));
            progress.key_revoked =
                delivery.holds_token() && self.holds_revoked_token(owned, Some(target));
        }
        let ready_ca = self.ready_target_ca(run, target, delivery, probe);
        if let (Err(_), delivery::DeliveredObject::Ours(owned)) = (&ready_ca, &found)
            && (progress.key_revoked
                || is_of_another_user(delivery, pair, owned)
                || owned
                    .target()
                    .is_some_and(|earlier| earlier != target.name.as_str()))
        {
            // An object for the access's previous target is removed now, even if the new target is
            // not ready. So is a token of a revoked key, which a tenant could otherwise keep by
            // suspending its access.
            if let Removal::Gone(_) = self.remove_object(&place, owner).await? {
                progress.token = None;
            }
        }
        let mut ca_pem = ready_ca?;
        if delivery.holds_certificate() && ca_pem.is_none() {
            ca_pem = Some(self.hub_authority(run).await?);
        }
        let snapshot = Snapshot {
            access: run.access,
            owner,
            target,
            ca_pem: ca_pem.as_deref(),
            account_uid: &pair.service_account().uid,
        };
        let planned = render_object(&snapshot, delivery, None)?;
        let now = self.context.clock.now();
        let step = delivery::plan_step(
            found,
            planned.form(),
            delivery.holds_credential(),
            progress.key_revoked,
            now.wall,
        );
        // The current pair stays in the object until the next one is issued, however long its
        // approval takes. A pair for another user does not stay.
        let certificate = if delivery.holds_certificate() {
            match &step {
                Step::Keep(_) => self.certificates.finish_request(run.name, &delivery.name),
                Step::Replace(owned) if is_of_another_user(delivery, pair, owned) => {
                    if let Removal::Gone(_) = self.remove_object(&place, owner).await? {
                        progress.token = None;
                    }
                    // The object that was read is gone, so the next run creates another.
                    return Err(DeliveryError::new(
                        Reason::CertificatePending,
                        "the certificate of another ServiceAccount was removed",
                    )
                    .with_retry_after(Duration::from_secs(1)));
                }
                Step::Create | Step::Replace(_) | Step::Leave(_) => {}
            }
            match &step {
                Step::Create => Some(self.obtain_certificate(run, delivery, pair, None).await?),
                Step::Replace(owned) => {
                    let still_valid = owned.expires_at().is_some_and(|end| now.wall < end);
                    let current = still_valid.then_some(*owned);
                    Some(
                        self.obtain_certificate(run, delivery, pair, current)
                            .await?,
                    )
                }
                Step::Keep(_) | Step::Leave(_) => None,
            }
        } else {
            None
        };
        if let Some(Issuance::Waiting(check_again_after)) = certificate {
            progress.check_again_after = Some(check_again_after);
            return Ok(());
        }
        let owned = match step {
            Step::Leave(why) => {
                return Err(DeliveryError::new(
                    Reason::ObjectNotOurs,
                    format!("{place} already exists, and {why}"),
                ));
            }
            Step::Keep(owned) => {
                return self
                    .reconcile_profile_status(&snapshot, delivery, &place, &owned)
                    .await;
            }
            Step::Create => None,
            Step::Replace(owned) if owned.immutable() => {
                match self.remove_object(&place, owner).await? {
                    Removal::Gone(_) => None,
                    Removal::Retained(why) => {
                        return Err(DeliveryError::new(
                            Reason::ObjectNotOurs,
                            format!("{place} already exists, and {why}"),
                        ));
                    }
                }
            }
            Step::Replace(owned) => Some(owned),
        };
        self.check_conflicting_objects(run, delivery, &place, target)
            .await?;
        let (body, token) = if let Some(Issuance::Issued(issued)) = &certificate {
            let (body, token) = self
                .render_with_certificate(run, delivery, &snapshot, issued)
                .await?;
            progress.exposed_until = progress.exposed_until.max(Some(token.expires_at));
            (body, Some(token))
        } else if delivery.holds_token() {
            let (body, token) = self
                .render_with_token(run, delivery, pair, &snapshot)
                .await?;
            // Set whether or not the write succeeds: it may have succeeded although its answer was
            // lost.
            progress.exposed_until = progress.exposed_until.max(Some(token.expires_at));
            (body, Some(token))
        } else {
            self.record_issuance(DELIVERY_ROUTE, run, delivery, pair, None)
                .await?;
            (planned, None)
        };
        if !self.context.is_leader() {
            return Err(DeliveryError::new(
                Reason::DeliveryFailed,
                "another replica leads now",
            ));
        }
        let version = match owned {
            None => {
                self.context
                    .objects
                    .create(&place.collection(), &body)
                    .await
            }
            Some(owned) => {
                self.context
                    .objects
                    .replace(
                        &place.path(),
                        &body.for_replacement(owned.uid(), owned.version(), owned.object()),
                    )
                    .await
            }
        }?;
        progress.token = token;
        self.certificates.finish_request(run.name, &delivery.name);
        tracing::info!(access = %run.name, object = %place, "an object was written");
        self.apply_profile_status(&snapshot, delivery, &place, &version)
            .await
    }

    /// Returns the target's CA certificates, if the target is ready.
    fn ready_target_ca(
        &self,
        run: &Reconciliation<'_>,
        target: &TargetCluster,
        delivery: &Delivery,
        probe: &LastProbe,
    ) -> Result<Option<std::sync::Arc<str>>, DeliveryError> {
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
        if run.access.probe == Probe::Require
            && target.client_certificates.is_none()
            && let Some((reason, message)) = probe.blocking_reason()
        {
            return Err(DeliveryError::new(reason, message));
        }
        Ok(ca_pem)
    }

    /// Writes an audit record before an issuance; without a record nothing is issued.
    pub(super) async fn record_issuance(
        &self,
        route: &'static str,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        issued: Option<(&Grant, TokenNote)>,
    ) -> Result<(), DeliveryError> {
        let mut record = AuditRecord {
            request_id: self.context.random.request_id(),
            route,
            ..AuditRecord::default()
        };
        record.time = self.context.clock.now().wall;
        record.delivery = Some(format!(
            "{} {}",
            delivery.delivery_type.as_str(),
            delivery.name
        ));
        match issued {
            Some((grant, note)) => {
                record.grant = Some(grant.clone());
                record.token = Some(note);
            }
            None => {
                record.access = Some(run.name.clone());
                record.target = Some(pair.target().clone());
            }
        }
        record.set_decision("granted", Reason::Ready);
        let failed = |_| {
            DeliveryError::new(
                Reason::AuditUnavailable,
                "the audit record could not be written, so no object was",
            )
        };
        self.credentials.audit.record(&record).await.map_err(failed)
    }
}

pub(super) fn render_object(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    bearer: Option<&Bearer<'_>>,
) -> Result<ObjectBody, DeliveryError> {
    let failed = || DeliveryError::new(Reason::DeliveryFailed, "the object could not be created");
    delivery::render_object(snapshot, delivery, bearer)
        .map_err(|_| failed())?
        .ok_or_else(failed)
}
