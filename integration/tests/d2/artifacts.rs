//! The trees of the example as artifacts, with the addresses of this machine instead of the
//! examples', and shorter intervals.

use keyferry_integration::cosign::CosignKey;
use keyferry_integration::oci_registry::OciRegistry;
use keyferry_integration::runner::TestError;

use crate::shipped_fleet::{File, files_below};

/// The tags that staging and production follow.
pub(crate) const TAGS: [&str; 2] = ["latest", "latest-stable"];

/// The addresses of this machine.
pub(crate) struct Addresses {
    pub(crate) registry: String,
    pub(crate) keyferry: String,
    /// Of staging and production.
    pub(crate) targets: [String; 2],
}

impl Addresses {
    /// All files of a folder of the example.
    pub(crate) fn files(&self, folder: &str) -> Result<Vec<File>, TestError> {
        let files = files_below(&format!("examples/d2/{folder}"))?;
        Ok(files
            .into_iter()
            .map(|(path, text)| (path, self.replace(&text)))
            .collect())
    }

    fn replace(&self, text: &str) -> String {
        let [staging, production] = &self.targets;
        text.replace(
            "oci://registry.example.com",
            &format!("oci://{}", self.registry),
        )
        .replace("https://keyferry.example.com:9443", &self.keyferry)
        .replace("https://staging.example.com:6443", staging)
        .replace("https://production.example.com:6443", production)
        .replace("reconcileEvery: 1m", "reconcileEvery: 2s")
        .replace("retryInterval: 1m", "retryInterval: 2s")
        .replace("retryInterval: 30s", "retryInterval: 2s")
        .replace("interval: 10m", "interval: 5s")
        .replace("interval: 1m", "interval: 3s")
        // The hub has no nodes: a Deployment is ready if it wants no Pod.
        .replace("  kustomize:\n    patches:\n", WITHOUT_PODS)
    }
}

const WITHOUT_PODS: &str = "  kustomize:\n    patches:\n      - target:\n          kind: Deployment\n        \
    patch: |\n          - { op: add, path: /spec/replicas, value: 0 }\n";

/// Pushes an artifact, signs it, and only then moves these tags to it, so that Flux never finds it
/// without its signature.
pub(crate) async fn publish(
    registry: &OciRegistry,
    key: &CosignKey,
    repository: &str,
    tags: &[&str],
    files: &[File],
) -> Result<(), TestError> {
    let digest = registry.push(repository, files).await?;
    key.sign(&format!("{}/{repository}@{digest}", registry.host()))
        .await?;
    for tag in tags {
        registry.tag(repository, &digest, tag).await?;
    }
    Ok(())
}
