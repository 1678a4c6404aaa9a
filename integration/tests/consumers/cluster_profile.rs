//! A ClusterProfile, turned into a client by the inventory's own library and a provider file.

use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::TestResult;
use serde_json::json;

use crate::stage::{AT_TARGET, Stage, file, printed, said};

pub(crate) async fn is_taken(stage: Arc<Stage>) -> TestResult {
    let folder = tempfile::tempdir()?;
    let profile = stage.delivered(&json!({ "name": "inventory", "type": "ClusterProfile" }), None)?;
    let profile = file(folder.path(), &profile)?;
    // One entry for all clusters: which one it is stands in the profile.
    let providers = |name: &str| {
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "keyferry", "args": ["credential"], "provideClusterInfo": true });
        json!({ "kind": "providers", "providers": [{ "name": name, "execConfig": exec }] })
    };
    let ours = file(folder.path(), &providers("keyferry"))?;
    let bin = stage.plugin_folder(folder.path()).await?;
    let output = stage.consume(Part::ClusterInventory, &[&profile, &ours], &bin).await?;
    assert_eq!(printed(&output)?["username"], AT_TARGET);

    let others = file(folder.path(), &providers("another"))?;
    let output = stage.consume(Part::ClusterInventory, &[&profile, &others], &bin).await?;
    assert!(!output.status.success() && said(&output).contains("no matching cluster accessor"), "{}", said(&output));
    Ok(())
}
