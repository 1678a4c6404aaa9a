//! Approves requests for client certificates under an account of its own: `keyferry
//! approve-certificates`. It decides by what it reads from the hub itself, one request at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{
    Policy, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
};
use keyferry_api::name::Namespace;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::admission_policy::{
    AUTHOR_POLICY, AdmissionPolicy, AdmissionPolicyGap, HubSite, LABELS_POLICY, OWN_SECRETS,
    OWN_TARGETS, RETARGET_POLICY,
};
use keyferry_core::authorise::HubView;
use keyferry_core::client_certificate::{
    COLLECTION_PATH, ListedRequest, NotApproved, RequestSubject, SIGNER_NAME, check_approval,
};
use keyferry_hub::client::{HubClient, ListCursor};
use keyferry_hub::ports::HubError;
use keyferry_platform::clock::Clock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::object_view::ObjectHead;

/// How soon the hub's requests are listed again after a decision.
const MIN_INTERVAL: Duration = Duration::from_secs(2);
/// How soon they are listed again after passes that decided nothing. An access reports its renewal
/// only after a minute.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// How long after its decision a request that was left to a user is decided again at first, and at
/// most. Each decision costs five reads, and a request can wait for a day.
const MIN_LEFT_PAUSE: Duration = Duration::from_secs(4);
const MAX_LEFT_PAUSE: Duration = Duration::from_secs(300);
/// For how long a comparison of the admission policies counts within one pass.
const POLICIES_KNOWN_FOR: Duration = Duration::from_secs(5);
/// Requests per page of a list.
const PAGE_OBJECTS: u32 = 64;
/// Limit of remembered requests. Each one that is left to a user is reported only once.
const MOST_LEFT: usize = 4096;
/// The admission policies that every answer depends on. Without keyferry-author, each author of a
/// TargetAccess could get a certificate for every ServiceAccount that a TargetCluster allows.
/// Without keyferry-retarget, each editor of a TargetCluster could declare one to be the hub, and
/// let it be approved here. Without keyferry-self-targets and keyferry-self-secrets, Keyferry's
/// account could write what this one reads, or get a token of this one.
const NEEDED_POLICIES: [AdmissionPolicy; 4] =
    [AUTHOR_POLICY, RETARGET_POLICY, OWN_TARGETS, OWN_SECRETS];

/// Returns when to list the hub's requests again.
pub fn next_interval(last: Option<Duration>, decided: bool) -> Duration {
    match last {
        Some(last) if !decided => last.saturating_mul(2).min(MAX_INTERVAL),
        _ => MIN_INTERVAL,
    }
}

/// Why requests are not decided.
#[derive(Debug, thiserror::Error)]
pub enum ApproverError {
    /// The hub did not answer.
    #[error("reading {0} of the hub: {1}")]
    Hub(&'static str, HubError),
    /// An admission policy that the answer depends on is missing or changed.
    #[error("the admission policy {0} does not protect the hub: {1}")]
    Unprotected(&'static str, AdmissionPolicyGap),
}

/// Why one request is left to a user.
#[derive(Debug, thiserror::Error)]
enum LeftReason {
    /// The hub did not answer.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Another object has the name.
    #[error("it changed while it was read")]
    Changed,
    /// The policy does not grant it.
    #[error(transparent)]
    NotApproved(#[from] NotApproved),
    /// Only a rule by label grants it, and labels are not protected.
    #[error("a namespaceSelector grants it, and {0}")]
    UnprotectedLabels(ApproverError),
}

/// Whether one request was approved, or why it is left to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// The name of the CertificateSigningRequest.
    pub name: String,
    /// Why it is left to a user; `None` if it was approved.
    pub left: Option<String>,
}

/// Approves the requests of one Keyferry.
pub struct CertificateApprover {
    client: HubClient,
    server: ServerConfiguration,
    requester: String,
    clock: Arc<dyn Clock>,
    left: BTreeMap<String, LeftRequest>,
}

/// A request that was left to a user, and was reported.
struct LeftRequest {
    /// When it is decided again, by the monotonic clock.
    next_decision_at: Duration,
    pause: Duration,
}

/// A list of CertificateSigningRequests, each as the API returns it.
#[derive(Deserialize)]
struct RequestList {
    #[serde(default)]
    items: Vec<Value>,
}

/// A CertificateSigningRequest without its status. It is written back as it was read.
#[derive(Deserialize)]
struct CertificateRequest {
    metadata: Value,
    spec: Value,
}

/// The path of the requests with this field.
fn with_selector(selector: &str) -> String {
    let query: String = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("fieldSelector", selector)
        .finish();
    format!("{COLLECTION_PATH}?{query}")
}

/// The same policy without the rules that select namespaces by labels which keyferry-labels guards.
fn without_guarded_rules(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    for target in policy.targets.values_mut() {
        let rules = target.allow.iter();
        target.allow = rules
            .filter(|rule| !rule.needs_guarded_labels())
            .cloned()
            .collect();
    }
    policy
}

/// The live objects that one decision needs.
#[derive(Default)]
struct LiveView {
    account: Option<(ServiceAccount, Uid)>,
    labels: Option<(Namespace, Arc<BTreeMap<String, String>>)>,
}

impl HubView for LiveView {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        let (known, uid) = self.account.as_ref()?;
        (known == account).then(|| uid.clone())
    }

    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>> {
        let (known, labels) = self.labels.as_ref()?;
        (known == namespace).then(|| Arc::clone(labels))
    }
}

impl CertificateApprover {
    /// Creates an approver of what `requester`, a user name of the hub, asks for. `server` is
    /// Keyferry's own configuration.
    pub fn new(
        client: HubClient,
        server: ServerConfiguration,
        requester: String,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            client,
            server,
            requester,
            clock,
            left: BTreeMap::new(),
        }
    }

    /// Checks that the hub has the admission policies that every answer depends on as they are
    /// shipped.
    ///
    /// # Errors
    /// [`ApproverError`].
    pub async fn check_policies(&self) -> Result<(), ApproverError> {
        for needed in NEEDED_POLICIES {
            self.check_policy(needed).await?;
        }
        Ok(())
    }

    async fn check_policy(&self, expected: AdmissionPolicy) -> Result<(), ApproverError> {
        let mut parts = self.requester.rsplit(':');
        let namespace = parts.nth(1).map(str::to_owned);
        let site = HubSite {
            username: self.requester.clone(),
            namespace: namespace.unwrap_or_else(|| HubSite::of_shipped_manifests().namespace),
            ..HubSite::of_shipped_manifests()
        };
        let name = expected.name();
        let read = async |kind| {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}");
            let read = self.read_object(&path).await;
            let read = read.map_err(|error| ApproverError::Hub("the admission policies", error))?;
            Ok(read.unwrap_or_default())
        };
        let policy = read("validatingadmissionpolicies").await?;
        let binding = read("validatingadmissionpolicybindings").await?;
        expected
            .compare_with_shipped(&policy, &binding, &site)
            .map_err(|gap| ApproverError::Unprotected(name, gap))
    }

    /// Decides on all pending requests, page by page, and returns the decisions that were not
    /// reported before. Approves nothing while [`Self::check_policies`] fails. If a later page
    /// cannot be read, the decisions so far are returned: the next pass fails by itself.
    ///
    /// # Errors
    /// [`ApproverError`] if the requests or the policy cannot be read. A request that cannot be
    /// decided stays pending.
    pub async fn decide_pending(&mut self) -> Result<Vec<ApprovalDecision>, ApproverError> {
        let (mut decisions, mut policies_checked) = (Vec::new(), None::<Duration>);
        // Others can create requests without end. They must delay no decision on those before them.
        let mut cursor = ListCursor::new(PAGE_OBJECTS);
        while !cursor.is_complete() {
            let pending = match self.pending_requests(&mut cursor).await {
                Err(_) if !decisions.is_empty() => break,
                pending => pending?,
            };
            for (name, subject) in pending {
                let now = self.clock.now().mono;
                if !self.is_due(&name, now) {
                    continue;
                }
                let is_known = |at: Duration| now.saturating_sub(at) < POLICIES_KNOWN_FOR;
                if !policies_checked.is_some_and(is_known) {
                    self.check_policies().await?;
                    policies_checked = Some(now);
                }
                decisions.extend(self.decide_request(name, &subject, now).await);
            }
        }
        Ok(decisions)
    }

    /// Reads one page of the requests, and returns those of Keyferry that are not decided, with the
    /// deliveries that they name.
    async fn pending_requests(
        &self,
        cursor: &mut ListCursor,
    ) -> Result<Vec<(String, RequestSubject)>, ApproverError> {
        let path = with_selector(&format!("spec.signerName={SIGNER_NAME}"));
        let what = "CertificateSigningRequests";
        let pending = |request: ListedRequest| request.into_pending(&self.requester);
        let page = self.client.next_page(&path, cursor, what, pending).await;
        page.map_err(|error| ApproverError::Hub("the CertificateSigningRequests", error))
    }

    /// Reads a request whole; null if there is none. By a list, because the approver may not get
    /// one.
    async fn read_request(&self, name: &str) -> Result<Value, HubError> {
        let path = with_selector(&format!("metadata.name={name}"));
        let list: RequestList = self
            .client
            .get_object(&path, "CertificateSigningRequest")
            .await?;
        Ok(list.items.into_iter().next().unwrap_or_default())
    }

    /// Whether a request has not been left to a user a moment ago.
    fn is_due(&self, name: &str, now: Duration) -> bool {
        self.left
            .get(name)
            .is_none_or(|left| left.next_decision_at <= now)
    }

    /// Decides on one request of Keyferry. `None` if the decision was reported before.
    async fn decide_request(
        &mut self,
        name: String,
        subject: &RequestSubject,
        now: Duration,
    ) -> Option<ApprovalDecision> {
        let left = self.try_decide(&name, subject).await.err();
        let left = left.map(|reason| reason.to_string());
        let before = self.left.remove(&name);
        let is_new = before.is_none();
        if left.is_some() {
            if self.left.len() >= MOST_LEFT {
                self.left.clear();
            }
            let pause = before.map_or(MIN_LEFT_PAUSE, |left| {
                left.pause.saturating_mul(2).min(MAX_LEFT_PAUSE)
            });
            let again = now.saturating_add(pause);
            self.left.insert(
                name.clone(),
                LeftRequest {
                    next_decision_at: again,
                    pause,
                },
            );
        }
        (is_new || left.is_none()).then_some(ApprovalDecision { name, left })
    }

    async fn try_decide(&self, name: &str, subject: &RequestSubject) -> Result<(), LeftReason> {
        let object = &self.read_request(name).await?;
        // Another object may have got the name since the list.
        if RequestSubject::of(object, &self.requester).as_ref() != Some(subject) {
            return Err(LeftReason::Changed);
        }
        let (policy, live) = self.read_facts(subject).await?;
        match check_approval(object, subject, &without_guarded_rules(&policy), &live) {
            Err(NotApproved::NotGranted) => {
                check_approval(object, subject, &policy, &live)?;
                let protected = self.check_policy(LABELS_POLICY).await;
                protected.map_err(LeftReason::UnprotectedLabels)?;
            }
            decided => decided?,
        }
        Ok(self.write_approval(object).await?)
    }

    /// Reads the policy for one access, and the live objects that it depends on.
    async fn read_facts(&self, subject: &RequestSubject) -> Result<(Policy, LiveView), HubError> {
        let (namespace, name) = (&subject.access.namespace, &subject.access.name);
        let keyferry = "/apis/keyferry.dev/v1alpha1";
        let mut objects = StoredObjects::default();
        let path = format!("{keyferry}/namespaces/{namespace}/targetaccesses/{name}");
        let Some((name, access)) = self
            .read_object(&path)
            .await?
            .as_ref()
            .and_then(StoredAccess::read)
        else {
            return Ok(Default::default());
        };
        let Some(read) = access.meant().cloned() else {
            return Ok(Default::default());
        };
        objects.accesses.insert(name, access);
        let path = format!("{keyferry}/targetclusters/{}", read.target);
        if let Some((name, target)) = self
            .read_object(&path)
            .await?
            .and_then(|object| StoredTarget::read(&object, &self.server))
        {
            objects.targets.insert(name, target);
        }
        let account = ServiceAccount {
            namespace: namespace.clone(),
            name: read.service_account,
        };
        let path = format!(
            "/api/v1/namespaces/{namespace}/serviceaccounts/{}",
            account.name
        );
        let uid = self
            .read_object(&path)
            .await?
            .and_then(|object| Uid::new(ObjectHead::of(&object).metadata.uid).ok());
        let labels = self
            .read_object(&format!("/api/v1/namespaces/{namespace}"))
            .await?;
        let labels = labels.map(|object| Arc::new(ObjectHead::of(&object).metadata.labels));
        let live = LiveView {
            account: uid.map(|uid| (account, uid)),
            labels: labels.map(|labels| (namespace.clone(), labels)),
        };
        let assembled = objects.assemble(&self.server.cluster_resource_namespace);
        Ok((assembled.policy, live))
    }

    /// Reads an object; `None` if there is none, or if it is being deleted.
    async fn read_object(&self, path: &str) -> Result<Option<Value>, HubError> {
        match self.client.get_object(path, "object").await {
            Ok(object) if ObjectHead::of(&object).metadata.is_deleting() => Ok(None),
            Ok(object) => Ok(Some(object)),
            Err(HubError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Approves exactly the object that was read: it carries its UID and resourceVersion.
    async fn write_approval(&self, object: &Value) -> Result<(), HubError> {
        let request = CertificateRequest::deserialize(object)
            .map_err(|_| HubError::Unreadable("CertificateSigningRequest"))?;
        let name = ObjectHead::of(object).metadata.name;
        let approved = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": request.metadata,
            "spec": request.spec,
            "status": { "conditions": [{
                "type": "Approved", "status": "True", "reason": "KeyferryPolicy",
                "message": "keyferry approve-certificates: a TargetCluster grants it",
                "lastUpdateTime": keyferry_api::condition::format_seconds(self.clock.now().wall),
            }] },
        });
        let path = format!("{COLLECTION_PATH}/{name}/approval");
        let _: Value = self.client.replace(&path, &approved, "approval").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
