//! Requests client certificates of the hub's apiserver for `ClientCertificateSecret` deliveries.
//!
//! The private key exists only in this process until its certificate is issued and checked. A
//! restarted process, or a new leader, makes a new key and a new request (decision 0027).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{CertificateApproval, Delivery, TargetAccess};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TokenReport;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Grant, Pair};
use keyferry_core::client_certificate::{self, RequestProgress, WantedCertificate};
use keyferry_core::delivery::{
    self, CredentialNote, DeliveredCertificate, ObjectBody, OwnedObject, Snapshot,
};
use keyferry_hub::ports::HubError;
use keyferry_issuer::advice;
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_keys::client_certificate::{CertificateRequest, ClientKey, IssuedCertificate};
use parking_lot::Mutex;
use secrecy::SecretString;

use super::hindrance::{Hindrance, refusal};
use super::write::ROUTE;
use super::{Deliveries, Reconciliation};

/// How often a waiting request is checked.
const POLL: Duration = Duration::from_secs(3);
/// The shortest time between two requests of one delivery: its author can edit the Secret, and
/// each edit asks for a new certificate.
const BETWEEN: Duration = Duration::from_secs(30);
/// The most requests for one access within [`WINDOW`]. Its author can rename deliveries, and each name
/// asks for a certificate; an access has at most 16 at once.
const MOST_IN_WINDOW: usize = 32;
/// The time over which requests for one access are counted.
const WINDOW: Duration = Duration::from_secs(3600);
/// How long a renewal may wait for its automatic approval before the access is reported.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long until a request that was not signed, or signed wrongly, is made again.
const AFTER_FAULT: Duration = Duration::from_secs(3600);

/// The last request of one delivery.
struct LastRequest {
    wanted: WantedCertificate,
    /// When it was made, by the monotonic clock.
    made: Duration,
    state: RequestState,
}

enum RequestState {
    /// It waits for its approval or its signature.
    UnderWay(UnderWay),
    /// It has a final fault.
    Refused {
        reason: Reason,
        message: String,
        /// The value of `keyferry.dev/requestedAt` then.
        requested_at: Option<String>,
    },
    /// No request is pending. The key is dropped; the time of the last request limits how soon the
    /// next one is made.
    Done,
}

/// A request with its key.
#[derive(Clone)]
struct UnderWay {
    request: Arc<CertificateRequest>,
    key: Arc<ClientKey>,
    /// Whether the hub has accepted it.
    created: bool,
}

/// The last requests, by access and delivery, and when each access made its requests.
#[derive(Default)]
pub(super) struct CertificateRequests {
    last: Mutex<HashMap<(AccessName, ObjectName), LastRequest>>,
    made: Mutex<HashMap<AccessName, VecDeque<Duration>>>,
}

impl CertificateRequests {
    /// Counts one more request of an access.
    ///
    /// # Errors
    /// The time of the next allowed request, if the access has made [`MOST_IN_WINDOW`].
    fn count(&self, access: &AccessName, now: Duration) -> Result<(), Duration> {
        let mut made = self.made.lock();
        // A deleted access is forgotten only once its requests no longer count, so deleting and
        // recreating it does not reset the limit.
        made.retain(|_, times| {
            times.retain(|time| now.saturating_sub(*time) < WINDOW);
            !times.is_empty()
        });
        let times = made.entry(access.clone()).or_default();
        match times.front() {
            Some(first) if times.len() >= MOST_IN_WINDOW => {
                Err(WINDOW.saturating_sub(now.saturating_sub(*first)))
            }
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }

    /// Drops the keys of a deleted access.
    pub(super) fn forget(&self, access: &AccessName) {
        self.last.lock().retain(|(name, _), _| name != access);
    }

    /// Drops the keys of deliveries that the access no longer lists.
    pub(super) fn keep_listed(&self, access: &TargetAccess) {
        self.last.lock().retain(|(name, delivery), _| {
            *name != access.name
                || access
                    .delivery(delivery)
                    .is_some_and(Delivery::holds_certificate)
        });
    }

    /// Drops the key of one delivery, whose request is no longer needed.
    pub(super) fn finish(&self, access: &AccessName, delivery: &ObjectName) {
        let mut requests = self.last.lock();
        if let Some(last) = requests.get_mut(&(access.clone(), delivery.clone())) {
            last.state = RequestState::Done;
        }
    }

    /// Drops every key: another replica leads.
    pub(super) fn forget_all(&self) {
        self.last.lock().clear();
    }
}

/// How far a certificate has got.
pub(super) enum Issuance {
    /// It is issued, and is the requested one.
    Issued(Box<IssuedPair>),
    /// The next one is pending, and the object contains a valid one. Check again after this time.
    Waiting(Duration),
}

/// An issued certificate with its key, and the grant that it was requested for.
pub(super) struct IssuedPair {
    certificate: IssuedCertificate,
    key: Arc<ClientKey>,
    grant: Grant,
}

/// Whether the object contains the certificate of another user than the pair allows.
pub(super) fn is_of_another_user(delivery: &Delivery, pair: &Pair, held: &OwnedObject<'_>) -> bool {
    let user = client_certificate::user_of(&pair.service_account().account);
    delivery.holds_certificate() && held.certificate_user().is_some_and(|one| one != user)
}

impl Deliveries {
    /// Returns the CA certificates of the hub's apiserver, as kube-controller-manager publishes
    /// them. Reads the ConfigMap in Keyferry's namespace, because tenants may write the one in
    /// their own namespace.
    pub(super) async fn hub_authority(
        &self,
        round: &Reconciliation<'_>,
    ) -> Result<Arc<str>, Hindrance> {
        let invalid = |problem: &str| {
            let message = format!(
                "ConfigMap kube-root-ca.crt {problem}; set certSecretRef or caBundle of the \
                 TargetCluster"
            );
            Hindrance::new(Reason::CertificateAuthorityInvalid, message)
        };
        let namespace = round.policy.own_namespace.as_ref();
        let namespace = namespace.ok_or_else(|| invalid("has no known namespace"))?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        let read = match self.parts.objects.get(&path).await {
            Ok(Some(read)) => read,
            Ok(None) => return Err(invalid("does not exist in Keyferry's namespace")),
            Err(HubError::Forbidden(_)) => {
                return Err(invalid("may not be read by Keyferry in its namespace"));
            }
            Err(error) => return Err(refusal(&error)),
        };
        let pem = read.value().pointer("/data/ca.crt");
        let pem = pem.and_then(|pem| pem.as_str()).unwrap_or_default();
        let bundle = CaBundle::from_pem(pem.as_bytes(), self.parts.clock.now().wall)
            .map_err(|error| invalid(&format!("cannot be used: {error}")))?;
        Ok(bundle.to_pem().into())
    }

    /// Requests a certificate, or continues the request that is under way. `current` is the object
    /// with the certificate that is valid until then.
    pub(super) async fn certificate(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        current: Option<OwnedObject<'_>>,
    ) -> Result<Issuance, Hindrance> {
        let grant = round
            .grant(delivery, pair)
            .map_err(|reason| self.advised(round, pair, reason))?;
        let name = (round.name.clone(), delivery.name.clone());
        let UnderWay {
            request,
            key,
            created,
        } = self.request(round, &name, &grant)?;
        let object = client_certificate::name_of(&request);
        let path = format!("{}/{object}", client_certificate::COLLECTION);
        if !self.leads() {
            return Err(Hindrance::new(
                Reason::DeliveryFailed,
                "another replica leads now",
            ));
        }
        let read = self
            .parts
            .objects
            .get(&path)
            .await
            .map_err(|e| forbidden(&e))?;
        let Some(read) = read else {
            if created {
                // Deleted, by the hub's garbage collector or by a user.
                self.certificates.finish(&name.0, &name.1);
                return Err(Hindrance::new(
                    Reason::CertificateFailed,
                    format!("CertificateSigningRequest {object} was deleted"),
                )
                .again_after(BETWEEN));
            }
            let body = client_certificate::object(&request, round.name, &delivery.name);
            let created = self
                .parts
                .objects
                .post(client_certificate::COLLECTION, &body);
            created.await.map_err(|error| forbidden(&error))?;
            tracing::info!(access = %round.name, request = %object, "a client certificate was \
                requested");
            self.note_created(&name);
            return self.waits(round, &name, &object, current, "its approval");
        };
        self.note_created(&name);
        match client_certificate::progress(read.value(), &request) {
            RequestProgress::Issued(chain) => {
                let now = self.parts.clock.now().wall;
                match request.check(&chain, now) {
                    Ok(certificate) => Ok(Issuance::Issued(Box::new(IssuedPair {
                        certificate,
                        key,
                        grant,
                    }))),
                    Err(mismatch) => {
                        let message = format!(
                            "the certificate of CertificateSigningRequest {object} was not \
                             written: {mismatch}"
                        );
                        Err(self.refuse(round, &name, Reason::CertificateMismatch, message))
                    }
                }
            }
            RequestProgress::Pending => self.waits(round, &name, &object, current, "its approval"),
            RequestProgress::Approved => {
                self.waits(round, &name, &object, current, "the hub's signer")
            }
            RequestProgress::Denied(text) => {
                let message = format!("CertificateSigningRequest {object} was denied: {text}");
                Err(self.refuse(round, &name, Reason::CertificateDenied, message))
            }
            RequestProgress::Failed(text) => {
                let message = format!("CertificateSigningRequest {object} failed: {text}");
                Err(self.refuse(round, &name, Reason::CertificateFailed, message))
            }
            RequestProgress::Foreign => {
                let message = format!("CertificateSigningRequest {object} was replaced by another");
                Err(self.refuse(round, &name, Reason::CertificateMismatch, message))
            }
        }
    }

    /// Returns the request that is under way for this grant, or makes one.
    fn request(
        &self,
        round: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        grant: &Grant,
    ) -> Result<UnderWay, Hindrance> {
        let wanted = WantedCertificate::of(grant);
        let now = self.parts.clock.now().mono;
        let mut requests = self.certificates.last.lock();
        if let Some(last) = requests.get(name) {
            let age = now.saturating_sub(last.made);
            match &last.state {
                RequestState::UnderWay(under_way) if last.wanted == wanted => {
                    return Ok(under_way.clone());
                }
                RequestState::Refused {
                    reason,
                    message,
                    requested_at,
                } if last.wanted == wanted && *requested_at == round.stored.record.requested_at => {
                    let left = AFTER_FAULT.saturating_sub(age);
                    // A denial is final until the spec or requestedAt changes.
                    let again = *reason != Reason::CertificateDenied;
                    if !again || !left.is_zero() {
                        return Err(Hindrance::new(*reason, message.clone())
                            .again_after(again.then_some(left)));
                    }
                }
                RequestState::UnderWay(_) | RequestState::Refused { .. } | RequestState::Done => {}
            }
            if age < BETWEEN {
                return Err(Hindrance::new(
                    Reason::CertificatePending,
                    "a certificate was requested moments ago; the next request follows",
                )
                .again_after(BETWEEN - age));
            }
        }
        self.certificates.count(&name.0, now).map_err(|wait| {
            let text = format!(
                "{MOST_IN_WINDOW} certificates were requested within an hour; the next request \
                     follows"
            );
            Hindrance::new(Reason::CertificatePending, text).again_after(wait)
        })?;
        let failed = || {
            Hindrance::new(
                Reason::DeliveryFailed,
                "no key and request for a certificate could be made",
            )
        };
        let key = self.parts.client_keys.generate().ok_or_else(failed)?;
        let request = CertificateRequest::sign(&key, wanted.user(), wanted.lifetime())
            .map_err(|_| failed())?;
        let under_way = UnderWay {
            request: Arc::new(request),
            key: Arc::new(key),
            created: false,
        };
        let last = LastRequest {
            wanted,
            made: now,
            state: RequestState::UnderWay(under_way.clone()),
        };
        requests.insert(name.clone(), last);
        Ok(under_way)
    }

    fn note_created(&self, name: &(AccessName, ObjectName)) {
        let mut requests = self.certificates.last.lock();
        if let Some(RequestState::UnderWay(under_way)) =
            requests.get_mut(name).map(|last| &mut last.state)
        {
            under_way.created = true;
        }
    }

    /// Keeps a final fault, so that the same request is not made over and over.
    fn refuse(
        &self,
        round: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        reason: Reason,
        message: String,
    ) -> Hindrance {
        if let Some(last) = self.certificates.last.lock().get_mut(name) {
            last.state = RequestState::Refused {
                reason,
                message: message.clone(),
                requested_at: round.stored.record.requested_at.clone(),
            };
        }
        let again = (reason != Reason::CertificateDenied).then_some(AFTER_FAULT);
        Hindrance::new(reason, message).again_after(again)
    }

    fn waits(
        &self,
        round: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        object: &str,
        current: Option<OwnedObject<'_>>,
        what: &str,
    ) -> Result<Issuance, Hindrance> {
        let target = round.policy.targets.get(&round.access.target);
        let rules = target.and_then(|target| target.client_certificates);
        let automatic = rules.is_some_and(|rules| rules.approval == CertificateApproval::Automatic);
        let now = self.parts.clock.now().mono;
        let made = self
            .certificates
            .last
            .lock()
            .get(name)
            .map(|last| last.made);
        let young = made.is_some_and(|made| now.saturating_sub(made) < PATIENCE);
        if current.is_some() && automatic && young {
            return Ok(Issuance::Waiting(POLL));
        }
        let end = current
            .and_then(|held| held.expires_at())
            .map(|end| format!("; the current certificate is valid until {end}"))
            .unwrap_or_default();
        let fix = if automatic {
            "fix: check that keyferry approve-certificates runs, or check its user and approve it"
        } else {
            "fix: check its user and approve it"
        };
        let message = format!(
            "CertificateSigningRequest {object} waits for {what}{end}; {fix}: kubectl certificate \
             approve {object}"
        );
        Err(Hindrance::new(Reason::CertificatePending, message).again_after(POLL))
    }

    /// Renders the object with an issued certificate, after its audit record and the recheck of its
    /// grant.
    pub(super) async fn with_certificate(
        &self,
        round: &Reconciliation<'_>,
        delivery: &Delivery,
        snapshot: &Snapshot<'_>,
        issued: &IssuedPair,
    ) -> Result<(ObjectBody, TokenReport), Hindrance> {
        let IssuedPair {
            certificate,
            key,
            grant,
        } = issued;
        let note = TokenNote::of_certificate(certificate);
        self.record(ROUTE, round, delivery, grant.pair(), Some((grant, note)))
            .await?;
        authorise::still_holds(&self.parts.policy.current(), &*self.parts.live, grant)
            .map_err(|reason| self.advised(round, grant.pair(), reason))?;
        let renew_at = certificate.renew_at(self.parts.clock.now().wall);
        let key: SecretString = key.to_pem();
        let delivered = DeliveredCertificate {
            chain: certificate.pem(),
            key: &key,
            note: CredentialNote {
                id: certificate.serial(),
                key_id: None,
                expires_at: certificate.not_after(),
                renew_at,
            },
        };
        let body = delivery::render_certificate(snapshot, delivery, Some(&delivered));
        let body = body.ok_or_else(|| {
            Hindrance::new(Reason::DeliveryFailed, "the object could not be created")
        })?;
        let report = TokenReport {
            token_id: certificate.serial().to_owned(),
            key_id: None,
            expires_at: certificate.not_after(),
            renew_at,
        };
        Ok((body, report))
    }

    fn advised(&self, round: &Reconciliation<'_>, pair: &Pair, reason: Reason) -> Hindrance {
        let message = advice::on(reason, pair, round.policy.own_namespace.as_ref());
        Hindrance::new(
            reason,
            message.unwrap_or_else(|| "no certificate may be issued; see the log".to_owned()),
        )
    }
}

/// Explains why the hub did not accept a request.
fn forbidden(error: &HubError) -> Hindrance {
    match error {
        HubError::Forbidden(_) => Hindrance::new(
            Reason::DeliveryForbidden,
            format!(
                "{error}; bind the ClusterRole keyferry-client-certificates to Keyferry's \
                 ServiceAccount"
            ),
        ),
        _ => refusal(error),
    }
}
