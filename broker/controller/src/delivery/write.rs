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
use super::hindrance::{Hindrance, refusal};
use super::probe::LastProbe;
use super::remove::{Removal, earlier_token};
use super::{Deliveries, Reconciliation};

/// The route name in audit records.
pub(super) const ROUTE: &str = "delivery";

/// The result of one delivery.
pub(super) struct Written {
    pub(super) report: DeliveryReport,
    /// Whether the obstacle may pass by itself.
    pub(super) retry: bool,
    /// When the obstacle passes, if known.
    pub(super) retry_after: Option<Duration>,
    /// The latest expiry of the tokens that the object contains now or contained at the start.
    pub(super) exposed: Option<Timestamp>,
}

/// What a delivery learns while it runs, whether or not it succeeds.
struct Progress {
    token: Option<TokenReport>,
    exposed: Option<Timestamp>,
    /// Whether the token in the object was signed by a key that was revoked.
    key_revoked: bool,
    /// When to check again although nothing hinders the delivery.
    again: Option<Duration>,
}

impl Progress {
    fn holds(&mut self, token: Option<TokenReport>) {
        self.exposed = self
            .exposed
            .max(token.as_ref().map(|token| token.expires_at));
        self.token = token;
    }
}

impl Deliveries {
    /// Reconciles the object of one delivery.
    pub(super) async fn write(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        probe: &LastProbe,
    ) -> Written {
        let mut progress = Progress {
            token: None,
            exposed: None,
            key_revoked: false,
            again: None,
        };
        let outcome = self
            .write_one(round, delivery, pair, probe, &mut progress)
            .await
            .and_then(|()| self.check_flux_credential(delivery, pair));
        let Progress {
            token,
            exposed,
            key_revoked,
            again,
        } = progress;
        let (reason, message, retry, retry_after) = match outcome {
            Ok(()) => (Reason::Ready, String::new(), false, again),
            Err(hindrance) => {
                let stale = if key_revoked && token.is_some() {
                    "the key that signed the object's token was revoked; "
                } else {
                    ""
                };
                (
                    hindrance.reason,
                    format!("{stale}{}", hindrance.message),
                    hindrance.passes(),
                    hindrance.retry_after,
                )
            }
        };
        Written {
            report: DeliveryReport {
                delivery: delivery.clone(),
                reason,
                message,
                token,
            },
            retry,
            retry_after,
            exposed,
        }
    }

    /// Checks that Flux, which reads the written ConfigMap, gets a token of the hub for the
    /// ServiceAccount. The ConfigMap stays: Flux before 2.10 does not know the annotations.
    fn check_flux_credential(&self, delivery: &Delivery, pair: &Pair) -> Result<(), Hindrance> {
        if delivery.delivery_type != DeliveryType::FluxConfigMap {
            return Ok(());
        }
        let account = &pair.service_account().account;
        match self.parts.live.flux_credential(account) {
            None => Ok(()),
            Some(other) => Err(Hindrance::new(
                Reason::FluxCredentialDiffers,
                other.to_string(),
            )),
        }
    }

    async fn write_one(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        probe: &LastProbe,
        progress: &mut Progress,
    ) -> Result<(), Hindrance> {
        let (Some(target), Some(owner)) =
            (round.policy.targets.get(pair.target()), &round.access.uid)
        else {
            return Err(Hindrance::new(Reason::TargetNotGranted, ""));
        };
        let Some(place) = ObjectPlace::of(round.access, delivery) else {
            return Ok(());
        };
        if let Err(gap) = delivery::express(delivery.delivery_type, target) {
            // The object may still contain the data of an earlier target, and clients would connect
            // there.
            progress.exposed = self
                .remove(&place, owner)
                .await
                .map_err(|error| refusal(&error))?
                .exposed();
            return Err(Hindrance::new(Reason::NotExpressible, gap.to_string()));
        }
        let read = self.parts.objects.get(&place.path()).await;
        if !matches!(read, Ok(None)) {
            // Until the object has been read, assume the token that was last written to it.
            progress.holds(earlier_token(
                &round.stored.record.status,
                round.name,
                &place,
                self.parts.clock.now().wall,
            ));
        }
        let read = read.map_err(|error| refusal(&error))?;
        let found = delivery::found(read.as_ref().map(delivery::ReadObject::value), owner);
        if let delivery::DeliveredObject::Ours(held) = &found {
            progress.holds(token_report(held));
            progress.key_revoked = delivery.holds_token() && self.holds_revoked(held, Some(target));
        }
        let usable = self.usable(round, target, delivery, probe);
        if let (Err(_), delivery::DeliveredObject::Ours(held)) = (&usable, &found)
            && (progress.key_revoked
                || is_of_another_user(delivery, pair, held)
                || held
                    .target()
                    .is_some_and(|earlier| earlier != target.name.as_str()))
        {
            // An object for the access's previous target is removed now, even if the new target is
            // not ready. So is a token of a revoked key, which a tenant could otherwise keep by
            // suspending its access.
            if let Removal::Gone(_) = self
                .remove(&place, owner)
                .await
                .map_err(|error| refusal(&error))?
            {
                progress.token = None;
            }
        }
        let mut ca_pem = usable?;
        if delivery.holds_certificate() && ca_pem.is_none() {
            ca_pem = Some(self.hub_authority(round).await?);
        }
        let snapshot = Snapshot {
            access: round.access,
            owner,
            target,
            ca_pem: ca_pem.as_deref(),
            account_uid: &pair.service_account().uid,
        };
        let planned = render(&snapshot, delivery, None)?;
        let now = self.parts.clock.now();
        let step = delivery::plan(
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
                Step::Keep(_) => self.certificates.finish(round.name, &delivery.name),
                Step::Replace(held) if is_of_another_user(delivery, pair, held) => {
                    if let Removal::Gone(_) = self
                        .remove(&place, owner)
                        .await
                        .map_err(|error| refusal(&error))?
                    {
                        progress.token = None;
                    }
                    // The object that was read is gone, so the next run creates another.
                    return Err(Hindrance::new(
                        Reason::CertificatePending,
                        "the certificate of another ServiceAccount was removed",
                    )
                    .again_after(Duration::from_secs(1)));
                }
                Step::Create | Step::Replace(_) | Step::Leave(_) => {}
            }
            match &step {
                Step::Create => Some(self.certificate(round, delivery, pair, None).await?),
                Step::Replace(held) => {
                    let still_valid = held.expires_at().is_some_and(|end| now.wall < end);
                    let current = still_valid.then_some(*held);
                    Some(self.certificate(round, delivery, pair, current).await?)
                }
                Step::Keep(_) | Step::Leave(_) => None,
            }
        } else {
            None
        };
        if let Some(Issuance::Waiting(again)) = certificate {
            progress.again = Some(again);
            return Ok(());
        }
        let held = match step {
            Step::Leave(why) => {
                return Err(Hindrance::new(
                    Reason::ObjectNotOurs,
                    format!("{place} already exists, and {why}"),
                ));
            }
            Step::Keep(held) => return self.kept(&snapshot, delivery, &place, &held).await,
            Step::Create => None,
            Step::Replace(held) if held.immutable() => match self
                .remove(&place, owner)
                .await
                .map_err(|error| refusal(&error))?
            {
                Removal::Gone(_) => None,
                Removal::Stays(why) => {
                    return Err(Hindrance::new(
                        Reason::ObjectNotOurs,
                        format!("{place} already exists, and {why}"),
                    ));
                }
            },
            Step::Replace(held) => Some(held),
        };
        self.check_neighbours(round, delivery, &place, target)
            .await?;
        let (body, token) = if let Some(Issuance::Issued(issued)) = &certificate {
            let (body, token) = self
                .with_certificate(round, delivery, &snapshot, issued)
                .await?;
            progress.exposed = progress.exposed.max(Some(token.expires_at));
            (body, Some(token))
        } else if delivery.holds_token() {
            let (body, token) = self.with_token(round, delivery, pair, &snapshot).await?;
            // Set whether or not the write succeeds: it may have succeeded although its answer was
            // lost.
            progress.exposed = progress.exposed.max(Some(token.expires_at));
            (body, Some(token))
        } else {
            self.record(ROUTE, round, delivery, pair, None).await?;
            (planned, None)
        };
        if !self.leads() {
            return Err(Hindrance::new(
                Reason::DeliveryFailed,
                "another replica leads now",
            ));
        }
        let version = match held {
            None => self.parts.objects.create(&place.collection(), &body).await,
            Some(held) => {
                self.parts
                    .objects
                    .replace(
                        &place.path(),
                        &body.replacing(held.uid(), held.version(), held.object()),
                    )
                    .await
            }
        }
        .map_err(|error| refusal(&error))?;
        progress.token = token;
        self.certificates.finish(round.name, &delivery.name);
        tracing::info!(access = %round.name, object = %place, "an object was written");
        self.apply_profile(&snapshot, delivery, &place, &version)
            .await
    }

    /// Returns the target's CA certificates, if the target is ready.
    fn usable(
        &self,
        round: &Reconciliation<'_>,
        target: &TargetCluster,
        delivery: &Delivery,
        probe: &LastProbe,
    ) -> Result<Option<std::sync::Arc<str>>, Hindrance> {
        let published = self.parts.published.current();
        let issuer = published.as_ref().map(|published| &published.issuer);
        let ready = if round.access.suspend {
            Err(NotReady::Suspended)
        } else {
            self.parts.targets.ready_ca(target, issuer)
        };
        let ca_pem = ready.map_err(|error| Hindrance::new(error.reason(), error.to_string()))?;
        if delivery.holds_credential() {
            self.parts
                .admission_policy
                .checked()
                .map_err(|gap| Hindrance::new(Reason::AuthorUnchecked, gap.to_string()))?;
        }
        if round.access.probe == Probe::Require
            && target.client_certificates.is_none()
            && let Some((reason, message)) = probe.hindrance()
        {
            return Err(Hindrance::new(reason, message));
        }
        Ok(ca_pem)
    }

    /// Writes an audit record before an issuance; without a record nothing is issued.
    pub(super) async fn record(
        &self,
        route: &'static str,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        issued: Option<(&Grant, TokenNote)>,
    ) -> Result<(), Hindrance> {
        let mut record = AuditRecord {
            request_id: self.parts.random.request_id(),
            route,
            ..AuditRecord::default()
        };
        record.time = self.parts.clock.now().wall;
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
                record.access = Some(round.name.clone());
                record.target = Some(pair.target().clone());
            }
        }
        record.ended("granted", Reason::Ready);
        let failed = |_| {
            Hindrance::new(
                Reason::AuditUnavailable,
                "the audit record could not be written, so no object was",
            )
        };
        self.parts.audit.record(&record).await.map_err(failed)
    }
}

pub(super) fn render(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    bearer: Option<&Bearer<'_>>,
) -> Result<ObjectBody, Hindrance> {
    let failed = || Hindrance::new(Reason::DeliveryFailed, "the object could not be created");
    delivery::render(snapshot, delivery, bearer)
        .map_err(|_| failed())?
        .ok_or_else(failed)
}
