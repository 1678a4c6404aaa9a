//! Checks each case at the apiserver of each minor version (strict, dry run) and with `keyferry
//! targets`.

use std::sync::Arc;

use futures::StreamExt;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::Value;

use super::case::{Case, Taken};
use super::stage::{NAMESPACE, Stage};
use super::{accesses as access_cases, targets as target_cases, urls as url_cases};

/// The text before the object in a configuration file.
const HEAD: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.com\n\
    discovery: { address: '127.0.0.1:1', tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key } }\n\
    api: { address: '127.0.0.1:2', tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key } }\nhealth: { address: '127.0.0.1:3' }\n---\n";

pub(super) async fn targets(stage: Arc<Stage>) -> TestResult {
    compare(&stage, "targets", target_cases::cases()).await
}

pub(super) async fn urls(stage: Arc<Stage>) -> TestResult {
    compare(&stage, "urls", url_cases::cases()).await
}

pub(super) async fn accesses(stage: Arc<Stage>) -> TestResult {
    compare(&stage, "accesses", access_cases::cases()).await
}

async fn compare(stage: &Stage, name: &str, cases: Vec<Case>) -> TestResult {
    let number = cases.len();
    assert!(number > 20, "the table of {name} is gone");
    let wrong: Vec<Result<Vec<String>, TestError>> =
        futures::stream::iter(cases.into_iter().enumerate())
            .map(|(index, case)| one(stage, name, index, case))
            .buffered(6)
            .collect()
            .await;
    let mut told = Vec::new();
    for one in wrong {
        told.extend(one?);
    }
    assert!(
        told.is_empty(),
        "{} of {number} cases:\n{}",
        told.len(),
        told.join("\n")
    );
    Ok(())
}

/// The differences from what the case expects.
async fn one(
    stage: &Stage,
    table: &str,
    index: usize,
    case: Case,
) -> Result<Vec<String>, TestError> {
    let (api, file, field, why) = match case.taken {
        Taken::Yes => (true, true, "", ""),
        Taken::No(field) => (false, false, field, ""),
        Taken::ByApi(field, why) => (true, false, field, why),
        Taken::ByFile(field, why) => (false, true, field, why),
    };
    let mut told = Vec::new();
    let mut hold = |who: &str, expected: bool, refusal: Option<String>| match refusal {
        None if !expected => told.push(format!("{}: {who} took it; known: {why}", case.changed)),
        Some(said) if expected => told.push(format!(
            "{}: {who} refused it; known: {why}; {said}",
            case.changed
        )),
        Some(said) if !said.contains(field) => told.push(format!(
            "{}: {who} does not name {field}: {said}",
            case.changed
        )),
        _ => {}
    };
    hold(
        "the file's reader",
        file,
        by_file(stage, &format!("{table}-{index}.yaml"), &case.object).await?,
    );
    for plane in &stage.planes {
        hold(plane.name(), api, by_api(plane, &case.object).await?);
    }
    Ok(told)
}

async fn by_file(stage: &Stage, name: &str, object: &Value) -> Result<Option<String>, TestError> {
    let file = stage.folder.join(name);
    std::fs::write(&file, format!("{HEAD}{object}\n"))?;
    let output = stage
        .binary
        .run(&["targets", "--config", &file.display().to_string()], &[])
        .await?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn by_api(plane: &ControlPlane, object: &Value) -> Result<Option<String>, TestError> {
    let place = match object["kind"].as_str() {
        Some("TargetCluster") => "targetclusters".to_owned(),
        _ => format!("namespaces/{NAMESPACE}/targetaccesses"),
    };
    let path = format!("/apis/keyferry.dev/v1alpha1/{place}?dryRun=All&fieldValidation=Strict");
    match plane.admin().create(&path, object).await {
        Ok(_) => Ok(None),
        Err(error) if matches!(error.status(), Some(400 | 422)) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
