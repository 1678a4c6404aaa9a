//! Argo CD's cluster Secret, read by Argo CD's own code.

use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, AUDIENCE_B, TENANT};
use serde_json::{Value, json};

use super::stage::{AT_TARGET, Stage, file, printed, said};

pub(crate) async fn takes_the_bearer_form(stage: Arc<Stage>) -> TestResult {
    let folder = tempfile::tempdir()?;
    let delivery = json!({ "name": "argo", "type": "ArgoCDSecret", "argoCD": { "project": "tenant-a", "form": "BearerToken" } });
    let secret = stage.delivered(&delivery, Some(&stage.token().await?))?;
    assert_eq!(
        secret["metadata"]["labels"]["argocd.argoproj.io/secret-type"],
        "cluster"
    );
    let output = stage
        .consume(
            Part::ArgoCd,
            &[&file(folder.path(), &secret)?],
            folder.path(),
        )
        .await?;
    is_target_a(&stage, &printed(&output)?, false);

    // Argo CD sends the token of the Secret. The target answers 401 to a token for another
    // audience.
    let other = stage
        .hub
        .token_request(TENANT, ACCOUNT, &[AUDIENCE_B], 600)
        .await?
        .token;
    let secret = stage.delivered(&delivery, Some(&other))?;
    let output = stage
        .consume(
            Part::ArgoCd,
            &[&file(folder.path(), &secret)?],
            folder.path(),
        )
        .await?;
    assert!(
        !output.status.success() && said(&output).contains("Unauthorized"),
        "{}",
        said(&output)
    );
    Ok(())
}

pub(crate) async fn takes_the_exec_form(stage: Arc<Stage>) -> TestResult {
    let folder = tempfile::tempdir()?;
    let secret = stage.delivered(
        &json!({ "name": "argo", "type": "ArgoCDSecret", "argoCD": { "project": "tenant-a" } }),
        None,
    )?;
    let file = file(folder.path(), &secret)?;
    let output = stage.consume(Part::ArgoCd, &[&file], folder.path()).await?;
    assert!(
        !output.status.success() && said(&output).contains("copy the keyferry binary"),
        "without the plugin: {}",
        said(&output)
    );

    // This Argo CD gives the plugin no information about the cluster. Its admin has to accept that.
    stage.home(folder.path(), false).await?;
    let output = stage.consume(Part::ArgoCd, &[&file], folder.path()).await?;
    assert!(
        !output.status.success() && said(&output).contains("names no cluster"),
        "unpinned: {}",
        said(&output)
    );
    let accepting = tempfile::tempdir()?;
    stage.home(accepting.path(), true).await?;
    let output = stage
        .consume(Part::ArgoCd, &[&file], accepting.path())
        .await?;
    is_target_a(&stage, &printed(&output)?, true);
    Ok(())
}

fn is_target_a(stage: &Stage, answer: &Value, exec: bool) {
    assert_eq!(answer["user"]["username"], AT_TARGET, "{answer}");
    assert_eq!(answer["server"], stage.target.url());
    assert_eq!(
        (&answer["name"], &answer["project"], &answer["exec"]),
        (&json!("target-a"), &json!("tenant-a"), &json!(exec))
    );
}
