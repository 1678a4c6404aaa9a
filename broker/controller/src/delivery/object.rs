//! Reports on the object of one delivery, and records each issuance for it.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Delivery, DeliveryType};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::{DeliveryReport, TokenReport};
use keyferry_core::audit::{AuditRecord, TokenNote};
use keyferry_core::authorise::{Grant, Pair};
use keyferry_core::delivery::{self, Bearer, ObjectBody, Snapshot};

use super::error::DeliveryError;
use super::last_probe::LastProbe;
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
pub(super) struct Progress {
    pub(super) token: Option<TokenReport>,
    pub(super) exposed_until: Option<Timestamp>,
    /// Whether the token in the object was signed by a key that was revoked.
    pub(super) key_revoked: bool,
    /// When to check again although nothing blocks the delivery.
    pub(super) check_again_after: Option<Duration>,
}

impl Progress {
    pub(super) fn set_token(&mut self, token: Option<TokenReport>) {
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
            .write_object(run, delivery, pair, probe, &mut progress)
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
