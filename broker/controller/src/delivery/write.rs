//! Writes one object of one access.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Delivery, DeliveryType, Probe, TargetCluster, TokenIssuer};
use keyferry_api::lifetime;
use keyferry_api::reason::Reason;
use keyferry_core::access_status::{DeliveryReport, TokenReport};
use keyferry_core::audit::{AuditRecord, TokenNote};
use keyferry_core::authorise::{self, Grant, Pair};
use keyferry_core::delivery::{self, Bearer, ObjectBody, ObjectPlace, OwnedObject, Snapshot, Step};
use keyferry_hub::forbidden::ForbiddenCause;
use keyferry_hub::ports::HubError;
use keyferry_hub::targets::Readiness;
use keyferry_issuer::advice;
use keyferry_keys::jwt::MAX_KID_BYTES;

use super::client_certificate::{Issuance, is_of_another_user};
use super::probe::LastProbe;
use super::remove::{Removal, earlier_token};
use super::{Deliveries, Reconciliation};

/// The shortest time between two writes of a token.
const LEAST_REST: Duration = Duration::from_secs(60);

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

/// Why an object cannot be reconciled.
pub(super) struct Hindrance {
    pub(super) reason: Reason,
    message: String,
    retry_after: Option<Duration>,
}

impl Hindrance {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The same obstacle, which is checked again after this time.
    pub(super) fn again_after(self, pause: impl Into<Option<Duration>>) -> Self {
        Self {
            retry_after: pause.into(),
            ..self
        }
    }

    /// Whether the obstacle may pass without a change that Keyferry would notice.
    fn passes(&self) -> bool {
        !matches!(
            self.reason,
            Reason::CertificateDenied
                | Reason::IssuerCollision
                | Reason::NotExpressible
                | Reason::TargetSuspended
        )
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
            .await;
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
            // The object may still contain the data of an earlier target, and would lead there.
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
            // An object that leads to the access's previous target is removed now, even if the new
            // one is not ready. So is a token of a revoked key, which a tenant could otherwise keep
            // by suspending its access.
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
        // approval takes; unless it is for another user.
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
        if target.suspend || round.access.suspend {
            return Err(Hindrance::new(
                Reason::TargetSuspended,
                "the TargetCluster or the TargetAccess is suspended",
            ));
        }
        let published = self.parts.published.current().ok_or_else(|| {
            Hindrance::new(Reason::HubUnreachable, "the hub's keys are not known yet")
        })?;
        if authorise::issuer_collides(&published.issuer, target) {
            let message = format!(
                "a target whose own issuer is {} refuses it",
                published.issuer
            );
            return Err(Hindrance::new(Reason::IssuerCollision, message));
        }
        let ca_pem = match self.parts.targets.readiness(target) {
            Readiness::Ready(ca_pem) => ca_pem,
            Readiness::NotReady { reason, message } => return Err(Hindrance::new(reason, message)),
        };
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

    /// Renders an object body with a token that the authoriser granted and that may still be
    /// issued.
    async fn with_token(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        snapshot: &Snapshot<'_>,
    ) -> Result<(ObjectBody, TokenReport), Hindrance> {
        let advised = |reason: Reason| {
            let message = advice::on(reason, pair, round.policy.own_namespace.as_ref());
            Hindrance::new(
                reason,
                message.unwrap_or_else(|| "no token could be minted; see the log".to_owned()),
            )
        };
        let grant = round.grant(delivery, pair).map_err(advised)?;
        let minted = self
            .parts
            .mint
            .token(&grant, lifetime::greatest_min_ttl(pair.lifetime()))
            .await;
        let minted = minted.map_err(|reason| Hindrance {
            // A key becomes active at a known time, and until then the object may contain a token
            // that no target accepts.
            retry_after: (reason == Reason::KeySettling)
                .then(|| self.parts.mint.retry_after(&grant))
                .flatten(),
            ..advised(reason)
        })?;
        let token = minted.token;
        let now = self.parts.clock.now();
        let due = lifetime::refresh_after(
            token.lifetime(),
            self.parts.activation_delay,
            self.parts.random.unit(),
        );
        let rest = due.saturating_sub(token.age(now)).max(LEAST_REST);
        let expires_at = token.deadline().wall();
        let renew_at = now
            .wall
            .saturating_add(rest)
            .unwrap_or(expires_at)
            .min(expires_at);
        // The token is issued only after its record is written, and only if the grant is still
        // allowed.
        self.record(
            ROUTE,
            round,
            delivery,
            pair,
            Some((&grant, TokenNote::of(&token))),
        )
        .await?;
        authorise::still_holds(&self.parts.policy.current(), &*self.parts.live, &grant)
            .map_err(advised)?;
        let key_id = token.kid();
        let report = TokenReport {
            token_id: token.token_id().to_owned(),
            key_id: Some(key_id.to_owned()),
            expires_at,
            renew_at,
        };
        let bearer = Bearer {
            token: token.secret(),
            token_id: token.token_id(),
            key_id,
            expires_at,
            renew_at,
        };
        Ok((render(snapshot, delivery, Some(&bearer))?, report))
    }

    /// Whether a delivered token was signed by a revoked key of the hub. A token whose key is not
    /// named may have been.
    pub(super) fn is_revoked(&self, key_id: Option<&str>, target: Option<&TargetCluster>) -> bool {
        let revoked = self.parts.published.revoked();
        let of_hub = target.is_none_or(|target| target.issuer == TokenIssuer::Hub);
        of_hub && !revoked.is_empty() && key_id.is_none_or(|key_id| revoked.contains(key_id))
    }

    /// Whether an object contains a token that a revoked key of the hub signed, or may contain one.
    pub(super) fn holds_revoked(
        &self,
        held: &OwnedObject<'_>,
        target: Option<&TargetCluster>,
    ) -> bool {
        let tokens = held.tokens();
        if !tokens.complete || tokens.key_ids.is_empty() {
            return self.is_revoked(None, target);
        }
        tokens
            .key_ids
            .iter()
            .any(|key_id| self.is_revoked(Some(key_id), target))
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

    /// Checks the status of an object whose content is already right, and applies it if it is
    /// missing.
    async fn kept(
        &self,
        snapshot: &Snapshot<'_>,
        delivery: &Delivery,
        place: &ObjectPlace,
        held: &OwnedObject<'_>,
    ) -> Result<(), Hindrance> {
        if delivery.delivery_type != DeliveryType::ClusterProfile {
            return Ok(());
        }
        let wanted =
            delivery::cluster_profile_status(snapshot, place.name.as_str(), held.version());
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
        if ours(held.object()) == ours(&wanted) {
            Ok(())
        } else {
            self.apply_profile(snapshot, delivery, place, held.version())
                .await
        }
    }

    /// Applies the status to the object of this version. An object that replaced it is not ours,
    /// and is read again first.
    async fn apply_profile(
        &self,
        snapshot: &Snapshot<'_>,
        delivery: &Delivery,
        place: &ObjectPlace,
        version: &str,
    ) -> Result<(), Hindrance> {
        if delivery.delivery_type != DeliveryType::ClusterProfile {
            return Ok(());
        }
        let status = delivery::cluster_profile_status(snapshot, place.name.as_str(), version);
        self.parts
            .objects
            .apply_status(&place.path(), &status)
            .await
            .map_err(|error| match error {
                HubError::NotFound(_) | HubError::Conflict(_) => Hindrance::new(
                    Reason::DeliveryFailed,
                    format!("{place} was changed or deleted before its status was written"),
                ),
                error => refusal(&error),
            })
    }
}

fn render(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    bearer: Option<&Bearer<'_>>,
) -> Result<ObjectBody, Hindrance> {
    let failed = || Hindrance::new(Reason::DeliveryFailed, "the object could not be created");
    delivery::render(snapshot, delivery, bearer)
        .map_err(|_| failed())?
        .ok_or_else(failed)
}

pub(super) fn token_report(held: &OwnedObject<'_>) -> Option<TokenReport> {
    let (expires_at, renew_at) = (held.expires_at()?, held.renew_at()?);
    let bounded = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let token_id = bounded(held.token_id().unwrap_or_default(), 128);
    Some(TokenReport {
        token_id,
        key_id: held.key_id().map(|key_id| bounded(&key_id, MAX_KID_BYTES)),
        expires_at,
        renew_at,
    })
}

/// Explains the hub's refusal of an object. Exceeded quotas and terminating namespaces answer 403
/// as well.
pub(super) fn refusal(error: &HubError) -> Hindrance {
    let reason = match error {
        HubError::Forbidden(forbidden) => match forbidden.cause() {
            ForbiddenCause::QuotaExceeded => Reason::QuotaExceeded,
            ForbiddenCause::NamespaceTerminating => Reason::NamespaceTerminating,
            ForbiddenCause::AdmissionPolicy(_) | ForbiddenCause::Admission => {
                Reason::DeliveryFailed
            }
            ForbiddenCause::MissingRight => Reason::DeliveryForbidden,
        },
        HubError::Unreachable(_) | HubError::Unwell(_) | HubError::Busy | HubError::TooLarge => {
            Reason::HubUnreachable
        }
        _ => Reason::DeliveryFailed,
    };
    let fix = match reason {
        Reason::DeliveryForbidden => {
            "; bind the ClusterRole keyferry-minter to Keyferry's ServiceAccount in this namespace"
        }
        _ => "",
    };
    Hindrance::new(reason, format!("{error}{fix}"))
}
