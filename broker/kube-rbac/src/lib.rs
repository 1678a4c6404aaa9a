//! Decides as kube-apiserver's RBAC authorizer does, over the Roles and bindings of a cluster.
//!
//! Everything here is a pure function of a [`Policy`]. [`read_objects`] reads its objects,
//! [`Policy::decide`] answers one request, [`Policy::subjects_who_can`] turns the question round,
//! and [`Policy::nearest_misses`] says what a refused user lacks. [`Policy::may_bind`] and
//! [`Policy::may_write_role`] are the checks against escalation, and [`Impersonation`] those of
//! the headers. [`Policy::aggregate`] does the work of the controller that fills aggregated
//! ClusterRoles: an apiserver reads only the rules that are stored.
//!
//! An answer is about RBAC alone. Other authorizers of a cluster, such as that of nodes or a
//! webhook, may allow more, and a webhook may also deny.
//!
//! ```
//! use keyferry_kube_rbac::{Attributes, Policy, Reading, ResourceRequest, User, read_objects};
//!
//! let role = serde_json::json!({
//!     "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
//!     "metadata": { "name": "scaler" },
//!     "rules": [{ "apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["patch"] }],
//! });
//! let binding = serde_json::json!({
//!     "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
//!     "metadata": { "name": "scalers", "namespace": "shop" },
//!     "roleRef": {
//!         "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scaler",
//!     },
//!     "subjects": [{ "kind": "ServiceAccount", "name": "app" }],
//! });
//! let mut policy = Policy::default();
//! for document in [role, binding] {
//!     for object in read_objects(document, Reading::Strict)? {
//!         policy.insert(object);
//!     }
//! }
//! let app = User::service_account("shop", "app");
//! let scale = Attributes::resource(
//!     "patch",
//!     ResourceRequest {
//!         group: "apps".to_owned(),
//!         resource: "deployments".to_owned(),
//!         subresource: "scale".to_owned(),
//!         namespace: "shop".to_owned(),
//!         name: "web".to_owned(),
//!     },
//! );
//! let decision = policy.decide(&app, &scale);
//! assert_eq!(
//!     decision.reason(),
//!     "RBAC: allowed by RoleBinding \"scalers/shop\" of ClusterRole \"scaler\" to ServiceAccount \"app/shop\"",
//! );
//! let way = decision.way().unwrap();
//! assert_eq!(way.to_string(), "RoleBinding shop/scalers → ClusterRole scaler, rule 0");
//! # Ok::<(), keyferry_kube_rbac::ReadError>(())
//! ```

mod aggregation;
mod decision;
mod escalation;
mod impersonation;
mod label_selector;
mod near_miss;
mod object;
mod policy;
mod read;
mod request;
mod rule;
mod rule_coverage;
mod user_name;
mod who_can;

pub use aggregation::{AggregatedRole, Aggregation, AggregationFault};
pub use decision::{Decision, Fault, GrantedRules, SUPERUSER_GROUP, Way};
pub use escalation::{EscalationDecision, EscalationRefusal, RoleWrite};
pub use impersonation::{
    Impersonated, Impersonation, ImpersonationMode, ImpersonationModes, ImpersonationRefusal,
    WantedUser,
};
pub use label_selector::{LabelSelector, Operator, Requirement};
pub use near_miss::{Difference, NearMiss};
pub use object::{
    AggregationRule, Binding, ObjectId, ObjectKind, RbacObject, Role, RoleKind, RoleRef,
    RulesOwner, Subject, SubjectKind,
};
pub use policy::Policy;
pub use read::{FieldFault, ReadError, Reading, list_items, read_object, read_objects};
pub use request::{Attributes, RequestTarget, ResourceRequest, User};
pub use rule::PolicyRule;
pub use rule_coverage::{Coverage, rules_cover};
pub use user_name::{node_name, parse_service_account, service_account_groups};
pub use who_can::{Principal, WhoCan};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
