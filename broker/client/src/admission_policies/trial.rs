//! Tries the admission policies of a hub: each by a dry run of what it must refuse.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::admission_policy::{self, AdmissionPolicy, HubSite};
use keyferry_core::{client_certificate, pairing};
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use keyferry_hub::token_request;
use keyferry_keys::managed_issuer::INERT_AUDIENCE;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{AdmissionPolicies, DEFINITION_PATH, Trial};

/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 500;
/// The name of objects that a trial would create.
const TRIAL_NAME: &str = "keyferry-admission-check";
/// A request for a certificate, whose key was not kept.
const TRIAL_REQUEST: &str = include_str!("trial_request.pem");
/// Two audiences that no target trusts, for a request that must be refused because it has two.
pub(super) const TWO_INERT: [&str; 2] = [INERT_AUDIENCE, "keyferry.dev/inert/2"];

/// What is tried, and the hub's answer; or the result, if nothing can be tried.
type Tried = Result<(&'static str, Result<(), HubError>), Trial>;

impl AdmissionPolicies {
    /// Tries a policy. Creates and deletes nothing.
    pub(super) async fn try_policy(&self, admission_policy: &AdmissionPolicy) -> Trial {
        let tried = match *admission_policy {
            admission_policy::PAIRING_POLICY => self.try_unused_audience().await,
            admission_policy::AUDIENCE_POLICY => self.try_hub_audience().await,
            admission_policy::KEPT_POLICY => self.try_deletion().await,
            admission_policy::OWN_SECRETS => self.try_token_secret().await,
            admission_policy::OWN_CERTIFICATES => self.try_certificate(admission_policy).await,
            admission_policy::OWN_ACCOUNT => self.try_two_audiences().await,
            admission_policy::PAIRING_CLOSED => Err(Trial::NotTried(
                "it refuses in closed namespaces while there is no AudiencePairing",
            )),
            _ => Err(Trial::NotTried(
                "it refuses callers that lack a right, and a dry run uses yours",
            )),
        };
        match tried {
            Ok((what, answer)) => judge_trial(admission_policy, what, answer),
            Err(trial) => trial,
        }
    }

    async fn try_unused_audience(&self) -> Tried {
        let audience = own_audience(pairing::UNUSABLE_AUDIENCE)?;
        let answer = token_request::dry_run(&self.client, &self.canary, &audience, None).await;
        Ok(("a token for keyferry.dev/nobody", answer))
    }

    async fn try_hub_audience(&self) -> Tried {
        let audience = self.site.hub_audiences.first();
        let audience = audience.map(String::as_str).unwrap_or_default();
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1",
            "kind": "TargetCluster",
            "metadata": { "name": TRIAL_NAME },
            "spec": {
                "address": "https://keyferry-admission-check.invalid",
                "audience": audience,
            },
        });
        let path = "/apis/keyferry.dev/v1alpha1/targetclusters?dryRun=All";
        let answer = post_trial(&self.client, path, &object).await;
        Ok(("a TargetCluster with the hub's own audience", answer))
    }

    async fn try_deletion(&self) -> Tried {
        // The dry run is set in the body: if there is a body, kube-apiserver reads no options from
        // the query.
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] });
        let path = format!("{DEFINITION_PATH}?dryRun=All");
        let deletion = self
            .client
            .delete::<_, IgnoredAny>(&path, &options, "definition");
        Ok((
            "deleting the definition of AudiencePairing",
            deletion.await.map(drop),
        ))
    }

    async fn try_token_secret(&self) -> Tried {
        let annotations =
            json!({ "kubernetes.io/service-account.name": self.canary.name.as_str() });
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": TRIAL_NAME, "annotations": annotations },
            "type": "kubernetes.io/service-account-token",
        });
        let namespace = &self.site.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/secrets?dryRun=All");
        let answer = post_trial(&self.as_keyferry, &path, &object).await;
        Ok((
            "a Secret that the hub fills with a token, by Keyferry",
            answer,
        ))
    }

    async fn try_certificate(&self, admission_policy: &AdmissionPolicy) -> Tried {
        // The apiserver reads the request before it asks the policy.
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": { "name": TRIAL_NAME },
            "spec": {
                "request": STANDARD.encode(TRIAL_REQUEST),
                "signerName": "keyferry.dev/nobody",
                "usages": ["client auth"],
            },
        });
        let path = format!("{}?dryRun=All", client_certificate::COLLECTION_PATH);
        let answer = post_trial(&self.as_keyferry, &path, &object).await;
        if let Err(HubError::Forbidden(forbidden)) = &answer
            && !forbidden.is_by_policy(admission_policy.policy_name())
        {
            return Err(Trial::NotTried(
                "Keyferry has no right to request certificates",
            ));
        }
        Ok(("a certificate of another signer, by Keyferry", answer))
    }

    async fn try_two_audiences(&self) -> Tried {
        let (inert, beside) = (own_audience(TWO_INERT[0])?, own_audience(TWO_INERT[1])?);
        let account = match bound_account(&self.client, &self.site).await {
            Ok(Some(account)) => account,
            Ok(None) => {
                return Err(Trial::NotTried(
                    "no RoleBinding lets Keyferry mint anywhere yet",
                ));
            }
            Err(error) => return Err(Trial::Failed(format!("listing RoleBindings: {error}"))),
        };
        let answer =
            token_request::dry_run(&self.as_keyferry, &account, &inert, Some(&beside)).await;
        if matches!(answer, Err(HubError::NotFound(_))) {
            return Err(Trial::NotTried(
                "the namespace that was chosen has no ServiceAccount default",
            ));
        }
        Ok(("a token with two audiences, by Keyferry", answer))
    }
}

fn own_audience(audience: &str) -> Result<Audience, Trial> {
    Audience::new(audience)
        .map_err(|_| Trial::Failed("an audience of this program is invalid".to_owned()))
}

/// A RoleBinding, reduced to what says whether it lets Keyferry mint. Tenants create RoleBindings,
/// and decide how long the rest is, so it is skipped while the list is parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MinterBinding {
    metadata: BindingMetadata,
    role_ref: BindingRole,
    subjects: Option<Vec<BindingSubject>>,
}

#[derive(Deserialize)]
struct BindingMetadata {
    namespace: String,
}

#[derive(Deserialize)]
struct BindingRole {
    name: String,
}

#[derive(Deserialize)]
struct BindingSubject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

/// Returns the ServiceAccount `default` of a namespace in which a RoleBinding lets Keyferry mint.
pub(super) async fn bound_account(
    client: &HubClient,
    site: &HubSite,
) -> Result<Option<ServiceAccount>, HubError> {
    let name = site.username.rsplit(':').next().unwrap_or_default();
    let is_ours = |subject: &BindingSubject| {
        subject.kind == "ServiceAccount"
            && subject.name == name
            && subject.namespace == site.namespace
    };
    let bound = |binding: MinterBinding| {
        let is_bound = binding.role_ref.name == "keyferry-minter"
            && binding.subjects.iter().flatten().any(is_ours);
        is_bound.then_some(binding.metadata.namespace)
    };
    let path = "/apis/rbac.authorization.k8s.io/v1/rolebindings";
    let found = client
        .list(path, PAGE_OBJECTS, "RoleBindings", bound)
        .await?;
    Ok(found.into_iter().next().and_then(|namespace| {
        Some(ServiceAccount {
            namespace: Namespace::new(namespace).ok()?,
            name: ObjectName::new("default").ok()?,
        })
    }))
}

/// Creates an object and ignores the response, which may contain a token.
async fn post_trial(client: &HubClient, path: &str, object: &Value) -> Result<(), HubError> {
    client
        .create::<_, IgnoredAny>(path, object, "trial")
        .await
        .map(drop)
}

fn judge_trial(
    admission_policy: &AdmissionPolicy,
    what: &'static str,
    answer: Result<(), HubError>,
) -> Trial {
    match answer {
        Ok(()) => Trial::LetsThrough(what),
        Err(HubError::Forbidden(forbidden))
            if forbidden.is_by_policy(admission_policy.policy_name()) =>
        {
            Trial::Refuses(what)
        }
        Err(error) => Trial::Failed(format!("{what}: {error}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{ComparisonError, PolicyFinding};
    use super::*;

    /// Tenants create RoleBindings, as many and as large as they like.
    #[tokio::test]
    async fn a_binding_on_a_later_page_lets_keyferry_mint() {
        let binding = |role: &str, subject: &str| {
            json!({
                "metadata": { "name": "x", "namespace": "tenant-a" },
                "roleRef": { "name": role },
                "subjects": [{
                    "kind": "ServiceAccount", "name": subject, "namespace": "keyferry-system",
                }],
            })
        };
        let mut large = binding("view", "keyferry");
        large["metadata"]["finalizers"] = json!(["x".repeat(4_000_000)]);
        let first = json!({
            "metadata": { "continue": "more" },
            "items": [large, binding("keyferry-minter", "other")],
        });
        let second = json!({ "items": [binding("keyferry-minter", "keyferry")] });
        let hub = crate::answering_hub::hub(vec![first, second]).await;
        let found = bound_account(&hub, &HubSite::of_shipped_manifests())
            .await
            .unwrap();
        assert_eq!(found.unwrap().to_string(), "tenant-a/default");
    }

    #[test]
    fn only_the_policys_own_refusal_counts() {
        let refused = |by: &str| {
            let message = format!(
                "x is forbidden: ValidatingAdmissionPolicy '{by}' with binding 'b' denied request: \
                 no"
            );
            Err(HubError::Forbidden(message.as_str().into()))
        };
        assert_eq!(
            judge_trial(
                &admission_policy::KEPT_POLICY,
                "x",
                refused("keyferry-kept")
            ),
            Trial::Refuses("x")
        );
        assert!(matches!(
            judge_trial(&admission_policy::KEPT_POLICY, "x", refused("other")),
            Trial::Failed(_)
        ));
        assert!(matches!(
            judge_trial(
                &admission_policy::KEPT_POLICY,
                "x",
                Err(HubError::Forbidden("no right".into()))
            ),
            Trial::Failed(_)
        ));
        assert_eq!(
            judge_trial(&admission_policy::KEPT_POLICY, "x", Ok(())),
            Trial::LetsThrough("x")
        );
        let finding = |shipped: Result<(), ComparisonError>, trial| {
            PolicyFinding {
                name: "a",
                shipped,
                trial,
            }
            .is_well()
        };
        assert!(finding(Ok(()), Trial::Refuses("x")) && finding(Ok(()), Trial::NotTried("x")));
        assert!(
            !finding(Ok(()), Trial::LetsThrough("x"))
                && !finding(Ok(()), Trial::Failed(String::new()))
        );
        assert!(!finding(
            Err(HubError::Unreachable("away".to_owned()).into()),
            Trial::Refuses("x")
        ));
    }
}
