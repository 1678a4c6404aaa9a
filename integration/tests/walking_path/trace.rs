//! `keyferry trace` joins the audit logs that a real hub, Keyferry and a real target wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, Access, Broker, BrokerSpec, Subject, TENANT, Target, World, caller_token,
    claims, let_mint,
};
use serde_json::{Value, json};

use super::whoami;

/// Longer than the tolerance for clocks and for a target's cache of accepted tokens.
const BEYOND_TOLERANCE: Duration = Duration::from_secs(12);

pub(super) async fn tokens_are_traced_through_the_logs(world: Arc<World>) -> TestResult {
    let files = Files::of(&world)?;
    let broker = start_audited(&world, &files.audit).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let issued = broker.exchange(&caller, "tenant-a/a").await?.token()?;
    whoami(&world.target_a().as_bearer(&issued)?).await?;
    // A tool rotates Keyferry's file, and sends no signal.
    std::fs::rename(&files.audit, &files.rotated)?;
    assert_eq!(
        broker.exchange(&caller, "tenant-a/a").await?.token()?,
        issued
    );

    let (code, report) = files.trace(&world, Some(&issued), &[]).await?;
    let token = &report["tokens"][0];
    assert_eq!((code, &token["notes"]), (Some(0), &json!([])), "{report:#}");
    assert_eq!(token["recorded"]["records"], 2, "{report:#}");
    assert_eq!(token["recorded"]["target"], "target-a");
    assert_eq!(token["requested"]["account"], "tenant-a/reconciler");
    assert_eq!(
        token["requested"]["user"],
        "system:serviceaccount:keyferry-traced:keyferry"
    );
    assert_eq!(
        token["used"]["user"],
        "hub:system:serviceaccount:tenant-a:reconciler"
    );

    revoke_key(&world, &issued).await?;
    tokio::time::sleep(BEYOND_TOLERANCE).await;
    // The target has the key from the world's other Keyferry, so it still accepts the token.
    whoami(&world.target_a().as_bearer(&issued)?).await?;
    let by_admin = token_of_admin(&world).await?;
    whoami(&world.target_a().as_bearer(&by_admin)?).await?;
    let (code, report) = files.trace(&world, Some(&by_admin), &[]).await?;
    assert_eq!(
        (code, codes_of(&report, &by_admin)?),
        (Some(3), vec!["RecordUnknown".to_owned()]),
        "Keyferry has written nothing since: {report:#}"
    );

    tokio::time::sleep(BEYOND_TOLERANCE).await;
    let refused = broker.exchange(&caller, "tenant-a/absent").await?;
    assert_ne!(refused.status, 200, "{}", refused.body);
    let (code, report) = files.trace(&world, Some(&by_admin), &[]).await?;
    assert_eq!(
        (code, codes_of(&report, &by_admin)?),
        (Some(1), vec!["NotRecorded".to_owned()]),
        "{report:#}"
    );
    let keys = files.write_keys(&world).await?;
    let with_keys = ["--keys", keys.as_str()];
    let (code, report) = files.trace(&world, Some(&issued), &with_keys).await?;
    assert_eq!(
        (code, codes_of(&report, &issued)?),
        (Some(1), vec!["UsedAfterRevocation".to_owned()]),
        "{report:#}"
    );
    let (code, report) = files.trace(&world, None, &with_keys).await?;
    assert_eq!(code, Some(1), "{report:#}");
    for (token, expected) in [(&issued, "UsedAfterRevocation"), (&by_admin, "NotRecorded")] {
        assert_eq!(codes_of(&report, token)?, [expected], "{report:#}");
    }
    let text = report.to_string();
    assert!(
        !text.contains(&issued) && !text.contains(&by_admin),
        "a token is printed"
    );
    Ok(())
}

/// The logs, and where Keyferry's file and keys are.
struct Files {
    hub: String,
    target: String,
    audit: PathBuf,
    rotated: PathBuf,
    keys: PathBuf,
}

impl Files {
    fn of(world: &World) -> Result<Self, TestError> {
        let folder = world.fleet().folder();
        let log = |path: Option<&Path>| path.map(|path| path.display().to_string());
        Ok(Self {
            hub: log(world.hub().audit_log()).ok_or("the hub has no audit log")?,
            target: log(world.target_a().audit_log()).ok_or("the target has no audit log")?,
            audit: folder.join("traced.jsonl"),
            rotated: folder.join("traced.jsonl.1"),
            keys: folder.join("traced-keys.json"),
        })
    }

    /// Runs `keyferry trace` for one token or for all; returns its exit code and its document.
    async fn trace(
        &self,
        world: &World,
        token: Option<&str>,
        more: &[&str],
    ) -> Result<(Option<i32>, Value), TestError> {
        let id = token.map(token_id).transpose()?;
        let (audit, rotated) = (
            self.audit.display().to_string(),
            self.rotated.display().to_string(),
        );
        let mut arguments = vec![
            "trace",
            "-o",
            "json",
            "--hub-audit",
            &self.hub,
            "--target-audit",
            &self.target,
            "--audit",
            &rotated,
            "--audit",
            &audit,
        ];
        arguments.extend(more);
        arguments.extend(id.as_deref());
        let answer = world.binary().run(&arguments, &[]).await?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        let report = serde_json::from_slice(&answer.stdout).map_err(|_| said)?;
        Ok((answer.status.code(), report))
    }

    async fn write_keys(&self, world: &World) -> Result<String, TestError> {
        let answer = run_as_admin(world, &["keys", "-o", "json"]).await?;
        std::fs::write(&self.keys, answer)?;
        Ok(self.keys.display().to_string())
    }
}

/// Starts a Keyferry with a key journal of its own for the target that trusts the world's.
async fn start_audited(world: &World, audit: &Path) -> Result<Broker, TestError> {
    let spec = BrokerSpec::of_hub("traced", world.hub())
        .alone()
        .audited_to(audit)
        .with_target(Target::of(world.target_a(), AUDIENCE_A).allowing(TENANT, &[ACCOUNT]))
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let namespace = spec.namespace().to_owned();
    let broker = world.start_broker(world.hub(), spec).await?;
    let keyferry = Subject::ServiceAccount(&namespace, "keyferry");
    let_mint(world.hub(), "traced", keyferry, TENANT, &[ACCOUNT]).await?;
    Ok(broker)
}

/// Requests a token from the hub as its admin, behind Keyferry's back.
async fn token_of_admin(world: &World) -> Result<String, TestError> {
    let path = format!("/api/v1/namespaces/{TENANT}/serviceaccounts/{ACCOUNT}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": [AUDIENCE_A], "expirationSeconds": 3600 },
    });
    let answer = world.hub().admin().create(&path, &request).await?;
    let token = answer["status"]["token"].as_str();
    Ok(token.ok_or("the hub gave no token")?.to_owned())
}

/// Revokes the key that signed a token, in the journal of this Keyferry alone. No target is named, so
/// the command does not prove anything.
async fn revoke_key(world: &World, token: &str) -> TestResult {
    let header = token.split('.').next().unwrap_or_default();
    let header = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, header)?;
    let header: Value = serde_json::from_slice(&header)?;
    let kid = header["kid"].as_str().ok_or("the token has no kid")?;
    run_as_admin(world, &["revoke", "--yes", "--kid", kid]).await?;
    let keys: Value = serde_json::from_str(&run_as_admin(world, &["keys", "-o", "json"]).await?)?;
    assert_eq!(keys["revoked"][0]["kid"], kid, "{keys:#}");
    Ok(())
}

/// Runs a command about this Keyferry's keys; returns what it prints.
async fn run_as_admin(world: &World, command: &[&str]) -> Result<String, TestError> {
    let kubeconfig = world.hub().admin_kubeconfig().display().to_string();
    let flags = [
        "--keyferry-namespace",
        "keyferry-traced",
        "--kubeconfig",
        &kubeconfig,
    ];
    let answer = world
        .binary()
        .run(&[command, &flags[..]].concat(), &[])
        .await?;
    Ok(String::from_utf8(answer.stdout)?)
}

fn token_id(token: &str) -> Result<String, TestError> {
    let id = claims(token)?["jti"].as_str().map(str::to_owned);
    Ok(id.ok_or("the token has no jti")?)
}

/// The codes of a token's notes.
fn codes_of(report: &Value, token: &str) -> Result<Vec<String>, TestError> {
    let id = token_id(token)?;
    let tokens = report["tokens"].as_array().ok_or("no tokens")?;
    let token = tokens.iter().find(|token| token["tokenId"] == id.as_str());
    let notes = token.ok_or("the token is not shown")?["notes"].as_array();
    let codes = notes
        .into_iter()
        .flatten()
        .filter_map(|note| note["code"].as_str());
    Ok(codes.map(str::to_owned).collect())
}
