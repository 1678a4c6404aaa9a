//! Compares the policy and the binding that a hub has with the shipped ones.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{AdmissionPolicy, HubSite, fill};

/// Maximum depth of a comparison, deeper than any field of a policy in the API.
const MAX_COMPARED_DEPTH: usize = 12;

/// Why an admission policy is not known to be effective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionPolicyGap {
    /// The object does not exist.
    #[error("there is no {kind} {name}")]
    Missing {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The object is being deleted.
    #[error("the {kind} {name} is being deleted")]
    BeingDeleted {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The given object does not have the expected name and kind.
    #[error("the {kind} is not named {name}")]
    OtherName {
        /// The kind of the object.
        kind: &'static str,
        /// The name that it should have.
        name: &'static str,
    },
    /// A field differs from what is shipped with this version.
    #[error("{field} of the {kind} {name} is not as shipped with this version")]
    Differs {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: &'static str,
        /// The path of the field.
        field: String,
    },
    /// The binding only audits or warns, and does not deny.
    #[error("spec.validationActions of the ValidatingAdmissionPolicyBinding {0} do not hold Deny")]
    NotDenied(&'static str),
    /// `hubAudiences` is not a plain list of strings.
    #[error("hubAudiences of the ValidatingAdmissionPolicy {0} is not a list of quoted texts")]
    HubAudiencesUnread(&'static str),
    /// `hubAudiences` lacks an audience that the hub accepts.
    #[error(
        "hubAudiences of the ValidatingAdmissionPolicy {name} lacks {missing}, which this hub uses \
         itself; keyferry admission-policies prints it filled in"
    )]
    HubAudiencesIncomplete {
        /// The name of the policy.
        name: &'static str,
        /// The missing audiences, at most the first three.
        missing: String,
    },
    /// The manifest in this program is invalid; a test excludes this.
    #[error("the shipped manifest of {0} cannot be read")]
    Unreadable(&'static str),
}

const POLICY_KIND: &str = "ValidatingAdmissionPolicy";
const BINDING_KIND: &str = "ValidatingAdmissionPolicyBinding";

impl AdmissionPolicy {
    /// Compares the hub's policy and binding with the shipped ones.
    ///
    /// The objects are as the API returns them (`admissionregistration.k8s.io/v1`), or `null` if
    /// there is none. Ignored are metadata, the texts of refusals, what the apiserver fills in, and
    /// which audiences `hubAudiences` lists: for those see
    /// [`AdmissionPolicy::check_hub_audiences`].
    ///
    /// # Errors
    /// [`AdmissionPolicyGap`] names the first thing that is missing or different.
    pub fn compare_with_shipped(
        &self,
        policy: &Value,
        binding: &Value,
        site: &HubSite,
    ) -> Result<(), AdmissionPolicyGap> {
        let wanted = [
            (POLICY_KIND, self.policy_name, policy, self.policy),
            (BINDING_KIND, self.name, binding, self.binding),
        ];
        for (kind, name, found, manifest) in wanted {
            let mut expected = parse_shipped(kind, name, &fill::for_site(manifest, site))
                .ok_or(AdmissionPolicyGap::Unreadable(name))?;
            require_present(kind, name, found)?;
            // This list differs on each hub, so take the hub's own.
            if let (Some(list), Some(own)) =
                (hub_audiences(found), expected_hub_audiences(&mut expected))
            {
                *own = list.clone();
            }
            if let Some(field) = find_difference("spec", &expected["spec"], &found["spec"], 0) {
                return Err(AdmissionPolicyGap::Differs { kind, name, field });
            }
        }
        if hub_audiences(policy).is_some() {
            self.listed_hub_audiences(policy)?;
        }
        let actions = binding["spec"]["validationActions"].as_array();
        if actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny")) {
            Ok(())
        } else {
            Err(AdmissionPolicyGap::NotDenied(self.name))
        }
    }

    /// Checks that `hubAudiences` contains every audience that the hub is known to use itself. A
    /// policy without that list passes.
    ///
    /// # Errors
    /// [`AdmissionPolicyGap::HubAudiencesIncomplete`], [`AdmissionPolicyGap::HubAudiencesUnread`].
    pub fn check_hub_audiences(
        &self,
        policy: &Value,
        site: &HubSite,
    ) -> Result<(), AdmissionPolicyGap> {
        if hub_audiences(policy).is_none() {
            return Ok(());
        }
        let listed = self.listed_hub_audiences(policy)?;
        let missing: Vec<&str> = site
            .hub_audiences
            .iter()
            .filter(|known| !listed.contains(*known))
            .map(String::as_str)
            .take(3)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(AdmissionPolicyGap::HubAudiencesIncomplete {
            name: self.policy_name,
            missing: missing.join(", "),
        })
    }

    /// Returns the entries of `hubAudiences`.
    ///
    /// # Errors
    /// [`AdmissionPolicyGap::HubAudiencesUnread`] if it is not a list of strings, or if there is
    /// none.
    pub fn listed_hub_audiences(
        &self,
        policy: &Value,
    ) -> Result<BTreeSet<String>, AdmissionPolicyGap> {
        let unread = AdmissionPolicyGap::HubAudiencesUnread(self.policy_name);
        hub_audiences(policy)
            .and_then(Value::as_str)
            .and_then(fill::parse_text_list)
            .ok_or(unread)
    }
}

fn require_present(
    kind: &'static str,
    name: &'static str,
    found: &Value,
) -> Result<(), AdmissionPolicyGap> {
    if found.is_null() {
        return Err(AdmissionPolicyGap::Missing { kind, name });
    }
    if found["metadata"]["name"] != name || found.get("kind").is_some_and(|found| found != kind) {
        return Err(AdmissionPolicyGap::OtherName { kind, name });
    }
    if found["metadata"]["deletionTimestamp"].is_null() {
        Ok(())
    } else {
        Err(AdmissionPolicyGap::BeingDeleted { kind, name })
    }
}

fn parse_shipped(kind: &str, name: &str, manifest: &str) -> Option<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).ok()?;
    objects
        .into_iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The expression of the variable `hubAudiences`.
fn hub_audiences(policy: &Value) -> Option<&Value> {
    let variables = policy["spec"]["variables"].as_array()?;
    variables
        .iter()
        .find(|variable| variable["name"] == "hubAudiences")?
        .get("expression")
}

fn expected_hub_audiences(policy: &mut Value) -> Option<&mut Value> {
    let variables = policy.pointer_mut("/spec/variables")?.as_array_mut()?;
    variables
        .iter_mut()
        .find(|variable| variable["name"] == "hubAudiences")?
        .get_mut("expression")
}

/// Returns the path of the first difference. The shipped value leads, so a deeply nested foreign
/// value costs nothing.
fn find_difference(path: &str, expected: &Value, found: &Value, depth: usize) -> Option<String> {
    let here = || Some(path.to_owned());
    match (expected, found) {
        _ if depth > MAX_COMPARED_DEPTH => here(),
        (Value::Object(expected), Value::Object(found)) => {
            let below = |name: &str| format!("{path}.{name}");
            let wanted = expected.iter().filter(|(name, _)| !is_free(name));
            let differs = |(name, expected): (&String, &Value)| match found.get(name) {
                Some(found) => find_difference(&below(name), expected, found, depth + 1),
                None => Some(below(name)),
            };
            wanted.into_iter().find_map(differs).or_else(|| {
                let more = found
                    .iter()
                    .filter(|(name, _)| !expected.contains_key(*name) && !is_free(name));
                more.into_iter()
                    .find(|(name, value)| !is_nothing(name, value, depth + 1))
                    .map(|(name, _)| below(name))
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let mut pairs = expected.iter().zip(found).enumerate();
            pairs.find_map(|(index, (expected, found))| {
                find_difference(&format!("{path}[{index}]"), expected, found, depth + 1)
            })
        }
        _ if expected == found => None,
        _ => here(),
    }
}

/// Whether a field may differ: texts for people, and the actions. [`check`] checks the actions
/// itself; more of them than `Deny` do no harm.
fn is_free(name: &str) -> bool {
    matches!(
        name,
        "message" | "messageExpression" | "reason" | "validationActions"
    )
}

/// Whether a value is a default of the apiserver or means the same as an absent field: an empty
/// selector selects everything.
fn is_nothing(name: &str, value: &Value, depth: usize) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => {
            depth <= MAX_COMPARED_DEPTH
                && members
                    .iter()
                    .all(|(name, value)| is_nothing(name, value, depth + 1))
        }
        Value::String(text) => matches!(
            (name, text.as_str()),
            ("matchPolicy", "Equivalent") | ("scope", "*")
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
