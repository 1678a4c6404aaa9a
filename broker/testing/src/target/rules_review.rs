//! SelfSubjectRulesReview, which only RBAC can answer.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::TargetPolicy;
use super::rbac::{path_rule, resource_rule};
use crate::apiserver::reviews::{AUTHORIZATION, Reviewed, created, read_spec};
use crate::identity::UserInfo;
use crate::status::ApiError;

#[derive(Default, Deserialize)]
#[serde(default)]
struct RulesSpec {
    namespace: String,
}

pub(super) async fn review_own_rules(
    State(target): State<Arc<TargetPolicy>>,
    Extension(user): Extension<UserInfo>,
    headers: HeaderMap,
    body: Bytes,
) -> Reviewed {
    let kind = "SelfSubjectRulesReview";
    let RulesSpec { namespace } = read_spec(&headers, &body, kind)?;
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rbac = target.rbac();
    let (rules, faults) = rbac.rules_for(&user, &namespace);
    let resources: Vec<Value> = rules
        .iter()
        .filter_map(|rule| resource_rule(rule))
        .collect();
    let paths: Vec<Value> = rules.iter().filter_map(|rule| path_rule(rule)).collect();
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": false,
    });
    if !faults.is_empty() {
        status["evaluationError"] = json!(faults);
    }
    Ok(created(AUTHORIZATION, kind, &status))
}
