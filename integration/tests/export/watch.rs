//! Tests `--watch` while the hub fails and its keys change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::process::{Process, ProcessSpec};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait;
use serde_json::Value;

use super::setup::ExportingHub;

const KEYS: &str = "/openid/v1/jwks";

pub(super) async fn keeps_files_through_failures(hub: Arc<ExportingHub>) -> TestResult {
    let proxy = ChaosProxy::in_front_of(&hub.hub).await?;
    let account = hub.account("watching", true, &proxy.url()).await?;
    let folder = hub.folder("watching")?;
    let (out, log) = (folder.join("out"), folder.join("export.log"));
    let arguments = hub.arguments(&folder, account.path(), &["--watch"]);
    let spec = ProcessSpec {
        name: "keyferry export --watch".to_owned(),
        program: hub.binary.path().to_owned(),
        args: arguments.into_iter().map(Into::into).collect(),
        env: Vec::new(),
        log: log.clone(),
    };
    let process = Process::spawn(&spec).await?;
    until("the first files", || Ok(out.join("manifest.json").exists())).await?;
    let before = files(&out)?;

    let unwell = Fault::Status {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        headers: Vec::new(),
        body: b"secret-of-the-upstream".to_vec(),
    };
    let rule = proxy.add(Rule::on(Method::GET, KEYS, unwell));
    until("a failure", || {
        Ok(std::fs::read_to_string(&log)?.contains("the files stay as they are"))
    })
    .await?;
    assert_eq!(files(&out)?, before);

    let mut keys: Value = hub.hub.admin().get(KEYS).await?;
    let mut other = keys["keys"][0].clone();
    other["kid"] = "another".into();
    if let Some(keys) = keys["keys"].as_array_mut() {
        keys.push(other);
    }
    let content_type = HeaderValue::from_static("application/jwk-set+json");
    proxy.add(Rule::on(
        Method::GET,
        KEYS,
        Fault::ReplaceBody {
            body: keys.to_string().into_bytes(),
            content_type,
        },
    ));
    proxy.remove(rule);
    until("the changed keys", || {
        Ok(files(&out)?[0].contains("\"another\""))
    })
    .await?;
    until("the manifest of the changed keys", || {
        Ok(files(&out)?[2] != before[2])
    })
    .await?;
    assert_eq!(
        files(&out)?[1],
        before[1],
        "the discovery document is as it was"
    );
    let said = std::fs::read_to_string(&log)?;
    assert!(
        said.contains("the export goes on") && !said.contains("secret-of-the-upstream"),
        "{said}"
    );
    process.stop(Duration::from_secs(5)).await?;
    Ok(())
}

/// Reads the keys, the discovery document and the manifest.
fn files(out: &Path) -> Result<[String; 3], TestError> {
    let read = |name: &str| std::fs::read_to_string(out.join(name));
    Ok([
        read("openid/v1/jwks")?,
        read(".well-known/openid-configuration")?,
        read("manifest.json")?,
    ])
}

/// Keyferry reads the hub every 15 s, and publishes a new key when it sees it for the second time.
/// The limit covers two pauses, the work and a reading that fails.
async fn until(what: &str, holds: impl Fn() -> Result<bool, TestError>) -> TestResult {
    let limit = Duration::from_secs(90);
    wait::until(what, limit, || std::future::ready(holds())).await
}
