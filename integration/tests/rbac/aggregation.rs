//! Compares the aggregation of ClusterRoles with that of the real controller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rbac_questions::{
    ask_round, generate_objects, read_stored_policy, until_all_count, write_objects, write_round,
};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_kube_rbac::{Policy, PolicyRule, Reading, read_objects};
use serde_json::Value;

use super::{CONTROLLED, RbacFleet, must_match, seed};

/// The cases of the unit test of keyferry-kube-rbac.
const CASES: &str = include_str!("../../../broker/kube-rbac/src/tests/aggregated.yaml");
/// The part whose deletion leaves `everything-but` without a source.
const LAST_SOURCE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/c";
const ROUNDS: u64 = 3;
const QUESTIONS_OF_ROUND: usize = 1000;
/// On a busy machine, the controller takes some seconds.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn aggregation_matches_the_controller(fixture: Arc<RbacFleet>) -> TestResult {
    let plane = fixture.fleet.control_plane(CONTROLLED)?;
    until_settled(&plane, None).await?;

    let cases: Vec<Value> = serde_saphyr::from_multiple(CASES)?;
    let predicted = predict(&plane, &cases).await?;
    write_objects(&plane, cases).await?;
    until_settled(&plane, Some(&predicted)).await?;

    // Rules that the controller wrote go with their last source.
    let mut predicted = read_stored_policy(&plane).await?;
    plane.admin().delete(LAST_SOURCE).await?;
    let last_source = predicted.cluster_role("c").map(|role| role.id.clone());
    predicted.remove(&last_source.ok_or("the ClusterRole c is not there")?);
    predicted.aggregate()?;
    assert!(rules_of(&predicted, "everything-but").is_empty());
    assert!(!rules_of(&predicted, "none-selected").is_empty());
    until_settled(&plane, Some(&predicted)).await?;

    for round in 0..ROUNDS {
        let predicted = predict(&plane, &generate_objects(seed()?, round)).await?;
        write_round(&plane, seed()?, round).await?;
        until_settled(&plane, Some(&predicted)).await?;
        until_all_count(&plane, &format!("settled-{round}")).await?;
        must_match(&ask_round(&plane, seed()?, round, QUESTIONS_OF_ROUND).await?)?;
    }
    Ok(())
}

/// The policy of the control plane after further objects are written and aggregated.
async fn predict(plane: &ControlPlane, objects: &[Value]) -> Result<Policy, TestError> {
    let mut policy = read_stored_policy(plane).await?;
    for object in objects {
        for object in read_objects(object.clone(), Reading::Strict)? {
            policy.insert(object);
        }
    }
    policy.aggregate()?;
    Ok(policy)
}

/// Waits until the stored rules of all aggregated ClusterRoles are the predicted ones, and those that
/// a further aggregation would write.
async fn until_settled(plane: &ControlPlane, predicted: Option<&Policy>) -> TestResult {
    let limit = Instant::now() + SETTLE_LIMIT;
    loop {
        let stored = read_stored_policy(plane).await?;
        let pending = stored.clone().aggregate()?.changed.into_iter();
        let mut differing: Vec<String> = pending.map(|role| role.name).collect();
        let aggregated = stored
            .cluster_roles()
            .filter(|role| role.aggregation.is_some());
        for role in aggregated {
            let name = role.id.name.as_str();
            if predicted.is_some_and(|predicted| rules_of(predicted, name) != role.rules) {
                differing.push(name.to_owned());
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        if Instant::now() > limit {
            let shown = differing.first().map(String::as_str).unwrap_or_default();
            return Err(format!(
                "the controller wrote other rules to {differing:?}; {shown}: {:#?}, predicted {:#?}",
                rules_of(&stored, shown),
                predicted.map(|predicted| rules_of(predicted, shown))
            )
            .into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn rules_of<'a>(policy: &'a Policy, name: &str) -> &'a [PolicyRule] {
    policy.cluster_role(name).map_or(&[], |role| &role.rules)
}
