//! Requests client certificates of the hub's apiserver for `ClientCertificateSecret` deliveries.
//!
//! The private key exists only in this process until its certificate is issued and checked. A
//! restarted process, or a new leader, makes a new key and a new request (decision 0027).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{CertificateApproval, Delivery, TargetAccess};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TokenReport;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Grant, Pair};
use keyferry_core::client_certificate::{self, CountedRequest, RequestProgress, WantedCertificate};
use keyferry_core::delivery::{
    self, CredentialNote, DeliveredCertificate, ObjectBody, OwnedObject, Snapshot,
};
use keyferry_hub::ports::HubError;
use keyferry_issuer::advice;
use keyferry_keys::ca_bundle::CaBundle;
use keyferry_keys::client_certificate::{CertificateRequest, ClientKey, IssuedCertificate};
use parking_lot::Mutex;
use secrecy::SecretString;

use super::error::DeliveryError;
use super::object::DELIVERY_ROUTE;
use super::request_counts::{MAX_REQUESTS_PER_NAMESPACE, RequestCounts, RequestLimit};
use super::{Deliveries, Reconciliation};

/// How often a waiting request is checked.
const APPROVAL_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The shortest time between two requests of one delivery: its author can edit the Secret, and
/// each edit asks for a new certificate.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(30);
/// How long a renewal may wait for its automatic approval before the access is reported.
const APPROVAL_GRACE_PERIOD: Duration = Duration::from_secs(60);
/// How long until a request that was not signed, or signed wrongly, is made again.
const FAULT_RETRY_INTERVAL: Duration = Duration::from_secs(3600);

/// The last request of one delivery.
struct LastRequest {
    wanted: WantedCertificate,
    /// When it was made, by the monotonic clock.
    made: Duration,
    state: RequestState,
}

enum RequestState {
    /// It waits for its approval or its signature.
    Pending(PendingRequest),
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
struct PendingRequest {
    request: Arc<CertificateRequest>,
    key: Arc<ClientKey>,
    /// Whether the hub has accepted it.
    created: bool,
}

/// The last requests, by access and delivery, and when each access and each namespace made theirs.
#[derive(Default)]
pub(super) struct CertificateRequests {
    last: Mutex<HashMap<(AccessName, ObjectName), LastRequest>>,
    counts: Mutex<RequestCounts>,
}

impl CertificateRequests {
    /// Drops the keys of a deleted access.
    pub(super) fn forget_access(&self, access: &AccessName) {
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
    pub(super) fn finish_request(&self, access: &AccessName, delivery: &ObjectName) {
        let mut requests = self.last.lock();
        if let Some(last) = requests.get_mut(&(access.clone(), delivery.clone())) {
            last.state = RequestState::Done;
        }
    }

    /// Drops every key: another replica leads, and makes requests of its own.
    pub(super) fn forget_all(&self) {
        self.last.lock().clear();
        self.counts.lock().restored.clear();
    }
}

/// How far a certificate has got.
pub(super) enum Issuance {
    /// It is issued, and is the requested one.
    Issued(Box<IssuedKeyPair>),
    /// The next one is pending, and the object contains a valid one. Check again after this time.
    Waiting(Duration),
}

/// An issued certificate with its key, and the grant that it was requested for.
pub(super) struct IssuedKeyPair {
    certificate: IssuedCertificate,
    key: Arc<ClientKey>,
    grant: Grant,
}

/// Whether the object contains the certificate of another user than the pair allows.
pub(super) fn is_of_another_user(
    delivery: &Delivery,
    pair: &Pair,
    owned: &OwnedObject<'_>,
) -> bool {
    let user = client_certificate::user_of(&pair.service_account().account);
    delivery.holds_certificate() && owned.certificate_user().is_some_and(|one| one != user)
}

impl Deliveries {
    /// Returns the CA certificates of the hub's apiserver, as kube-controller-manager publishes
    /// them. Reads the ConfigMap in Keyferry's namespace, because tenants may write the one in
    /// their own namespace.
    pub(super) async fn hub_authority(
        &self,
        run: &Reconciliation<'_>,
    ) -> Result<Arc<str>, DeliveryError> {
        let invalid = |problem: &str| {
            let message = format!(
                "ConfigMap kube-root-ca.crt {problem}; set certSecretRef or caBundle of the \
                 TargetCluster"
            );
            DeliveryError::new(Reason::CertificateAuthorityInvalid, message)
        };
        let namespace = run.policy.own_namespace.as_ref();
        let namespace = namespace.ok_or_else(|| invalid("has no known namespace"))?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        let read = match self.context.objects.get(&path).await {
            Ok(Some(read)) => read,
            Ok(None) => return Err(invalid("does not exist in Keyferry's namespace")),
            Err(HubError::Forbidden(_)) => {
                return Err(invalid("may not be read by Keyferry in its namespace"));
            }
            Err(error) => return Err(error.into()),
        };
        let pem = read.value().pointer("/data/ca.crt");
        let pem = pem.and_then(|pem| pem.as_str()).unwrap_or_default();
        let bundle = CaBundle::from_pem(pem.as_bytes(), self.context.clock.now().wall)
            .map_err(|error| invalid(&format!("cannot be used: {error}")))?;
        Ok(bundle.to_pem().into())
    }

    /// Requests a certificate, or continues the request that is under way. `current` is the object
    /// with the certificate that is valid until then.
    pub(super) async fn obtain_certificate(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        current: Option<OwnedObject<'_>>,
    ) -> Result<Issuance, DeliveryError> {
        let grant = run
            .grant_delivery(delivery, pair)
            .map_err(|reason| self.explain_refusal(run, pair, reason))?;
        let name = (run.name.clone(), delivery.name.clone());
        self.restore_request_counts(&run.name.namespace).await?;
        let pending = self.start_or_continue_request(run, &name, &grant)?;
        let object = client_certificate::name_of(&pending.request);
        let path = format!("{}/{object}", client_certificate::COLLECTION_PATH);
        if !self.context.is_leader() {
            return Err(DeliveryError::new(
                Reason::DeliveryFailed,
                "another replica leads now",
            ));
        }
        let read = self
            .context
            .objects
            .get(&path)
            .await
            .map_err(explain_forbidden)?;
        let Some(read) = read else {
            if pending.created {
                // Deleted, by the hub's garbage collector or by a user.
                self.certificates.finish_request(&name.0, &name.1);
                return Err(DeliveryError::new(
                    Reason::CertificateFailed,
                    format!("CertificateSigningRequest {object} was deleted"),
                )
                .with_retry_after(MIN_REQUEST_INTERVAL));
            }
            self.create_request(run, delivery, &pending.request).await?;
            self.mark_created(&name);
            return self.report_waiting(run, &name, &object, current, "its approval");
        };
        self.mark_created(&name);
        match client_certificate::request_progress(read.value(), &pending.request) {
            RequestProgress::Issued(chain) => {
                self.check_certificate(run, &name, pending, grant, &chain)
            }
            RequestProgress::Pending => {
                self.report_waiting(run, &name, &object, current, "its approval")
            }
            RequestProgress::Approved => {
                self.report_waiting(run, &name, &object, current, "the hub's signer")
            }
            RequestProgress::Denied(text) => {
                let message = format!("CertificateSigningRequest {object} was denied: {text}");
                Err(self.record_refusal(run, &name, Reason::CertificateDenied, message))
            }
            RequestProgress::Failed(text) => {
                let message = format!("CertificateSigningRequest {object} failed: {text}");
                Err(self.record_refusal(run, &name, Reason::CertificateFailed, message))
            }
            RequestProgress::Foreign => {
                let message = format!("CertificateSigningRequest {object} was replaced by another");
                Err(self.record_refusal(run, &name, Reason::CertificateMismatch, message))
            }
        }
    }

    /// Creates the CertificateSigningRequest of a request.
    async fn create_request(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        request: &CertificateRequest,
    ) -> Result<(), DeliveryError> {
        let now = self.context.clock.now().wall;
        let body = client_certificate::request_object(request, run.name, &delivery.name, now);
        let created = self
            .context
            .objects
            .create_plain(client_certificate::COLLECTION_PATH, &body);
        created.await.map_err(explain_forbidden)?;
        let object = client_certificate::name_of(request);
        tracing::info!(access = %run.name, request = %object, "a client certificate was requested");
        Ok(())
    }

    /// Accepts an issued certificate only if it is the requested one.
    fn check_certificate(
        &self,
        run: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        pending: PendingRequest,
        grant: Grant,
        chain: &[u8],
    ) -> Result<Issuance, DeliveryError> {
        let now = self.context.clock.now().wall;
        match pending.request.check_issued(chain, now) {
            Ok(certificate) => Ok(Issuance::Issued(Box::new(IssuedKeyPair {
                certificate,
                key: pending.key,
                grant,
            }))),
            Err(mismatch) => {
                let object = client_certificate::name_of(&pending.request);
                let message = format!(
                    "the certificate of CertificateSigningRequest {object} was not written: \
                     {mismatch}"
                );
                Err(self.record_refusal(run, name, Reason::CertificateMismatch, message))
            }
        }
    }

    /// Reads once which requests the hub has of a namespace, so that its limit holds across a
    /// change of the leader.
    async fn restore_request_counts(&self, namespace: &Namespace) -> Result<(), DeliveryError> {
        if self.certificates.counts.lock().restored.contains(namespace) {
            return Ok(());
        }
        let user = match self.credentials.facts.own_username().await {
            Ok(user) => Some(user),
            // Kubernetes has SelfSubjectReview since 1.28.
            Err(HubError::NotFound(_)) => None,
            Err(error @ HubError::Forbidden(_)) => {
                let message = format!(
                    "{error}; bind the ClusterRole system:basic-user to Keyferry's ServiceAccount"
                );
                return Err(DeliveryError::new(Reason::DeliveryForbidden, message));
            }
            Err(error) => return Err(error.into()),
        };
        let times = match user {
            Some(user) => self.earlier_requests(namespace, &user).await,
            None => Ok(Vec::new()),
        };
        let times = match times {
            Ok(times) => times,
            // The roles of an older installation do not let Keyferry list: then this process counts
            // only its own requests.
            Err(HubError::Forbidden(missing)) => {
                tracing::warn!(%namespace, error = %missing, "the certificate requests of an \
                    earlier leader are not counted; fix: apply \
                    examples/install/client-certificates again");
                Vec::new()
            }
            // Everyone who may create requests can make them too many. A tenant's certificates must
            // not wait for that.
            Err(HubError::Unreadable(_)) => {
                tracing::warn!(%namespace, "the certificate requests of an earlier leader are not \
                    counted: too many requests have Keyferry's labels");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        self.certificates
            .counts
            .lock()
            .restore_counts(namespace, times);
        Ok(())
    }

    /// When Keyferry made the requests of a namespace that the hub still has, in order.
    async fn earlier_requests(
        &self,
        namespace: &Namespace,
        user: &str,
    ) -> Result<Vec<Timestamp>, HubError> {
        let now = self.context.clock.now().wall;
        let path = client_certificate::latest_requests_path(namespace, now);
        let counted_time = |request: &CountedRequest| request.counted_time(user, namespace, now);
        let objects = &self.context.objects;
        let times = objects
            .certificate_request_times(&path, MAX_REQUESTS_PER_NAMESPACE, &counted_time)
            .await;
        let mut times = match times {
            // The hub does not have the kind.
            Err(HubError::NotFound(_)) => Vec::new(),
            times => times?,
        };
        times.sort_unstable();
        Ok(times)
    }

    /// Returns the request that is under way for this grant, or makes one.
    fn start_or_continue_request(
        &self,
        run: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        grant: &Grant,
    ) -> Result<PendingRequest, DeliveryError> {
        let wanted = WantedCertificate::of(grant);
        let now = self.context.clock.now().mono;
        let mut requests = self.certificates.last.lock();
        if let Some(last) = requests.get(name) {
            let age = now.saturating_sub(last.made);
            match &last.state {
                RequestState::Pending(pending) if last.wanted == wanted => {
                    return Ok(pending.clone());
                }
                RequestState::Refused {
                    reason,
                    message,
                    requested_at,
                } if last.wanted == wanted && *requested_at == run.stored.record.requested_at => {
                    let left = FAULT_RETRY_INTERVAL.saturating_sub(age);
                    // A denial is final until the spec or requestedAt changes.
                    let again = *reason != Reason::CertificateDenied;
                    if !again || !left.is_zero() {
                        return Err(DeliveryError::new(*reason, message.clone())
                            .with_retry_after(again.then_some(left)));
                    }
                }
                RequestState::Pending(_) | RequestState::Refused { .. } | RequestState::Done => {}
            }
            if age < MIN_REQUEST_INTERVAL {
                return Err(DeliveryError::new(
                    Reason::CertificatePending,
                    "a certificate was requested moments ago; the next request follows",
                )
                .with_retry_after(MIN_REQUEST_INTERVAL - age));
            }
        }
        let wall = self.context.clock.now().wall;
        let counted = self.certificates.counts.lock().count_request(&name.0, wall);
        counted.map_err(|RequestLimit { limit, of, wait }| {
            let text = format!(
                "{limit} certificates of {of} were requested within an hour; the next request \
                 follows"
            );
            DeliveryError::new(Reason::CertificatePending, text).with_retry_after(wait)
        })?;
        let failed = || {
            DeliveryError::new(
                Reason::DeliveryFailed,
                "no key and request for a certificate could be made",
            )
        };
        let key = self.credentials.client_keys.generate().ok_or_else(failed)?;
        let request = CertificateRequest::sign(&key, wanted.user(), wanted.lifetime())
            .map_err(|_| failed())?;
        let pending = PendingRequest {
            request: Arc::new(request),
            key: Arc::new(key),
            created: false,
        };
        let last = LastRequest {
            wanted,
            made: now,
            state: RequestState::Pending(pending.clone()),
        };
        requests.insert(name.clone(), last);
        Ok(pending)
    }

    fn mark_created(&self, name: &(AccessName, ObjectName)) {
        let mut requests = self.certificates.last.lock();
        if let Some(RequestState::Pending(pending)) =
            requests.get_mut(name).map(|last| &mut last.state)
        {
            pending.created = true;
        }
    }

    /// Keeps a final fault, so that the same request is not made over and over.
    fn record_refusal(
        &self,
        run: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        reason: Reason,
        message: String,
    ) -> DeliveryError {
        if let Some(last) = self.certificates.last.lock().get_mut(name) {
            last.state = RequestState::Refused {
                reason,
                message: message.clone(),
                requested_at: run.stored.record.requested_at.clone(),
            };
        }
        let again = (reason != Reason::CertificateDenied).then_some(FAULT_RETRY_INTERVAL);
        DeliveryError::new(reason, message).with_retry_after(again)
    }

    fn report_waiting(
        &self,
        run: &Reconciliation<'_>,
        name: &(AccessName, ObjectName),
        object: &str,
        current: Option<OwnedObject<'_>>,
        what: &str,
    ) -> Result<Issuance, DeliveryError> {
        let target = run.policy.targets.get(&run.access.target);
        let rules = target.and_then(|target| target.client_certificates);
        let automatic = rules.is_some_and(|rules| rules.approval == CertificateApproval::Automatic);
        let now = self.context.clock.now().mono;
        let made = self
            .certificates
            .last
            .lock()
            .get(name)
            .map(|last| last.made);
        let young = made.is_some_and(|made| now.saturating_sub(made) < APPROVAL_GRACE_PERIOD);
        if current.is_some() && automatic && young {
            return Ok(Issuance::Waiting(APPROVAL_POLL_INTERVAL));
        }
        let end = current
            .and_then(|owned| owned.expires_at())
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
        Err(DeliveryError::new(Reason::CertificatePending, message)
            .with_retry_after(APPROVAL_POLL_INTERVAL))
    }

    /// Renders the object with an issued certificate, after its audit record and the recheck of its
    /// grant.
    pub(super) async fn render_with_certificate(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        snapshot: &Snapshot<'_>,
        issued: &IssuedKeyPair,
    ) -> Result<(ObjectBody, TokenReport), DeliveryError> {
        let IssuedKeyPair {
            certificate,
            key,
            grant,
        } = issued;
        let note = TokenNote::of_certificate(certificate);
        self.record_issuance(
            DELIVERY_ROUTE,
            run,
            delivery,
            grant.pair(),
            Some((grant, note)),
        )
        .await?;
        authorise::still_holds(&self.context.policy.current(), &*self.context.live, grant)
            .map_err(|reason| self.explain_refusal(run, grant.pair(), reason))?;
        let renew_at = certificate.renew_at(self.context.clock.now().wall);
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
            DeliveryError::new(Reason::DeliveryFailed, "the object could not be created")
        })?;
        let report = TokenReport {
            token_id: certificate.serial().to_owned(),
            key_id: None,
            expires_at: certificate.not_after(),
            renew_at,
        };
        Ok((body, report))
    }

    fn explain_refusal(
        &self,
        run: &Reconciliation<'_>,
        pair: &Pair,
        reason: Reason,
    ) -> DeliveryError {
        let message = advice::advice_on(reason, pair, run.policy.own_namespace.as_ref());
        DeliveryError::new(
            reason,
            message.unwrap_or_else(|| "no certificate may be issued; see the log".to_owned()),
        )
    }
}

/// Explains why the hub did not accept a request.
fn explain_forbidden(error: HubError) -> DeliveryError {
    match error {
        HubError::Forbidden(_) => DeliveryError::new(
            Reason::DeliveryForbidden,
            format!(
                "{error}; bind the ClusterRole keyferry-client-certificates to Keyferry's \
                 ServiceAccount"
            ),
        ),
        error => error.into(),
    }
}
