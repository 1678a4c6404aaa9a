//! What a user may do at a target, as a SelfSubjectRulesReview lists it.

use serde_json::{Value, json};

use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::resources::{items, text, texts};
use crate::doctor::target_calls::{AccessError, TargetCalls};

/// Verbs on resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    /// The API groups; the core group is empty.
    pub groups: Vec<String>,
    /// The resources, with their subresources.
    pub resources: Vec<String>,
    /// The names of objects. Empty means all.
    pub names: Vec<String>,
    /// The verbs.
    pub verbs: Vec<String>,
}

/// Verbs on paths that are no resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The paths.
    pub paths: Vec<String>,
    /// The verbs.
    pub verbs: Vec<String>,
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
        let answer = self.post_access_review(path, &review, impersonated).await?;
        match answer.get("status") {
            Some(status) if status.is_object() => Ok(UserRules::read(status)),
            _ => Err(AccessError::Unknown("the answer cannot be read".to_owned())),
        }
    }
}

impl UserRules {
    fn read(status: &Value) -> Self {
        let resource = |rule: &Value| ResourceRule {
            groups: texts(rule, "apiGroups"),
            resources: texts(rule, "resources"),
            names: texts(rule, "resourceNames"),
            verbs: texts(rule, "verbs"),
        };
        let path = |rule: &Value| PathRule {
            paths: texts(rule, "nonResourceURLs"),
            verbs: texts(rule, "verbs"),
        };
        Self {
            resources: items(status, "resourceRules").map(resource).collect(),
            paths: items(status, "nonResourceRules").map(path).collect(),
            incomplete: status["incomplete"] != json!(false),
            error: text(status, "evaluationError").to_owned(),
        }
    }

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
mod tests {
    use serde_json::json;

    use super::UserRules;

    #[test]
    fn everybody_may_review_themselves_and_that_is_no_right() {
        let own = |resources: &[&str]| {
            let rules =
                json!({ "resourceRules": [{ "resources": resources, "verbs": ["create"] }] });
            UserRules::read(&rules).own()
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
        let has_gap = |status| UserRules::read(&status).gap().is_some();
        assert!(!has_gap(
            json!({ "incomplete": false, "resourceRules": null })
        ));
        assert!(has_gap(json!({ "incomplete": true })));
        assert!(has_gap(json!({})));
        let error = json!({ "incomplete": false, "evaluationError": "no role admin" });
        let rules = UserRules::read(&error);
        assert_eq!(rules.gap(), Some("no role admin"));
        // Of a binding to a missing role, so doctor may say that the user has no rights.
        assert!(!rules.incomplete);
    }
}
