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
use serde_json::{Value, json};

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
        let mut list: Value = self
            .client
            .get_object(&path, "CertificateSigningRequest")
            .await?;
        let first = list.pointer_mut("/items/0").map(Value::take);
        Ok(first.unwrap_or_default())
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

    async fn try_decide(&self, name: &str, subject: &RequestSubject) -> Result<(), String> {
        let failed = |error: HubError| error.to_string();
        let object = &self.read_request(name).await.map_err(failed)?;
        // Another object may have got the name since the list.
        if RequestSubject::of(object, &self.requester).as_ref() != Some(subject) {
            return Err("it changed while it was read".to_owned());
        }
        let (policy, live) = self.read_facts(subject).await.map_err(failed)?;
        match check_approval(object, subject, &without_guarded_rules(&policy), &live) {
            Err(NotApproved::NotGranted) => {
                let by_selector = check_approval(object, subject, &policy, &live);
                by_selector.map_err(|refusal| refusal.to_string())?;
                let protected = self.check_policy(LABELS_POLICY).await;
                protected.map_err(|error| format!("a namespaceSelector grants it, and {error}"))?;
            }
            decided => decided.map_err(|refusal| refusal.to_string())?,
        }
        self.write_approval(object).await.map_err(failed)
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
            .and_then(|object| Uid::new(object["metadata"]["uid"].as_str()?).ok());
        let labels = self
            .read_object(&format!("/api/v1/namespaces/{namespace}"))
            .await?;
        let labels = labels.map(|object| {
            let labels = object["metadata"]["labels"].as_object().cloned();
            let text = |(key, value): (String, Value)| Some((key, value.as_str()?.to_owned()));
            Arc::new(labels.into_iter().flatten().filter_map(text).collect())
        });
        let live = LiveView {
            account: uid.map(|uid| (account, uid)),
            labels: labels.map(|labels| (namespace.clone(), labels)),
        };
        let assembled = objects.assemble(&self.server.cluster_resource_namespace);
        Ok((assembled.policy, live))
    }

    /// Reads an object; `None` if there is none, or if it is being deleted.
    async fn read_object(&self, path: &str) -> Result<Option<Value>, HubError> {
        match self.client.get_object::<Value>(path, "object").await {
            Ok(object) if object["metadata"]["deletionTimestamp"].is_null() => Ok(Some(object)),
            Ok(_) | Err(HubError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Approves exactly the object that was read: it carries its UID and resourceVersion.
    async fn write_approval(&self, object: &Value) -> Result<(), HubError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut approved = object.clone();
        approved["apiVersion"] = json!("certificates.k8s.io/v1");
        approved["kind"] = json!("CertificateSigningRequest");
        approved["status"] = json!({ "conditions": [{
            "type": "Approved", "status": "True", "reason": "KeyferryPolicy",
            "message": "keyferry approve-certificates: a TargetCluster grants it",
            "lastUpdateTime": keyferry_api::condition::format_seconds(self.clock.now().wall),
        }] });
        let path = format!("{COLLECTION_PATH}/{name}/approval");
        let _: Value = self.client.replace(&path, &approved, "approval").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    use keyferry_api::name::{AccessName, ObjectName};
    use keyferry_core::client_certificate;
    use keyferry_keys::client_certificate::{CertificateRequest, ClientKey};
    use keyferry_platform::clock::SystemClock;

    use super::*;
    use crate::answering_hub::hub;

    const REQUESTER: &str = "system:serviceaccount:keyferry-system:keyferry";
    const SERVER: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n\
        objects: CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\n\
        discovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";

    async fn approver(answers: Vec<Value>) -> CertificateApprover {
        let server = keyferry_api::config::read(SERVER).unwrap().server;
        let clock = Arc::new(SystemClock::start());
        CertificateApprover::new(hub(answers).await, server, REQUESTER.to_owned(), clock)
    }

    /// The shipped policies, each with its binding.
    fn shipped() -> Vec<Value> {
        NEEDED_POLICIES
            .iter()
            .flat_map(|policy| shipped_of(policy.name()))
            .collect()
    }

    /// A shipped policy and its binding.
    fn shipped_of(name: &str) -> Vec<Value> {
        let files = [
            include_str!("../../../examples/admission-policies/author.yaml"),
            include_str!("../../../examples/admission-policies/labels.yaml"),
            include_str!("../../../examples/admission-policies/retarget.yaml"),
            include_str!("../../../examples/admission-policies/self.yaml"),
        ];
        let all = files.map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap());
        let named = |object: &Value| object["metadata"]["name"] == name;
        all.into_iter().flatten().filter(named).collect()
    }

    /// The same with one binding that only audits.
    fn hollow(binding: usize) -> Vec<Value> {
        let mut all = shipped();
        all[binding]["spec"]["validationActions"] = json!(["Audit"]);
        all
    }

    #[tokio::test]
    async fn it_starts_only_beside_the_four_policies() {
        let good = approver(shipped()).await;
        good.check_policies().await.unwrap();
        for (binding, name) in [
            (1, "keyferry-author"),
            (3, "keyferry-retarget"),
            (5, "keyferry-self-targets"),
            (7, "keyferry-self-secrets"),
        ] {
            let bad = approver(hollow(binding)).await;
            let refused = bad.check_policies().await.unwrap_err();
            assert!(
                matches!(refused, ApproverError::Unprotected(which, _) if which == name),
                "{refused}"
            );
        }
        // The hub does not answer, so no policy counts as active.
        let silent = approver(Vec::new()).await;
        let refused = silent.check_policies().await;
        assert!(matches!(refused, Err(ApproverError::Hub(..))));
    }

    #[tokio::test]
    async fn it_decides_nothing_once_the_policy_is_changed() {
        let waiting = json!({ "items": [{
            "metadata": { "name": "keyferry-1", "annotations": {
                "keyferry.dev/access": "tenant-a/charts", "keyferry.dev/delivery": "tls",
            } },
            "spec": { "signerName": SIGNER_NAME, "username": REQUESTER },
        }] });
        let mut answers = vec![waiting];
        answers.extend(hollow(1));
        let looked = approver(answers).await.decide_pending().await;
        assert!(matches!(looked, Err(ApproverError::Unprotected(..))));
        // Without a request that waits, the policy is not even read.
        let nothing = json!({ "items": [] });
        let looked = approver(vec![nothing]).await.decide_pending().await;
        assert_eq!(looked.unwrap(), Vec::new());
    }

    #[test]
    fn an_idle_approver_lists_every_half_minute() {
        let mut interval = next_interval(None, false);
        let mut listed = vec![interval.as_secs()];
        for _ in 0..5 {
            interval = next_interval(Some(interval), false);
            listed.push(interval.as_secs());
        }
        assert_eq!(listed, [2, 4, 8, 16, 30, 30]);
        assert_eq!(next_interval(Some(MAX_INTERVAL), true), MIN_INTERVAL);
    }

    /// A request as Keyferry makes them, and the objects that allow it: by the name of the namespace
    /// or by its labels.
    fn granted(rule: Value) -> (Value, Vec<Value>) {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        let key = ClientKey::from_pkcs8(pkcs8.unwrap().as_ref().to_vec().into());
        let user = "keyferry:tenant-a:reconciler";
        let made = CertificateRequest::sign(&key, user, Duration::from_secs(3600)).unwrap();
        let access = AccessName::parse("tenant-a/charts").unwrap();
        let tls = ObjectName::new("tls").unwrap();
        let mut request =
            client_certificate::request_object(&made, &access, &tls, jiff::Timestamp::UNIX_EPOCH);
        request["spec"]["username"] = json!(REQUESTER);
        let object = |kind: &str, name: &str, namespace: Option<&str>, spec: Value| {
            json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": kind, "spec": spec,
                "metadata": {
                    "name": name, "namespace": namespace, "uid": "u-1", "resourceVersion": "1",
                    "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                },
            })
        };
        let mut allow = rule;
        allow["serviceAccounts"] = json!(["reconciler"]);
        allow["deliveries"] = json!(["ClientCertificateSecret"]);
        let access = json!({
            "targetClusterRef": { "name": "hub" }, "serviceAccountName": "reconciler",
            "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }],
        });
        let target = json!({
            "address": "https://hub.example.com", "audience": "https://hub.example.com",
            "hub": true, "clientCertificates": { "approval": "Automatic" }, "allow": [allow],
        });
        let mut namespace = object("Namespace", "tenant-a", None, Value::Null);
        namespace["metadata"]["labels"] = json!({ "access.keyferry.dev/team": "a" });
        let facts = vec![
            object("TargetAccess", "charts", Some("tenant-a"), access),
            object("TargetCluster", "hub", None, target),
            object(
                "ServiceAccount",
                "reconciler",
                Some("tenant-a"),
                Value::Null,
            ),
            namespace,
        ];
        (request, facts)
    }

    /// What the approver decides with these answers of the hub after its policies and its facts.
    async fn decided(rule: Value, more: Vec<Value>) -> Option<String> {
        let (request, facts) = granted(rule);
        let mut answers = vec![json!({ "items": [&request] })];
        answers.extend(shipped());
        answers.push(json!({ "items": [&request] }));
        answers.extend(facts);
        answers.extend(more);
        let mut decisions = approver(answers).await.decide_pending().await.unwrap();
        assert_eq!(decisions.len(), 1);
        decisions.remove(0).left
    }

    #[tokio::test]
    async fn what_a_selector_grants_needs_the_policy_of_labels() {
        let by_name = || json!({ "namespaces": ["tenant-a"] });
        let labels = || json!({ "access.keyferry.dev/team": "a" });
        let by_label = || json!({ "namespaceSelector": { "matchLabels": labels() } });
        let approved = || json!({ "kind": "CertificateSigningRequest" });
        assert_eq!(decided(by_name(), vec![approved()]).await, None);
        let mut labels = shipped_of("keyferry-labels");
        labels.push(approved());
        assert_eq!(decided(by_label(), labels.clone()).await, None);
        labels[1]["spec"]["validationActions"] = json!(["Audit"]);
        let left = decided(by_label(), labels).await.unwrap();
        assert!(
            left.contains("namespaceSelector") && left.contains("keyferry-labels"),
            "{left}"
        );
    }

    /// Users of the hub can create requests of up to 1 MiB, and more than 3 MiB at once.
    #[tokio::test]
    async fn large_requests_of_others_hold_nothing_up() {
        let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
        let mut large = request.clone();
        large["metadata"]["name"] = json!("large");
        large["metadata"]["finalizers"] = json!(["x".repeat(4_000_000)]);
        large["spec"]["username"] = json!("mallory");
        let mut answers = vec![json!({ "items": [large, &request] })];
        answers.extend(shipped());
        answers.push(json!({ "items": [&request] }));
        answers.extend(facts);
        answers.push(json!({ "kind": "CertificateSigningRequest" }));
        let decisions = approver(answers).await.decide_pending().await.unwrap();
        assert!(
            matches!(&decisions[..], [one] if one.left.is_none()),
            "{decisions:?}"
        );
    }

    /// Requests of others without end must not delay those before them.
    #[tokio::test]
    async fn a_page_is_decided_before_the_next_one_is_read() {
        let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
        let mut answers = vec![json!({ "metadata": { "continue": "more" }, "items": [&request] })];
        answers.extend(shipped());
        answers.push(json!({ "items": [&request] }));
        answers.extend(facts);
        answers.push(json!({ "kind": "CertificateSigningRequest" }));
        // The hub has no answer for the second page.
        let decisions = approver(answers).await.decide_pending().await.unwrap();
        assert!(
            matches!(&decisions[..], [one] if one.left.is_none()),
            "{decisions:?}"
        );
        let first = json!({ "metadata": { "continue": "more" }, "items": [] });
        let failed = approver(vec![first]).await.decide_pending().await;
        assert!(matches!(failed, Err(ApproverError::Hub(..))));
    }

    /// Between the list and the decision, another user can delete a request and create one of its
    /// name.
    #[tokio::test]
    async fn what_is_approved_is_read_again_after_the_list() {
        let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
        for (pointer, value) in [
            ("/spec/username", json!("mallory")),
            (
                "/metadata/annotations/keyferry.dev~1delivery",
                json!("other"),
            ),
            ("/spec/signerName", json!("kubernetes.io/legacy-unknown")),
        ] {
            let mut answers = vec![json!({ "items": [&request] })];
            answers.extend(shipped());
            let mut other = request.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            answers.push(json!({ "items": [other] }));
            answers.extend(facts.clone());
            answers.push(json!({ "kind": "CertificateSigningRequest" }));
            let decisions = approver(answers).await.decide_pending().await.unwrap();
            let left = decisions[0].left.as_deref();
            assert_eq!(left, Some("it changed while it was read"), "{pointer}");
        }
    }

    #[tokio::test]
    async fn a_request_that_is_left_is_not_decided_again_at_once() {
        let (request, mut facts) = granted(json!({ "namespaces": ["tenant-a"] }));
        facts[1]["spec"]["allow"] = json!([]);
        let list = json!({ "items": [&request] });
        let mut answers = vec![list.clone()];
        answers.extend(shipped());
        answers.push(json!({ "items": [&request] }));
        answers.extend(facts);
        // The second pass reads the list, and nothing else.
        answers.push(list);
        let mut approver = approver(answers).await;
        let first = approver.decide_pending().await.unwrap();
        assert!(
            matches!(&first[..], [one] if one.left.is_some()),
            "{first:?}"
        );
        assert_eq!(approver.decide_pending().await.unwrap(), Vec::new());
    }
}
