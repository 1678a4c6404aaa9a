//! A ClusterProfile, from which the inventory's own library and a provider file make a client.

use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::TestResult;
use serde_json::json;

use super::stage::{AT_TARGET, Stage, file, printed, said};

pub(crate) async fn is_taken(stage: Arc<Stage>) -> TestResult {
    let folder = tempfile::tempdir()?;
    let profile = stage.delivered(
        &json!({ "name": "inventory", "type": "ClusterProfile" }),
        None,
    )?;
    let text = profile.to_string();
    let profile = file(folder.path(), &profile)?;
    // One entry serves every profile. Each profile names its access, and the plugin compares the
    // server with that access's target.
    let providers = |name: &str| {
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "keyferry", "args": ["credential"], "provideClusterInfo": true });
        json!({ "kind": "providers", "providers": [{ "name": name, "execConfig": exec }] })
    };
    let ours = file(folder.path(), &providers("keyferry"))?;
    stage.home(folder.path(), false).await?;
    let output = stage
        .consume(Part::ClusterInventory, &[&profile, &ours], folder.path())
        .await?;
    assert_eq!(printed(&output)?["username"], AT_TARGET);

    let more = stage.delivered_for(
        "more",
        &json!({ "name": "inventory", "type": "ClusterProfile" }),
        None,
    )?;
    let second = folder.path().join("more.json");
    std::fs::write(&second, more.to_string())?;
    let output = stage
        .consume(Part::ClusterInventory, &[&second, &ours], folder.path())
        .await?;
    assert_eq!(printed(&output)?["username"], AT_TARGET);
    let handed_out = stage.handed_out()?;
    assert!(
        ["tenant-a/apps", "tenant-a/more"]
            .iter()
            .all(|access| handed_out.iter().any(|one| one == access)),
        "{handed_out:?}"
    );

    // The author of a profile cannot redirect the token to another server.
    let elsewhere = folder.path().join("elsewhere.json");
    std::fs::write(
        &elsewhere,
        text.replace(&stage.target.url(), &stage.hub.url()),
    )?;
    let output = stage
        .consume(Part::ClusterInventory, &[&elsewhere, &ours], folder.path())
        .await?;
    assert!(
        !output.status.success()
            && said(&output).contains("server is not the address of the target"),
        "{}",
        said(&output)
    );

    let others = file(folder.path(), &providers("another"))?;
    let output = stage
        .consume(Part::ClusterInventory, &[&profile, &others], folder.path())
        .await?;
    assert!(
        !output.status.success() && said(&output).contains("no matching cluster accessor"),
        "{}",
        said(&output)
    );
    Ok(())
}
