//! What a user may do at a target, as a SelfSubjectRulesReview lists it.

use serde::Deserialize;
use serde_json::json;

use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::target_calls::{AccessError, TargetCalls};
use crate::lenient::{or_default, readable_items};

/// Verbs on resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceRule {
    /// The API groups; the core group is empty.
    #[serde(rename = "apiGroups", deserialize_with = "readable_items")]
    pub groups: Vec<String>,
    /// The resources, with their subresources.
    #[serde(deserialize_with = "readable_items")]
    pub resources: Vec<String>,
    /// The names of objects. Empty means all.
    #[serde(rename = "resourceNames", deserialize_with = "readable_items")]
    pub names: Vec<String>,
    /// The verbs.
    #[serde(deserialize_with = "readable_items")]
    pub verbs: Vec<String>,
}

/// Verbs on paths that are no resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PathRule {
    /// The paths.
    #[serde(rename = "nonResourceURLs", deserialize_with = "readable_items")]
    pub paths: Vec<String>,
    /// The verbs.
    #[serde(deserialize_with = "readable_items")]
    pub verbs: Vec<String>,
}

/// A SelfSubjectRulesReview, reduced to its answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RulesReview {
    #[serde(deserialize_with = "or_default")]
    status: Option<RulesReviewStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RulesReviewStatus {
    #[serde(deserialize_with = "readable_items")]
    resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "readable_items")]
    non_resource_rules: Vec<PathRule>,
    #[serde(deserialize_with = "or_default")]
    incomplete: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    evaluation_error: String,
}

/// The rules of one user in one namespace, and in the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    /// Those of resources.
    pub resources: Vec<ResourceRule>,
    /// Those of paths.
    pub paths: Vec<PathRule>,
    /// Whether the target says that rules are missing.
    pub incomplete: bool,
    /// What failed while the target listed them, such as a binding to a missing role, or empty. An
    /// authorizer that cannot list its rules reports this too.
    pub error: String,
}

impl TargetCalls {
    /// Lists the user's rules in a namespace, with those in the whole cluster.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn rules(
        &self,
        namespace: &str,
        impersonated: Option<&ImpersonatedUser>,
    ) -> Result<UserRules, AccessError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": { "namespace": namespace },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let answer: RulesReview = self.post_access_review(path, &review, impersonated).await?;
        let status = answer.status.map(UserRules::from);
        status.ok_or_else(|| AccessError::Unknown("the answer cannot be read".to_owned()))
    }
}

impl From<RulesReviewStatus> for UserRules {
    fn from(status: RulesReviewStatus) -> Self {
        Self {
            resources: status.resource_rules,
            paths: status.non_resource_rules,
            // A list is complete only if the target says so.
            incomplete: status.incomplete != Some(false),
            error: status.evaluation_error,
        }
    }
}

impl UserRules {
    /// Says why rules may be missing; `None` if the target lists them all.
    #[must_use]
    pub fn gap(&self) -> Option<&str> {
        match (self.error.as_str(), self.incomplete) {
            ("", false) => None,
            ("", true) => Some("the target cannot list all rules of the user"),
            (error, _) => Some(error),
        }
    }

    /// Counts the rules of resources that are not those of every user.
    pub(crate) fn own(&self) -> usize {
        let own = |rule: &&ResourceRule| !rule.is_for_everybody();
        self.resources.iter().filter(own).count()
    }
}

impl ResourceRule {
    /// Whether this rule is one that `system:basic-user` grants to every authenticated user.
    fn is_for_everybody(&self) -> bool {
        self.resources
            .iter()
            .all(|name| name.starts_with("selfsubject"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::{RulesReviewStatus, UserRules};

    fn read(status: Value) -> UserRules {
        let status: RulesReviewStatus = serde_json::from_value(status).unwrap();
        status.into()
    }

    #[test]
    fn everybody_may_review_themselves_and_that_is_no_right() {
        let own = |resources: &[&str]| {
            let rules =
                json!({ "resourceRules": [{ "resources": resources, "verbs": ["create"] }] });
            read(rules).own()
        };
        assert_eq!(
            own(&["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
            0
        );
        assert_eq!(own(&["selfsubjectreviews"]), 0);
        assert_eq!(own(&["selfsubjectreviews", "pods"]), 1);
    }

    #[test]
    fn a_list_is_complete_only_if_the_target_says_so() {
        let has_gap = |status| read(status).gap().is_some();
        assert!(!has_gap(
            json!({ "incomplete": false, "resourceRules": null })
        ));
        assert!(has_gap(json!({ "incomplete": true })));
        assert!(has_gap(json!({})));
        let error = json!({ "incomplete": false, "evaluationError": "no role admin" });
        let rules = read(error);
        assert_eq!(rules.gap(), Some("no role admin"));
        // Of a binding to a missing role, so doctor may say that the user has no rights.
        assert!(!rules.incomplete);
    }
}
