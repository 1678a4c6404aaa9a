//! The Flux objects of a namespace that use a kubeconfig object.

use keyferry_api::name::Namespace;
use keyferry_core::delivery::ObjectKind;
use keyferry_hub::client::HubClient;
use serde::Deserialize;

use super::observed::Observed;
use super::{PathStep, StepState};
use crate::ClientError;
use crate::doctor::flux::{FluxKind, FluxObject};
use crate::lenient::or_default;
use crate::object_view::ObjectMetadata;
use crate::objects_of_hub::list_of;
use crate::stated_condition::StatedCondition;

/// The most consumers of one delivered object that are shown.
const MAX_CONSUMERS: usize = 50;

/// A Kustomization or HelmRelease that uses a kubeconfig object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FluxConsumer {
    pub(crate) kind: FluxKind,
    pub(crate) name: String,
    /// The ConfigMap or Secret that it names.
    pub(crate) uses: (ObjectKind, String),
    pub(crate) suspended: bool,
    pub(crate) ready: Option<StatedCondition>,
}

#[derive(Deserialize)]
struct ListedObject {
    #[serde(default, deserialize_with = "or_default")]
    metadata: ObjectMetadata,
    #[serde(flatten)]
    object: FluxObject,
}

/// Lists the objects of one Flux kind that use a kubeconfig object. `Absent` if the hub does not have
/// the kind.
pub(crate) async fn list_consumers(
    client: &HubClient,
    namespace: &Namespace,
    kind: FluxKind,
) -> Observed<Vec<FluxConsumer>> {
    let right = format!("list {} in {namespace}", kind.qualified_resource());
    let read = |listed: ListedObject| consumer(kind, listed);
    let doing = "listing objects of Flux";
    match list_of(client, &kind.list_path(namespace), doing, read).await {
        Ok(consumers) => Observed::Known(consumers),
        Err(ClientError::HubCall { error, .. }) => Observed::of(Err(error), right),
        Err(error) => Observed::Failed(error.to_string().as_str().into()),
    }
}

fn consumer(kind: FluxKind, listed: ListedObject) -> Option<FluxConsumer> {
    let spec = listed.object.spec?;
    let kube_config = spec.kube_config?;
    let uses = match (kube_config.secret_ref, kube_config.config_map_ref) {
        (Some(secret), _) => (ObjectKind::Secret, secret.name),
        (None, Some(map)) => (ObjectKind::ConfigMap, map.name),
        (None, None) => return None,
    };
    let ready = StatedCondition::find(&listed.object.status.conditions, "Ready").cloned();
    Some(FluxConsumer {
        kind,
        name: listed.metadata.name,
        uses,
        suspended: spec.suspend,
        ready,
    })
}

/// Makes the steps of the Flux objects that use one delivered object.
pub(crate) fn consumer_steps(
    lists: &[(FluxKind, Observed<Vec<FluxConsumer>>)],
    namespace: &Namespace,
    object: (ObjectKind, &str),
) -> Vec<PathStep> {
    let mut steps: Vec<PathStep> = Vec::new();
    let mut unread: Vec<PathStep> = Vec::new();
    for (kind, list) in lists {
        match list {
            Observed::Known(consumers) => steps.extend(
                consumers
                    .iter()
                    .filter(|consumer| (consumer.uses.0, consumer.uses.1.as_str()) == object)
                    .map(|consumer| consumer_step(consumer, namespace)),
            ),
            // The hub has no such kind, so nothing of it uses the object.
            Observed::Absent => {}
            other => unread.extend(other.unknown_step(
                kind.as_str(),
                format!("of {namespace}"),
                "which of them use the object is not known",
            )),
        }
    }
    let left_out = steps.len().saturating_sub(MAX_CONSUMERS);
    if left_out > 0 {
        // The worst come first, so that no broken one is among those left out.
        steps.sort_by_key(|step| match step.state {
            StepState::Broken => 0,
            StepState::Unknown => 1,
            StepState::NotAsked => 2,
            StepState::Holds => 3,
        });
        steps.truncate(MAX_CONSUMERS);
        let detail = format!("{left_out} more objects of Flux use it");
        steps.push(PathStep::new("Flux", "", StepState::NotAsked, detail));
    }
    if steps.is_empty() && unread.is_empty() {
        let detail = format!("no Kustomization or HelmRelease of {namespace} uses it");
        steps.push(PathStep::new("Flux", "", StepState::NotAsked, detail));
    }
    steps.extend(unread);
    steps
}

fn consumer_step(consumer: &FluxConsumer, namespace: &Namespace) -> PathStep {
    let step = |state, detail: String| {
        PathStep::new(consumer.kind.as_str(), &consumer.name, state, detail)
    };
    if consumer.suspended {
        return step(
            StepState::NotAsked,
            "it is suspended, so Flux does nothing with it".to_owned(),
        );
    }
    let Some(ready) = &consumer.ready else {
        return step(
            StepState::Unknown,
            "it has no condition Ready: Flux has not reconciled it yet".to_owned(),
        )
        .with_fix("check that Flux's controllers run");
    };
    let said = format!("{}: {}", ready.reason, ready.message);
    match ready.status.as_str() {
        "True" => step(StepState::Holds, said),
        "False" => {
            let lower = consumer.kind.as_str().to_lowercase();
            step(StepState::Broken, said).with_fix(format!(
                "keyferry doctor {lower}/{} -n {namespace} names the first step that fails",
                keyferry_api::foreign_text::visible_ascii(&consumer.name, 253)
            ))
        }
        _ => step(StepState::Unknown, said),
    }
}
