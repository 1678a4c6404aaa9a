//! The public routes of the API listener, and its OpenAPI document against the running server.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};
use tokio::process::Command;

use super::stage::Stage;

pub(super) async fn health_is_public(stage: Arc<Stage>) -> TestResult {
    for path in ["/health", "/healthz", "/livez", "/ready", "/readyz"] {
        let reply = stage.get(path, &[]).await?;
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"), "{path}");
    }
    let json: Value = serde_json::from_str(&stage.get("/openapi.json", &[]).await?.body)?;
    assert_eq!(json["openapi"], "3.1.0");
    assert_eq!(
        json["paths"].as_object().map(serde_json::Map::len),
        Some(13)
    );
    let yaml = stage.get("/openapi.yaml", &[]).await?;
    assert!(yaml.body.starts_with("openapi: "), "{}", yaml.body);
    for path in ["/metrics", "/debug/pprof", "/api/v2/flux/clusters"] {
        assert_eq!(stage.get(path, &[]).await?.status, 404, "{path}");
    }
    Ok(())
}

pub(super) async fn schemathesis(stage: Arc<Stage>) -> TestResult {
    let installed = stage.ground.parts().install(Client::Schemathesis).await?;
    let caller = stage
        .hub
        .token_request("tenant-a", "reconciler", &["keyferry.dev"], 3600)
        .await?
        .token;
    let settings = json!({
        "url": stage.broker.api_url(),
        "certificateAuthority": stage.broker.ca_path(),
        "callerToken": caller,
        "credential": "platform",
        "credentialToken": stage.token("platform"),
        "clusterDNS": "prod-a.fleet.test",
        "namespace": "tenant-a",
    });
    let file = stage.ground.folder().join("schemathesis.json");
    std::fs::write(&file, settings.to_string())?;
    let run = Command::new(&installed.program)
        .args(&installed.arguments)
        .arg(&file)
        .current_dir(stage.ground.folder())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(400), run).await??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("{said}");
    Ok(())
}
