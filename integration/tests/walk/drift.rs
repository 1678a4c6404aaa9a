//! Tests `keyferry fleet --target-kubeconfigs --prove` at a real target, beside one that records what
//! it is sent.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use http::{StatusCode, header};
use keyferry_integration::control_plane::ControlPlane;
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
    // Records every token, and refuses all, later without an answer.
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let (seen, stalls) = (Arc::clone(&tokens), Arc::new(AtomicBool::new(false)));
    let is_stalling = Arc::clone(&stalls);
    let routes = Router::new().fallback(async move |request: Request| {
        if is_stalling.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
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
    facts_when(&shell, "drift", |facts| {
        facts["behaviour"]["result"] == "matches" && facts["keys"]["result"] == "matches"
    })
    .await?;
    let printed = shell.run(&format!("keyferry trust drift > {FILE}")).await?;
    assert!(printed.status.success(), "{printed:?}");
    let loaded = target.folder().join("authentication/config.yaml");
    replace(&shell.folder().join(FILE), &loaded)?;
    let matches = json!({ "result": "matches" });
    let healthy = facts_when(&shell, "drift", |facts| facts["loadedFile"] == matches).await?;
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
    let refused = facts_when(&shell, "drift", |facts| facts["loadedFile"] == matches).await?;
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
    stalls.store(true, Ordering::Relaxed);
    an_interruption_leaves_nothing_at_the_target(&shell).await?;
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

/// Ctrl-C while one target does not answer and another one was asked.
async fn an_interruption_leaves_nothing_at_the_target(shell: &Shell) -> TestResult {
    const OBJECTS: &str = "kubectl --kubeconfig kubeconfigs/drift get -A -o name \
        clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,secrets,configmaps | sort";
    let before = shell.run(OBJECTS).await?;
    assert!(
        before.status.success() && !before.stdout.is_empty(),
        "{before:?}"
    );
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let command = format!("timeout --preserve-status --signal={signal} 4 {COMMAND}");
        let output = shell.run(&command).await?;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(output.stdout, b"", "{output:?}");
    }
    assert_eq!(shell.run(OBJECTS).await?.stdout, before.stdout);
    Ok(())
}

/// A target that trusts a managed issuer: each edit of its file is named alone, a rewrite is silent, and
/// no token of the hub is sent.
pub(super) async fn compares_a_managed_issuer(
    shell: &Shell,
    plane: &ControlPlane,
    name: &str,
) -> TestResult {
    let folder = shell.folder().join("kubeconfigs");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(plane.admin_kubeconfig(), folder.join(name))?;
    let file = folder.join(format!("{name}.authentication.yaml"));
    std::fs::copy(plane.authentication_config_path()?, &file)?;
    let matches = json!({ "result": "matches" });
    let healthy = facts_when(shell, name, |facts| {
        facts["loadedFile"] == matches && facts["keys"] == matches
    })
    .await?;
    assert_eq!(healthy["file"], matches, "{healthy}");
    let why = healthy["behaviour"]["why"].as_str().unwrap_or_default();
    assert_eq!(why, "no access to it has a token that the hub issues");

    let text = std::fs::read_to_string(&file)?;
    let issuer = format!("/issuers/{name}");
    let edits = [
        (
            "audience",
            "- \"https://".to_owned(),
            "- \"https://else.".to_owned(),
        ),
        ("issuer", issuer.clone(), format!("{issuer}-else")),
        ("prefix", "hub:".to_owned(), "other:".to_owned()),
        ("subjects", format!("{name}-one"), "else-one".to_owned()),
    ];
    let mut lines = Vec::new();
    for (case, from, to) in edits {
        assert!(text.contains(&from), "{case}: {text}");
        std::fs::write(&file, text.replace(&from, &to))?;
        let compared = trust(&facts_now(shell).await?, name);
        let differences = compared["file"]["differences"].as_array().cloned();
        let differences = differences.unwrap_or_default();
        assert!(!differences.is_empty(), "{case}: {compared}");
        assert_eq!(compared["keys"], matches, "{case}: {compared}");
        lines.push(format!("{case}: {differences:?}"));
    }
    eprintln!("drift of a managed issuer: {}", lines.join("\n"));
    for (case, text) in [
        ("comments", format!("# of ours\n{text}# end\n")),
        ("line ends of Windows", text.replace('\n', "\r\n")),
    ] {
        std::fs::write(&file, text)?;
        let compared = trust(&facts_now(shell).await?, name);
        assert_eq!(compared["file"], matches, "{case}: {compared}");
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

async fn facts_now(shell: &Shell) -> Result<Value, TestError> {
    let output = shell.run(COMMAND).await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs the command until the comparisons of a target are as wanted.
async fn facts_when(
    shell: &Shell,
    name: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<Value, TestError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = shell.run(COMMAND).await?;
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let compared = trust(&facts, name);
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
