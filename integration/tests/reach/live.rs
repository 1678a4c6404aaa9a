//! The command itself, which reads the hub and the targets and asks the hub about a sample.

use std::collections::BTreeMap;

use keyferry_integration::runner::TestError;
use keyferry_integration::world::on_hub::ISSUER;
use serde_json::{Value, json};

use super::stage::Stage;

/// The answers of `keyferry who-can get deployments.apps` in apps, by target and subject, without
/// those that are no.
///
/// With `config`, targets and accesses are those of this configuration file.
pub(super) async fn read_answers(
    world: &Stage,
    config: Option<&str>,
) -> Result<BTreeMap<(String, String), String>, TestError> {
    let folder = tempfile::tempdir()?;
    let (kubeconfigs, files) = (
        folder.path().join("kubeconfigs"),
        folder.path().join("files"),
    );
    std::fs::create_dir(&kubeconfigs)?;
    for plane in world.planes() {
        let of_target = files.join(plane.name());
        std::fs::create_dir_all(&of_target)?;
        let file = plane.authentication_config_path()?;
        std::fs::copy(file, of_target.join("authentication.yaml"))?;
        let name = format!("{}.yaml", plane.name());
        std::fs::copy(plane.admin_kubeconfig(), kubeconfigs.join(name))?;
    }
    let text = |path: &std::path::Path| path.display().to_string();
    let (hub, kubeconfigs, files) = (
        text(world.hub.admin_kubeconfig()),
        text(&kubeconfigs),
        text(&files),
    );
    let config_file = folder.path().join("config.yaml");
    let mut arguments = vec![
        "who-can",
        "get",
        "deployments.apps",
        "--target-namespace",
        "apps",
        "--all",
        "--kubeconfig",
        &hub,
        "--issuer",
        ISSUER,
        "--target-kubeconfigs",
        &kubeconfigs,
        "--target-files",
        &files,
        "-o",
        "json",
    ];
    let config_path = text(&config_file);
    if let Some(config) = config {
        std::fs::write(&config_file, config)?;
        arguments.extend(["--config", &config_path]);
    }
    let output = world.ground.binary().run(&arguments, &[]).await?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        matches!(output.status.code(), Some(0 | 3)),
        "{printed}{warned}"
    );
    assert_eq!(warned, "");
    let report: Value = serde_json::from_str(&printed)?;
    assert_eq!(report["checked"], 200, "{}", report["notChecked"]);
    assert_eq!(report["disagreements"], Value::Null);
    let answers = report["answers"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_subject = answers.iter().map(|answer| {
        let subject = format!("{} {}", text(&answer["kind"]), text(&answer["subject"]));
        ((text(&answer["target"]), subject), text(&answer["answer"]))
    });
    Ok(by_subject.collect())
}

/// A configuration file with the targets and accesses that the hub has as objects.
pub(super) async fn config_of_hub(world: &Stage) -> Result<String, TestError> {
    let mut text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n\
                    hubName: hub\npublicURL: https://keyferry.test\n\
                    discovery: {tls: {secretName: tls}}\napi: {tls: {secretName: tls}}\n"
        .to_owned();
    for (kind, resource) in [
        ("TargetCluster", "targetclusters"),
        ("TargetAccess", "targetaccesses"),
    ] {
        let path = format!("/apis/keyferry.dev/v1alpha1/{resource}");
        let list = world.hub.admin().get(&path).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            let mut metadata = json!({ "name": item["metadata"]["name"] });
            if kind == "TargetAccess" {
                metadata["namespace"] = item["metadata"]["namespace"].clone();
            }
            let mut spec = item["spec"].clone();
            if let Some(Value::Array(deliveries)) = spec.get_mut("deliveries") {
                // No controller runs on a file, which refuses what it would write.
                deliveries.retain(|delivery| delivery["type"] == "HTTP");
                if deliveries.is_empty() {
                    continue;
                }
            }
            let object = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": kind,
                "metadata": metadata, "spec": spec });
            text.push_str(&format!("---\n{object}\n"));
        }
    }
    Ok(text)
}
