//! Approves requests for client certificates under an account of its own: `keyferry
//! approve-certificates`. It decides by what it reads from the hub itself, one request at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{
    Policy, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
};
use keyferry_api::name::Namespace;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::admission_policy::{AUTHOR, AdmissionPolicyGap, HubSite, OWN_SECRETS};
use keyferry_core::authorise::HubView;
use keyferry_core::client_certificate::{COLLECTION, RequestSubject, SIGNER, approve};
use keyferry_hub::client::HubClient;
use keyferry_hub::clock::Clock;
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

/// How often the hub's requests are listed.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// How many requests are read in one answer. A user of the hub can create requests of up to 1 MiB, so
/// the next try after an answer that is too large reads fewer.
const PAGE: usize = 64;
/// Limit of remembered request names. Each request that is left to a user is reported only once.
const MOST_REPORTED: usize = 4096;

/// Why requests are not decided.
#[derive(Debug, thiserror::Error)]
pub enum ApproverError {
    /// The hub did not answer.
    #[error("reading {0} of the hub: {1}")]
    Hub(&'static str, HubError),
    /// Without keyferry-author, each author of a TargetAccess could get a certificate for every
    /// ServiceAccount that a TargetCluster allows. Without keyferry-self-secrets, Keyferry's account
    /// could get a token of the approver itself.
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
    reported: BTreeSet<String>,
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
            reported: BTreeSet::new(),
        }
    }

    /// Checks that the hub has the admission policies `keyferry-author` and `keyferry-self-secrets`
    /// as they are shipped.
    ///
    /// # Errors
    /// [`ApproverError`].
    pub async fn check_policies(&self) -> Result<(), ApproverError> {
        let mut parts = self.requester.rsplit(':');
        let namespace = parts.nth(1).map(str::to_owned);
        let site = HubSite {
            username: self.requester.clone(),
            namespace: namespace.unwrap_or_else(|| HubSite::shipped().namespace),
            ..HubSite::shipped()
        };
        for expected in [AUTHOR, OWN_SECRETS] {
            let name = expected.name();
            let read = async |kind| {
                let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}");
                let read = self.read(&path).await;
                let read =
                    read.map_err(|error| ApproverError::Hub("the admission policies", error))?;
                Ok(read.unwrap_or_default())
            };
            let policy = read("validatingadmissionpolicies").await?;
            let binding = read("validatingadmissionpolicybindings").await?;
            expected
                .check(&policy, &binding, &site)
                .map_err(|gap| ApproverError::Unprotected(name, gap))?;
        }
        Ok(())
    }

    /// Decides on all pending requests, and returns the decisions that were not reported before.
    /// Approves nothing while [`Self::check_policies`] fails.
    ///
    /// # Errors
    /// [`ApproverError`] if the requests or the policy cannot be read. A request that cannot be
    /// decided stays pending.
    pub async fn decide_pending(&mut self) -> Result<Vec<ApprovalDecision>, ApproverError> {
        let mut decisions = Vec::new();
        let (mut limit, mut next) = (PAGE, String::new());
        loop {
            let list = match self.page(limit, &next).await {
                Err(HubError::TooLarge) if limit > 1 => {
                    limit /= 4;
                    continue;
                }
                list => list
                    .map_err(|error| ApproverError::Hub("the CertificateSigningRequests", error))?,
            };
            let items = list["items"].as_array().into_iter().flatten();
            let pending: Vec<(&Value, RequestSubject)> = items
                .filter_map(|object| Some((object, RequestSubject::of(object, &self.requester)?)))
                .collect();
            if !pending.is_empty() {
                self.check_policies().await?;
            }
            for (object, subject) in pending {
                decisions.extend(self.decision(object, &subject).await);
            }
            next = match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => token.to_owned(),
                _ => return Ok(decisions),
            };
        }
    }

    /// Reads requests for the signer, from where the previous page ended.
    async fn page(&self, limit: usize, next: &str) -> Result<Value, HubError> {
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldSelector", &format!("spec.signerName={SIGNER}"))
            .append_pair("limit", &limit.to_string())
            .extend_pairs((!next.is_empty()).then_some(("continue", next)))
            .finish();
        self.client
            .get_object(
                &format!("{COLLECTION}?{query}"),
                "CertificateSigningRequests",
            )
            .await
    }

    /// Decides on one request of Keyferry. `None` if the decision was reported before.
    async fn decision(
        &mut self,
        object: &Value,
        subject: &RequestSubject,
    ) -> Option<ApprovalDecision> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let left = self.decide(object, subject).await.err();
        if left.is_some() && !self.reported.insert(name.to_owned()) {
            return None;
        }
        if self.reported.len() > MOST_REPORTED {
            self.reported.clear();
        }
        Some(ApprovalDecision {
            name: name.to_owned(),
            left,
        })
    }

    async fn decide(&self, object: &Value, subject: &RequestSubject) -> Result<(), String> {
        let failed = |error: HubError| error.to_string();
        let (policy, live) = self.facts(subject).await.map_err(failed)?;
        approve(object, subject, &policy, &live).map_err(|refusal| refusal.to_string())?;
        self.write(object).await.map_err(failed)
    }

    /// Reads the policy for one access, and the live objects that it depends on.
    async fn facts(&self, subject: &RequestSubject) -> Result<(Policy, LiveView), HubError> {
        let (namespace, name) = (&subject.access.namespace, &subject.access.name);
        let keyferry = "/apis/keyferry.dev/v1alpha1";
        let mut objects = StoredObjects::default();
        let path = format!("{keyferry}/namespaces/{namespace}/targetaccesses/{name}");
        let Some((name, access)) = self
            .read(&path)
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
            .read(&path)
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
            .read(&path)
            .await?
            .and_then(|object| Uid::new(object["metadata"]["uid"].as_str()?).ok());
        let labels = self
            .read(&format!("/api/v1/namespaces/{namespace}"))
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
    async fn read(&self, path: &str) -> Result<Option<Value>, HubError> {
        match self.client.get_object::<Value>(path, "object").await {
            Ok(object) if object["metadata"]["deletionTimestamp"].is_null() => Ok(Some(object)),
            Ok(_) | Err(HubError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Approves exactly the object that was read: it carries its UID and resourceVersion.
    async fn write(&self, object: &Value) -> Result<(), HubError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut approved = object.clone();
        approved["apiVersion"] = json!("certificates.k8s.io/v1");
        approved["kind"] = json!("CertificateSigningRequest");
        approved["status"] = json!({ "conditions": [{
            "type": "Approved", "status": "True", "reason": "KeyferryPolicy",
            "message": "keyferry approve-certificates: a TargetCluster grants it",
            "lastUpdateTime": keyferry_api::condition::seconds(self.clock.now().wall),
        }] });
        let path = format!("{COLLECTION}/{name}/approval");
        let _: Value = self.client.replace(&path, &approved, "approval").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use keyferry_hub::clock::SystemClock;

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
        let author = include_str!("../../../examples/admission-policies/author.yaml");
        let own = include_str!("../../../examples/admission-policies/self.yaml");
        let all = [author, own].map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap());
        let needed = ["keyferry-author", "keyferry-self-secrets"];
        all.into_iter()
            .flatten()
            .filter(|object| {
                needed
                    .iter()
                    .any(|name| object["metadata"]["name"] == *name)
            })
            .collect()
    }

    /// The same with one binding that only audits.
    fn hollow(binding: usize) -> Vec<Value> {
        let mut all = shipped();
        all[binding]["spec"]["validationActions"] = json!(["Audit"]);
        all
    }

    #[tokio::test]
    async fn it_starts_only_beside_both_policies() {
        let good = approver(shipped()).await;
        good.check_policies().await.unwrap();
        for (binding, name) in [(1, "keyferry-author"), (3, "keyferry-self-secrets")] {
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
            "spec": { "signerName": SIGNER, "username": REQUESTER },
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
}
