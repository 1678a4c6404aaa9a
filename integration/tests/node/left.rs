//! What is left on the hub after a removal.

use std::collections::BTreeSet;
use std::time::Duration;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;

use super::installation::Way;
use super::setup::Cluster;

const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// What the chart leaves, as docs/guides/hub.md says.
const KEPT: [&str; 8] = [
    "apiservices.apiregistration.k8s.io /v1alpha1.keyferry.dev",
    "audiencepairings.keyferry.dev /keyferry",
    "customresourcedefinitions.apiextensions.k8s.io /audiencepairings.keyferry.dev",
    "customresourcedefinitions.apiextensions.k8s.io /targetaccesses.keyferry.dev",
    "customresourcedefinitions.apiextensions.k8s.io /targetclusters.keyferry.dev",
    "leases.coordination.k8s.io keyferry-system/keyferry",
    "secrets keyferry-system/keyferry-keys",
    "secrets keyferry-system/keyferry-seal",
];

/// Only what docs/guides/hub.md names is left of an installation.
pub(crate) async fn only_the_documented(
    cluster: &Cluster,
    way: Way,
    before: &BTreeSet<String>,
) -> TestResult {
    let kept = match way {
        Way::Chart => KEPT.as_slice(),
        Way::Base => &[],
    };
    // Controllers of the hub remove what belonged to removed objects.
    let left = std::sync::Mutex::new(Vec::new());
    let only_kept = until("nothing else is left", WAIT_LIMIT, || async {
        let after = everything(cluster).await?;
        let now: Vec<String> = after.difference(before).cloned().collect();
        let done = now == kept;
        *left.lock().map_err(|error| error.to_string())? = now;
        Ok(done)
    })
    .await;
    let left = left.into_inner()?;
    only_kept.map_err(|error| format!("{error}: {left:#?}"))?;
    // For the next installation.
    for object in kept {
        if let Some((resource, name)) = object.split_once(' ')
            && !resource.starts_with("apiservices")
        {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            let mut args = vec!["delete", resource, name, "--ignore-not-found"];
            if !namespace.is_empty() {
                args.extend(["-n", namespace]);
            }
            cluster.kubectl(&args).await?;
        }
    }
    Ok(())
}

/// The names of all objects of the hub, without its Events.
pub(crate) async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>, TestError> {
    let resources = [
        "api-resources",
        "--verbs=list",
        "--no-headers",
        "-o",
        "name",
    ];
    let resources = cluster.kubectl(&resources).await?;
    let mut all = BTreeSet::new();
    for resource in resources.lines() {
        if ["events", "events.events.k8s.io"].contains(&resource) {
            continue;
        }
        let columns =
            "-o=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let listed = cluster.kubectl(&["get", resource, "-A", columns]).await?;
        all.extend(listed.lines().map(|name| format!("{resource} {name}")));
    }
    Ok(all)
}
