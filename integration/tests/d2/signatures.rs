//! Artifacts without a signature, or signed with another key, under the tag that a cluster follows.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::flux::{condition, until_ready};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use serde_json::{Value, json};

use super::artifacts::{TAGS, publish};
use super::fleet::{D2, TENANTS, config_map, oci_repository};
use super::tenants::one_config_map;
use crate::shipped_fleet::{File, kustomization};

const MINUTE: Duration = Duration::from_secs(60);
const REPOSITORY: &str = "fleet/tenant-b/apps";

pub(crate) async fn do_not_run(d2: Arc<D2>) -> TestResult {
    let tenant = TENANTS[1];
    d2.until_settled().await?;
    let before = until_ready(&d2.hub, &kustomization(tenant, "apps-staging")).await?;

    let unsigned = d2
        .registry
        .push(REPOSITORY, &with(&d2, "unsigned")?)
        .await?;
    d2.registry.tag(REPOSITORY, &unsigned, TAGS[0]).await?;
    until_refused(&d2, &unsigned).await?;

    let other = d2.other_key().await?;
    let forged = with(&d2, "forged")?;
    publish(&d2.registry, &other, REPOSITORY, &TAGS[..1], &forged).await?;
    let forged = d2.registry.push(REPOSITORY, &forged).await?;
    until_refused(&d2, &forged).await?;

    let staging = d2.targets[0].admin();
    for name in ["unsigned", "forged"] {
        assert!(!staging.exists(&at_target(name)).await?, "{name} ran");
    }
    let after = d2
        .hub
        .admin()
        .get(&kustomization(tenant, "apps-staging"))
        .await?;
    assert_eq!(
        after["status"]["lastAppliedRevision"],
        before["status"]["lastAppliedRevision"]
    );

    // The tag recovers with the next artifact of the platform's key.
    let signed = with(&d2, "signed")?;
    publish(&d2.registry, &d2.key, REPOSITORY, &TAGS[..1], &signed).await?;
    read_now(&d2, "signed").await?;
    until_object(staging, &at_target("signed"), "there", MINUTE, |_| true).await?;
    for name in ["unsigned", "forged"] {
        assert!(!staging.exists(&at_target(name)).await?, "{name} ran");
    }
    Ok(())
}

/// Waits until source-controller refused the artifact of this digest for its signature.
async fn until_refused(d2: &D2, digest: &str) -> Result<(), TestError> {
    let path = oci_repository(TENANTS[1], "apps-staging");
    read_now(d2, digest).await?;
    let refused = |object: &Value| {
        let (verified, ready) = (
            condition(object, "SourceVerified"),
            condition(object, "Ready"),
        );
        let said = verified["message"].as_str().unwrap_or_default();
        verified["status"] == "False"
            && verified["reason"] == "VerificationError"
            && ready["status"] == "False"
            && said.contains("no matching signatures")
            && said.contains(digest)
    };
    let object = until_object(d2.hub.admin(), &path, "refused", MINUTE, refused).await?;
    let kept = object["status"]["artifact"]["digest"].as_str();
    assert!(
        kept.is_none_or(|kept| !digest.contains(kept)),
        "the artifact of {digest} was stored: {object}"
    );
    let revision = object["status"]["artifact"]["revision"].as_str();
    assert!(
        revision.is_none_or(|revision| !revision.contains(digest)),
        "the artifact of {digest} was stored: {object}"
    );
    Ok(())
}

/// Makes source-controller read the tag now: after failures it waits longer each time.
async fn read_now(d2: &D2, at: &str) -> Result<(), TestError> {
    let path = oci_repository(TENANTS[1], "apps-staging");
    let annotation = json!({ "reconcile.fluxcd.io/requestedAt": at });
    let change = json!({ "metadata": { "annotations": annotation } });
    d2.hub.admin().patch(&path, &change).await?;
    Ok(())
}

/// tenant-b's tree with one more ConfigMap in staging.
fn with(d2: &D2, name: &str) -> Result<Vec<File>, TestError> {
    let mut files = d2.addresses.files("apps/tenant-b")?;
    files.push((
        format!("staging/{name}.yaml"),
        one_config_map(TENANTS[1], name),
    ));
    Ok(files)
}

fn at_target(name: &str) -> String {
    config_map("tenant-b-apps", name)
}
