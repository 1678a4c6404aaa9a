//! Prints the hub's admission policies for one hub and tries them there, with the rights of the
//! user.

mod trial;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::definition;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::admission_policy::{
    self, AdmissionPolicy, AdmissionPolicyGap, FillError, HubSite, MintableAudiences,
};
use keyferry_core::pairing;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_hub::ports::HubError;
use keyferry_hub::token_request;
use serde::Deserialize;
use serde_json::Value;

use self::trial::bound_account;
use crate::lenient::{Lenient, or_default, readable_items};
use crate::object_view::TargetView;
use crate::stated_condition::StatedCondition;
use crate::{ClientError, objects_of_hub};

const ADMISSION_API: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITION_PATH: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/audiencepairings.keyferry.dev";
/// How long the definition must have been served before keyferry-pairing is bound. An apiserver
/// discovers new kinds every 30 s. An apiserver that has the binding but not the kind refuses every
/// TokenRequest.
const KIND_KNOWN_AFTER: Duration = Duration::from_secs(60);

/// Why the policies cannot be printed or tried.
#[derive(Debug, thiserror::Error)]
pub enum PoliciesError {
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Client(#[from] keyferry_hub::client::ClientError),
    /// The hub's issuer cannot be read.
    #[error("reading the hub's issuer: {0}")]
    Issuer(HubError),
    /// The hub's audiences cannot be read.
    #[error("asking the hub for its audiences by a token of {0}: {1}")]
    Audiences(ServiceAccount, HubError),
    /// The state of the definition cannot be read.
    #[error("reading {0}: {1}")]
    Read(&'static str, HubError),
    /// The hub's TargetClusters cannot be read.
    #[error("reading the audiences of the hub's TargetClusters: {0}")]
    Targets(String),
    /// The definition of AudiencePairing cannot be printed.
    #[error("printing the definition of AudiencePairing: {0}")]
    Definition(#[from] serde_saphyr::ser::Error),
    /// A value cannot be written into a policy.
    #[error(transparent)]
    Fill(#[from] FillError),
}

/// The manifests to apply now.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The manifests, in the order in which to apply them.
    pub manifests: String,
    /// If the bindings of keyferry-pairing are left out: how long until they can be applied.
    pub incomplete_for: Option<Duration>,
}

/// The result of trying one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The policy refused this operation.
    Refuses(&'static str),
    /// The hub allowed this operation.
    LetsThrough(&'static str),
    /// The trial failed before it reached the policy.
    Failed(String),
    /// The policy cannot be tried, for this reason.
    NotTried(&'static str),
}

/// Why a policy does not count as the shipped one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComparisonError {
    /// The policy or its binding cannot be read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The policy or its binding differs.
    #[error(transparent)]
    Gap(#[from] AdmissionPolicyGap),
}

/// The findings about one policy.
#[derive(Clone, Debug)]
pub struct PolicyFinding {
    /// The policy's name, or that of its second binding.
    pub name: &'static str,
    /// Whether the policy equals the shipped one and lists the hub's audiences.
    pub shipped: Result<(), ComparisonError>,
    /// The result of trying the policy.
    pub trial: Trial,
}

impl PolicyFinding {
    /// Whether the policy has no problem.
    pub fn is_well(&self) -> bool {
        self.shipped.is_ok() && matches!(self.trial, Trial::Refuses(_) | Trial::NotTried(_))
    }
}

/// The admission policies of one hub.
pub struct AdmissionPolicies {
    client: HubClient,
    /// The same client, impersonating Keyferry's account.
    as_keyferry: HubClient,
    canary: ServiceAccount,
    site: HubSite,
    hub_now: Timestamp,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

impl AdmissionPolicies {
    /// Connects to the hub. Asks it for its own audiences, unless `site` already has some. `now` is
    /// used as the hub's time where the hub is not asked.
    ///
    /// # Errors
    /// [`PoliciesError`].
    pub async fn connect(
        hub: &HubAccess,
        mut site: HubSite,
        canary: ServiceAccount,
        now: Timestamp,
    ) -> Result<Self, PoliciesError> {
        let config = hub.config().await?;
        let mut impersonating = config.clone();
        impersonating.auth_info.impersonate = Some(site.username.clone());
        let (client, as_keyferry) = (HubClient::new(config)?, HubClient::new(impersonating)?);
        let mut hub_now = now;
        if site.hub_audiences.is_empty() {
            let discovery: Result<Discovery, HubError> = client
                .get_object(DISCOVERY_PATH, "discovery document")
                .await;
            let asked = token_request::own_audiences(&client, &canary).await;
            let asked = asked.map_err(|error| PoliciesError::Audiences(canary.clone(), error))?;
            hub_now = asked.now;
            site.hub_audiences
                .insert(discovery.map_err(PoliciesError::Issuer)?.issuer);
            site.hub_audiences.extend(asked.audiences);
        }
        Ok(Self {
            client,
            as_keyferry,
            canary,
            site,
            hub_now,
        })
    }

    /// The hub's own audiences.
    pub fn hub_audiences(&self) -> &BTreeSet<String> {
        &self.site.hub_audiences
    }

    /// Returns the audiences of the hub's TargetClusters, the only ones that Keyferry needs to
    /// mint. Those that Keyferry never mints, because they are not valid, are left out.
    ///
    /// # Errors
    /// [`PoliciesError::Targets`].
    pub async fn used_audiences(&self) -> Result<MintableAudiences, PoliciesError> {
        let targets = match objects_of_hub::target_values(&self.client).await {
            // Before the definition is there, no target is either.
            Err(ClientError::HubCall {
                error: HubError::NotFound(_),
                ..
            }) => Vec::new(),
            targets => targets.map_err(|error| PoliciesError::Targets(error.to_string()))?,
        };
        let audience = |target| Audience::new(TargetView::of(target).spec.audience).ok();
        Ok(MintableAudiences::Only(
            targets.iter().filter_map(audience).collect(),
        ))
    }

    /// Returns what can be applied now without the hub refusing TokenRequests because of it.
    ///
    /// # Errors
    /// [`PoliciesError`].
    pub async fn plan_changes(&self, mintable: &MintableAudiences) -> Result<Plan, PoliciesError> {
        let (policies, bindings) = admission_policy::fill_manifests(&self.site, mintable)?;
        let definition = self
            .read_object(DEFINITION_PATH)
            .await
            .map_err(|error| PoliciesError::Read("the definition of AudiencePairing", error))?;
        let is_defined = !definition.is_null();
        let Lenient(definition) = Lenient::deserialize(definition).unwrap_or_default();
        let incomplete_for = remaining_wait(&definition, self.hub_now);
        let mut manifests = Vec::new();
        if !is_defined {
            manifests.push(definition::print_manifest(&definition::audience_pairing())?);
        }
        if incomplete_for.is_none() {
            let path = format!("{}/{}", pairing::COLLECTION_PATH, pairing::PAIRING_NAME);
            if self
                .read_object(&path)
                .await
                .map_err(|error| PoliciesError::Read("the AudiencePairing", error))?
                .is_null()
            {
                manifests.push(format!(
                    "apiVersion: keyferry.dev/v1alpha1\nkind: AudiencePairing\nmetadata:\n  name: \
                     {}\npairs:\n  {}: []\n",
                    pairing::PAIRING_NAME,
                    pairing::UNUSABLE_AUDIENCE
                ));
            }
        }
        manifests.push(policies);
        if incomplete_for.is_none() {
            manifests.push(bindings);
        }
        Ok(Plan {
            manifests: manifests.join("---\n"),
            incomplete_for,
        })
    }

    /// Compares every policy with the shipped one, and tries those that refuse the user's requests
    /// too. Creates and deletes nothing: every trial is a dry run.
    pub async fn check_policies(&self) -> Vec<PolicyFinding> {
        let mut findings = Vec::new();
        for admission_policy in admission_policy::ALL_POLICIES {
            let shipped = self.compare_policy(&admission_policy).await;
            findings.push(PolicyFinding {
                name: admission_policy.name(),
                shipped,
                trial: self.try_policy(&admission_policy).await,
            });
        }
        findings
    }

    /// Whether Keyferry's account gets a token for an audience of no target: by a dry run, with an
    /// audience that no cluster accepts. `None` where this cannot be tried.
    pub async fn mints_every_audience(&self) -> Option<bool> {
        let unused = Audience::new(trial::TWO_INERT[1]).ok()?;
        let account = bound_account(&self.client, &self.site)
            .await
            .ok()
            .flatten()?;
        match token_request::dry_run(&self.as_keyferry, &account, &unused, None).await {
            Ok(()) => Some(true),
            Err(HubError::Forbidden(forbidden))
                if forbidden.is_by_policy(admission_policy::OWN_ACCOUNT.policy_name()) =>
            {
                Some(false)
            }
            Err(_) => None,
        }
    }

    async fn compare_policy(
        &self,
        admission_policy: &AdmissionPolicy,
    ) -> Result<(), ComparisonError> {
        let policy = self
            .read_object(&format!(
                "{ADMISSION_API}/validatingadmissionpolicies/{}",
                admission_policy.policy_name()
            ))
            .await;
        let binding = self
            .read_object(&format!(
                "{ADMISSION_API}/validatingadmissionpolicybindings/{}",
                admission_policy.name()
            ))
            .await;
        let (policy, binding) = (policy?, binding?);
        admission_policy.compare_with_shipped(&policy, &binding, &self.site)?;
        Ok(admission_policy.check_hub_audiences(&policy, &self.site)?)
    }

    /// Reads an object; null if there is none.
    async fn read_object(&self, path: &str) -> Result<Value, HubError> {
        match self.client.get_object(path, "object").await {
            Err(HubError::NotFound(_)) => Ok(Value::Null),
            other => other,
        }
    }
}

/// A CustomResourceDefinition, reduced to its conditions.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Definition {
    #[serde(deserialize_with = "or_default")]
    status: DefinitionStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionStatus {
    #[serde(deserialize_with = "readable_items")]
    conditions: Vec<StatedCondition>,
}

/// Returns how long until every apiserver of the hub knows the kind, or `None` once all do.
fn remaining_wait(definition: &Definition, now: Timestamp) -> Option<Duration> {
    let established = StatedCondition::find(&definition.status.conditions, "Established");
    let established = established.filter(|condition| condition.status == "True");
    let since: Option<Timestamp> =
        established.and_then(|condition| condition.last_transition_time.parse().ok());
    let known_for = since.map_or(Duration::ZERO, |since| {
        now.duration_since(since).try_into().unwrap_or_default()
    });
    KIND_KNOWN_AFTER
        .checked_sub(known_for)
        .filter(|wait| !wait.is_zero())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remaining_wait(definition: &Value, now: Timestamp) -> Option<Duration> {
        let Lenient(definition) = Lenient::deserialize(definition).unwrap();
        super::remaining_wait(&definition, now)
    }

    #[test]
    fn the_pairing_is_bound_once_every_apiserver_knows_its_kind() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let served = |status: &str| json!({ "status": { "conditions": [{ "type": "Established", "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z" }] } });
        assert_eq!(
            remaining_wait(&Value::Null, at(1000)),
            Some(KIND_KNOWN_AFTER)
        );
        assert_eq!(
            remaining_wait(&served("False"), at(1000)),
            Some(KIND_KNOWN_AFTER)
        );
        assert_eq!(
            remaining_wait(&served("True"), at(110)),
            Some(Duration::from_secs(50))
        );
        assert_eq!(
            remaining_wait(&served("True"), at(50)),
            Some(KIND_KNOWN_AFTER),
            "a clock that is behind"
        );
        assert_eq!(remaining_wait(&served("True"), at(160)), None);
        assert_eq!(remaining_wait(&served("True"), at(1000)), None);
    }
}
