//! Waits until a control plane acts on a role. Its authorizer uses a watch of roles and bindings,
//! which lags a moment behind what has been written.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ControlPlane, ControlPlaneError};

/// Long enough for a busy machine.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The subject of a check: a user by name, or any member of a group.
#[derive(Clone, Copy, Debug)]
pub enum Whom<'a> {
    /// This user.
    User(&'a str),
    /// A user who is in this group and in no other.
    Group(&'a str),
}

impl ControlPlane {
    /// Waits until a rule of a Role or a ClusterRole is effective, tested by the first thing that
    /// it allows. `namespace` is empty for the whole cluster.
    ///
    /// # Errors
    /// The rule is not effective within 30 s.
    pub async fn until_it_counts(
        &self,
        whom: Whom<'_>,
        namespace: &str,
        rule: &Value,
    ) -> Result<(), ControlPlaneError> {
        self.until_reviewed(spec(whom, namespace, rule), |allowed| allowed)
            .await
    }

    /// Waits until the rule is no longer effective.
    ///
    /// # Errors
    /// The rule is still effective after 30 s.
    pub async fn until_it_counts_no_more(
        &self,
        whom: Whom<'_>,
        namespace: &str,
        rule: &Value,
    ) -> Result<(), ControlPlaneError> {
        self.until_reviewed(spec(whom, namespace, rule), |allowed| !allowed)
            .await
    }

    async fn until_reviewed(
        &self,
        spec: Value,
        as_wanted: impl Fn(bool) -> bool,
    ) -> Result<(), ControlPlaneError> {
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let limit = Instant::now() + WAIT_LIMIT;
        while !as_wanted(self.admin.create(REVIEWS, &review).await?["status"]["allowed"] == true) {
            if Instant::now() > limit {
                return Err(ControlPlaneError::RoleUnseen {
                    name: self.spec.name.clone(),
                    seconds: WAIT_LIMIT.as_secs(),
                    review: review.to_string(),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn spec(whom: Whom<'_>, namespace: &str, rule: &Value) -> Value {
    let first = |field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
    let mut spec = match whom {
        Whom::User(user) => json!({ "user": user }),
        Whom::Group(group) => json!({ "user": "somebody", "groups": [group] }),
    };
    let (path, verb, everything) = (first("nonResourceURLs"), first("verbs"), first("resources"));
    if everything.is_empty() {
        spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb });
        return spec;
    }
    let (resource, subresource) = everything.split_once('/').unwrap_or((&everything, ""));
    spec["resourceAttributes"] = json!({
        "namespace": namespace, "verb": verb, "group": first("apiGroups"), "resource": resource, "subresource": subresource,
        "name": first("resourceNames"),
    });
    spec
}
