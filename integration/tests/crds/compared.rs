//! Checks each case at the apiserver of each minor version (strict, dry run) and with `keyferry
//! targets`.

use std::sync::Arc;

use futures::StreamExt;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::Value;

use super::case::{AcceptedBy, Case, read_table};
use super::stage::{NAMESPACE, Stage};

/// The text before the object in a configuration file.
const FILE_HEAD: &str = "\
apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.com
discovery:
  address: '127.0.0.1:1'
  tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key }
api:
  address: '127.0.0.1:2'
  tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key }
health: { address: '127.0.0.1:3' }
---
";
/// The cases that are checked at once.
const MAX_CONCURRENT_CASES: usize = 6;
/// The fewest rows of a table: below, it was not read.
const MIN_ROWS: usize = 100;

pub(super) async fn targets(stage: Arc<Stage>) -> TestResult {
    check_table(&stage, "targets", include_str!("targets.yaml")).await
}

pub(super) async fn urls(stage: Arc<Stage>) -> TestResult {
    check_table(&stage, "urls", include_str!("urls.yaml")).await
}

pub(super) async fn accesses(stage: Arc<Stage>) -> TestResult {
    check_table(&stage, "accesses", include_str!("accesses.yaml")).await
}

async fn check_table(stage: &Stage, name: &str, text: &str) -> TestResult {
    let cases = read_table(text)?;
    let count = cases.len();
    assert!(count > MIN_ROWS, "the table {name} has {count} rows");
    let results: Vec<Result<Vec<String>, TestError>> =
        futures::stream::iter(cases.into_iter().enumerate())
            .map(|(index, case)| check_case(stage, format!("{name}-{index}.yaml"), case))
            .buffered(MAX_CONCURRENT_CASES)
            .collect()
            .await;
    let mut differences = Vec::new();
    for result in results {
        differences.extend(result?);
    }
    assert!(
        differences.is_empty(),
        "{} of {count} cases:\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}

/// The differences from what the row says.
async fn check_case(stage: &Stage, file: String, case: Case) -> Result<Vec<String>, TestError> {
    let api_accepts = matches!(case.accepted_by, AcceptedBy::Both | AcceptedBy::Api);
    let file_accepts = matches!(case.accepted_by, AcceptedBy::Both | AcceptedBy::File);
    let refusal = refusal_of_file(stage, &file, &case.object).await?;
    let mut differences =
        Vec::from_iter(case.difference("the file's reader", file_accepts, refusal));
    for plane in &stage.planes {
        let refusal = refusal_of_api(plane, &case.object).await?;
        differences.extend(case.difference(plane.name(), api_accepts, refusal));
    }
    Ok(differences)
}

impl Case {
    fn difference(&self, reader: &str, accepts: bool, refusal: Option<String>) -> Option<String> {
        let Self {
            change, field, why, ..
        } = self;
        match refusal {
            None if !accepts => Some(format!("{change}: {reader} accepts it; known: {why}")),
            Some(text) if accepts => Some(format!(
                "{change}: {reader} refuses it; known: {why}; {text}"
            )),
            Some(text) if !text.contains(field.as_str()) => {
                Some(format!("{change}: {reader} does not name {field}: {text}"))
            }
            _ => None,
        }
    }
}

async fn refusal_of_file(
    stage: &Stage,
    name: &str,
    object: &Value,
) -> Result<Option<String>, TestError> {
    let file = stage.folder.join(name);
    std::fs::write(&file, format!("{FILE_HEAD}{object}\n"))?;
    let output = stage
        .binary
        .run(&["targets", "--config", &file.display().to_string()], &[])
        .await?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn refusal_of_api(plane: &ControlPlane, object: &Value) -> Result<Option<String>, TestError> {
    let collection = match object["kind"].as_str() {
        Some("TargetCluster") => "targetclusters".to_owned(),
        _ => format!("namespaces/{NAMESPACE}/targetaccesses"),
    };
    let path =
        format!("/apis/keyferry.dev/v1alpha1/{collection}?dryRun=All&fieldValidation=Strict");
    match plane.admin().create(&path, object).await {
        Ok(_) => Ok(None),
        Err(error) if matches!(error.status(), Some(400 | 422)) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
