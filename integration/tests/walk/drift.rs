//! Tests `keyferry fleet --target-kubeconfigs --prove` at a real target, beside one that records what
//! it is sent.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use http::{StatusCode, header};
use keyferry_integration::https::HttpsServer;
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::TrustingTarget;
use keyferry_integration::world::claims;
use keyferry_integration::world::on_hub::{ISSUER, RECONCILER, audience};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::place::{Here, Shell};

/// How long a reload of the target, or a status of the hub, may take.
const LIMIT: Duration = Duration::from_secs(120);
const COMMAND: &str = "keyferry fleet --target-kubeconfigs kubeconfigs --prove -o json";
const FILE: &str = "kubeconfigs/drift.authentication.yaml";

pub(crate) async fn targets_are_compared_with_what_they_should_trust(place: Here) -> TestResult {
    let world = &place.world;
    let shell = place.shell("drift", &world.broker, "tenant-a").await?;
    let target = world
        .ground
        .target(TrustingTarget {
            name: "drift",
            minor: Minor::newest(),
            issuer: ISSUER,
            audience: &audience("drift"),
            discovery_url: &format!("{}/.well-known/openid-configuration", shell.discovery_url),
            subjects: &[format!("tenant-a:{RECONCILER}")],
        })
        .await?;
    // Records every token, and refuses all.
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let routes = Router::new().fallback(async move |request: Request| {
        let bearer = request.headers().get(header::AUTHORIZATION);
        seen.lock()
            .extend(bearer.and_then(|it| it.to_str().ok()).map(str::to_owned));
        StatusCode::UNAUTHORIZED
    });
    let certificate = world.ground.ca().serving("recorder", &[])?;
    let recorder = HttpsServer::start(&certificate, routes).await?;
    let authority = world.ground.ca().cert_pem();
    for (name, address, authority) in [
        ("drift", target.url(), target.ca_pem()),
        ("recorder", recorder.url(), authority),
    ] {
        let spec = json!({
            "address": address, "caBundle": authority, "audience": audience(name),
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER], "deliveries": ["HTTP"] }],
        });
        world.put_target(name, &spec).await?;
        world.put_access("tenant-a", name, name, &json!({})).await?;
    }
    let folder = shell.folder().join("kubeconfigs");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(target.admin_kubeconfig(), folder.join("drift"))?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": recorder.url(), "certificate-authority": world.ground.ca().cert_path() } }],
        "users": [{ "name": "u", "user": { "token": "a.b.c" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(folder.join("recorder.yaml"), kubeconfig.to_string())?;

    // What trust prints is what the target should have, and the target loads it.
    facts_when(&shell, |facts| {
        facts["behaviour"]["result"] == "matches" && facts["keys"]["result"] == "matches"
    })
    .await?;
    let printed = shell.run(&format!("keyferry trust drift > {FILE}")).await?;
    assert!(printed.status.success(), "{printed:?}");
    let loaded = target.folder().join("authentication/config.yaml");
    replace(&shell.folder().join(FILE), &loaded)?;
    let matches = json!({ "result": "matches" });
    let healthy = facts_when(&shell, |facts| facts["loadedFile"] == matches).await?;
    let all =
        json!({ "file": matches, "loadedFile": matches, "keys": matches, "behaviour": matches });
    assert_eq!(healthy, all);

    // The file changes in Git, then at the target.
    let text = std::fs::read_to_string(shell.folder().join(FILE))?;
    let changed = text.replace(&audience("drift"), "https://changed.keyferry.test");
    assert_ne!(text, changed);
    std::fs::write(shell.folder().join(FILE), changed)?;
    let output = shell.run(COMMAND).await?;
    assert_eq!(output.status.code(), Some(1), "a difference");
    let facts: Value = serde_json::from_slice(&output.stdout)?;
    let named = trust(&facts, "drift")["file"]["differences"].to_string();
    assert!(
        named.contains("issuer.audiences") && !named.contains("claim"),
        "{named}"
    );
    replace(&shell.folder().join(FILE), &loaded)?;
    let refused = facts_when(&shell, |facts| facts["loadedFile"] == matches).await?;
    let why = refused["behaviour"]["differences"].to_string();
    assert!(
        why.contains("refuses the token of tenant-a/reconciler"),
        "{refused}"
    );

    // The other target has its own row, and never saw a token that the first one accepts.
    let row = trust(&facts, "recorder");
    assert!(
        row["loadedFile"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("credentials")),
        "{row}"
    );
    assert!(
        row["behaviour"]["differences"]
            .to_string()
            .contains("refuses the token"),
        "{row}"
    );
    let bearers: Vec<String> = tokens.lock().clone();
    let audiences: Vec<Value> = bearers
        .iter()
        .filter_map(|bearer| claims(bearer.strip_prefix("Bearer ")?).ok())
        .map(|claims| claims["aud"][0].clone())
        .collect();
    assert!(
        audiences.contains(&json!(audience("recorder"))),
        "{audiences:?}"
    );
    assert!(
        audiences
            .iter()
            .any(|it| it.to_string().contains(".proof.invalid")),
        "{audiences:?}"
    );
    assert!(
        !audiences.contains(&json!(audience("drift"))),
        "{audiences:?}"
    );
    for kind in [
        "targetaccesses/drift -n tenant-a",
        "targetaccesses/recorder -n tenant-a",
        "targetclusters/drift",
        "targetclusters/recorder",
    ] {
        shell.run(&format!("kubectl delete {kind}")).await?;
    }
    Ok(())
}

/// Replaces a file as an admin does, at once.
fn replace(from: &Path, to: &Path) -> TestResult {
    let new = to.with_extension("new");
    std::fs::copy(from, &new)?;
    std::fs::rename(new, to)?;
    Ok(())
}

fn trust(facts: &Value, name: &str) -> Value {
    let mut targets = facts["targets"].as_array().into_iter().flatten();
    let target = targets.find(|target| target["name"] == name);
    target
        .map(|target| target["trust"].clone())
        .unwrap_or_default()
}

/// Runs the command until the comparisons of the target are as wanted.
async fn facts_when(shell: &Shell, is_wanted: impl Fn(&Value) -> bool) -> Result<Value, TestError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = shell.run(COMMAND).await?;
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let compared = trust(&facts, "drift");
        if is_wanted(&compared) {
            return Ok(compared);
        }
        if Instant::now() > deadline {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{compared} {said}").into());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
