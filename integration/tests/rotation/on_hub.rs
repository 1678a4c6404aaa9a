//! Objects on the hub, with the shipped installation: a key is revoked while delivered Secrets
//! contain tokens that it signed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::runner::{NotStarted, Suite, TestError, TestResult};
use keyferry_integration::world::Ground;
use keyferry_integration::world::on_hub::{
    OnHub, RECONCILER, access_path, has_condition, secret_path,
};
use serde_json::{Value, json};

use super::people::{commands_of_people, keeper_of_secrets};
use super::stage::{Judge, hub_kids, kid, sign_with_new_key};

/// The TargetCluster and the tenant of each target.
pub(crate) const TARGET_TENANTS: [(&str, &str); 2] =
    [("target-a", "tenant-a"), ("target-b", "tenant-b")];
const SECRET: &str = "apps-kubeconfig";

/// The tests that need their own hub.
pub(super) fn suite() -> Suite<OnHub> {
    Suite::new(start).test("a_revocation_rewrites_what_was_delivered", rewrites)
}

async fn start() -> Result<OnHub, NotStarted> {
    // The shortest max-age that a configuration may have, because everything here waits for it.
    OnHub::build_with(Ground::start().await?, 30)
        .await
        .map_err(NotStarted::failed)
}

async fn rewrites(world: Arc<OnHub>) -> TestResult {
    for (index, (target, tenant)) in TARGET_TENANTS.into_iter().enumerate() {
        let mut spec = world.target_spec(index);
        spec["allow"] = json!([{ "namespaces": [tenant], "serviceAccounts": [RECONCILER], "deliveries": ["KubeConfigSecret", "HTTP"] }]);
        world.put_target(target, &spec).await?;
        world
            .put_access(
                tenant,
                "apps",
                target,
                &json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }] }),
            )
            .await?;
    }
    let stolen = hub_kids(&world.hub).await?.remove(0);
    let (mut witnesses, mut files) = (Vec::new(), Vec::new());
    for (target, tenant) in TARGET_TENANTS {
        world
            .until_access(tenant, "apps", "Ready", "True", "Ready")
            .await?;
        let (token, key_id) = delivered(&world, tenant).await?;
        assert_eq!((kid(&token)?, key_id), (stolen.clone(), stolen.clone()));
        let file = world.ground.folder().join(format!("witness-{target}"));
        std::fs::write(&file, &token)?;
        files.push(file.display().to_string());
        witnesses.push(token);
    }
    the_other_commands_read_the_hub(&world).await?;

    sign_with_new_key(&world.hub, "clean").await?;
    let clean = hub_kids(&world.hub)
        .await?
        .into_iter()
        .find(|kid| *kid != stolen)
        .ok_or("the hub lists no new key")?;
    until_active(&world, &clean).await?;
    for (_, tenant) in TARGET_TENANTS {
        assert_eq!(
            delivered(&world, tenant).await?.1,
            stolen,
            "a rotation alone rewrites nothing early"
        );
    }
    a_bad_witness_revokes_nothing(&world, &clean).await?;
    let (ok, said) = revoke(&world, &stolen, &files).await?;
    assert!(ok && !said.contains("NOT PROVEN"), "{said}");
    assert_eq!(
        said.matches("forgotten: it refuses the witness").count(),
        2,
        "{said}"
    );
    for (index, (_, tenant)) in TARGET_TENANTS.into_iter().enumerate() {
        assert!(
            said.contains(&format!("Secret {tenant}/{SECRET}"))
                && said.contains("rewritten, signed by"),
            "{said}"
        );
        let (token, key_id) = delivered(&world, tenant).await?;
        assert_eq!((kid(&token)?, key_id), (clean.clone(), clean.clone()));
        let judge = Judge::of(&world.targets[index])?;
        assert_eq!(
            (
                judge.status(&witnesses[index]).await?,
                judge.status(&token).await?
            ),
            (401, 201)
        );
        let access = world.hub.admin().get(&access_path(tenant, "apps")).await?;
        assert!(
            has_condition(&access, "Ready", "True", "Ready"),
            "{}",
            access["status"]
        );
    }

    // The hub has no other key to sign with, there is no witness for a new key, and a third target
    // does not respond.
    let mut nowhere = world.target_spec(0);
    nowhere["address"] = json!("https://127.0.0.1:1");
    nowhere["audience"] = json!("https://nowhere.keyferry.test");
    world.put_target("nowhere", &nowhere).await?;
    without_a_list_it_still_revokes(&world, &clean).await?;
    let (ok, said) = revoke(&world, &clean, &[]).await?;
    assert!(!ok, "{said}");
    for (target, tenant) in TARGET_TENANTS {
        let lines = notes_not_proven(&said);
        assert!(
            lines
                .iter()
                .any(|line| line.contains(&format!("TargetCluster {target}: "))
                    && line.contains("--witness FILE")),
            "{said}"
        );
        let of_secret = |line: &&String| {
            line.contains(&format!("Secret {tenant}/{SECRET}")) && line.contains("KeyRevoked")
        };
        assert!(
            lines
                .iter()
                .find(of_secret)
                .is_some_and(|line| line.contains("fix: ")),
            "{said}"
        );
        assert!(
            lines
                .iter()
                .any(|line| line.contains("TargetCluster nowhere: it was not reached")),
            "{said}"
        );
        world
            .until_access(tenant, "apps", "Ready", "False", "KeyRevoked")
            .await?;
    }
    without_targets_nothing_is_proven(&world, &clean).await
}

/// The key is already revoked. A command that knows no target proves nothing.
async fn without_targets_nothing_is_proven(world: &OnHub, kid: &str) -> TestResult {
    let kubeconfig = world.hub.admin_kubeconfig().display().to_string();
    let none = world.ground.folder().join("no-targets.yaml");
    let config = std::fs::read_to_string(world.broker.config())?;
    std::fs::write(&none, config.replace("objects: CustomResources\n", ""))?;
    let none = none.display().to_string();
    let arguments = [
        "revoke",
        "--kid",
        kid,
        "--kubeconfig",
        &kubeconfig,
        "--config",
        &none,
    ];
    let answer = world
        .ground
        .binary()
        .run_within(Duration::from_secs(60), &arguments, &[])
        .await?;
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(1), "{said}");
    let notes = notes_not_proven(&said);
    let line = notes
        .iter()
        .find(|line| line.starts_with("NOT PROVEN: targets: "))
        .ok_or_else(|| said.clone())?;
    assert!(
        line.contains("no target was asked") && line.contains("fix: "),
        "{line}"
    );
    Ok(())
}

/// The token in the tenant's Secret, and the key that the access's status names for it.
async fn delivered(world: &OnHub, tenant: &str) -> Result<(String, String), TestError> {
    let path = secret_path(tenant, SECRET);
    let secret = world.hub.admin().get(&path).await?;
    let kubeconfig = STANDARD.decode(
        secret["data"]["value"]
            .as_str()
            .ok_or("the Secret has no value")?,
    )?;
    let kubeconfig: Value = serde_saphyr::from_str(&String::from_utf8(kubeconfig)?)?;
    let token = kubeconfig["users"][0]["user"]["token"]
        .as_str()
        .ok_or("no token in the kubeconfig")?
        .to_owned();
    let key_id = kid(&token)?;
    let named = |access: &Value| access["status"]["deliveries"][0]["keyID"] == key_id.as_str();
    let access = world
        .until(&access_path(tenant, "apps"), "with the token's key", named)
        .await?;
    Ok((
        token,
        access["status"]["deliveries"][0]["keyID"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    ))
}

/// The other commands with objects on the hub, with and without the server's file.
async fn the_other_commands_read_the_hub(world: &OnHub) -> TestResult {
    let (config, hub) = (
        world.broker.config().display().to_string(),
        world.hub.admin_kubeconfig().display().to_string(),
    );
    let run = async |arguments: &[&str]| {
        let arguments = [arguments, &["--kubeconfig", &hub]].concat();
        let answer = world.ground.binary().run(&arguments, &[]).await?;
        assert!(
            answer.status.success(),
            "{}",
            String::from_utf8_lossy(&answer.stderr)
        );
        Ok::<_, TestError>(String::from_utf8(answer.stdout)?)
    };
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/target-a";
    let stated = |target: &Value| target["status"]["usernamePrefix"] == "hub:";
    world.until(path, "with its settings", stated).await?;
    let listed = run(&["targets"]).await?;
    assert_eq!(listed, run(&["targets", "--config", &config]).await?);
    assert!(
        TARGET_TENANTS
            .iter()
            .all(|(target, tenant)| listed.contains(target) && listed.contains(tenant)),
        "{listed}"
    );
    let trust = run(&["trust", "target-a"]).await?;
    assert_eq!(
        trust,
        run(&["trust", "target-a", "--config", &config]).await?
    );
    let document = run(&["token", "tenant-a/apps"]).await?;
    assert!(
        hub_kids(&world.hub).await?.contains(&kid(document.trim())?),
        "a token of the hub"
    );
    let kubeconfig = run(&["kubeconfig", "tenant-a/apps"]).await?;
    assert!(kubeconfig.contains(&world.targets[0].url()), "the target");
    let whoami = run(&["whoami", "targetaccess/apps", "-n", "tenant-a"]).await?;
    assert!(
        whoami.contains("hub:system:serviceaccount:tenant-a:reconciler"),
        "{whoami}"
    );
    assert!(
        trust.contains("https://hub.keyferry.test")
            && trust.contains("https://target-a.keyferry.test"),
        "{trust}"
    );
    assert!(
        trust.contains("system:serviceaccount:tenant-a:reconciler"),
        "{trust}"
    );
    commands_of_people(world, &trust, &listed).await
}

/// Witnesses that prove nothing end the command before anything is revoked. No file is named, so
/// the targets are the hub's objects.
async fn a_bad_witness_revokes_nothing(world: &OnHub, kid: &str) -> TestResult {
    let folder = world.ground.folder();
    let text = folder.join("no-jwt");
    std::fs::write(&text, "hello")?;
    let audience = "https://nobody.keyferry.test";
    let token = world
        .hub
        .token_request("tenant-a", RECONCILER, &[audience], 7200)
        .await?;
    let elsewhere = folder.join("for-nobody");
    std::fs::write(&elsewhere, token.token)?;
    for (path, problem) in [
        (&text, "it is not a JWT; nothing was revoked"),
        (
            &elsewhere,
            "no target that trusts the hub has its audience; nothing was revoked",
        ),
        (&folder.join("none"), "reading the witness from"),
    ] {
        let (ok, said) = revoke(world, kid, &[path.display().to_string()]).await?;
        assert!(!ok && said.contains(problem), "{said}");
        assert!(!said.contains("revoked \""), "{said}");
    }
    assert_eq!(state(world, kid).await?, "active");
    Ok(())
}

/// A user without rights on TargetClusters still revokes. The command says that nothing is proven.
async fn without_a_list_it_still_revokes(world: &OnHub, kid: &str) -> TestResult {
    let keeper = keeper_of_secrets(world).await?;
    let hub = keeper.path().display().to_string();
    let arguments = ["revoke", "--yes", "--kid", kid, "--kubeconfig", &hub];
    let answer = world.ground.binary().run(&arguments, &[]).await?;
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("revoked {kid:?}: ")), "{said}");
    let notes = notes_not_proven(&said);
    let line = notes
        .iter()
        .find(|line| line.starts_with("NOT PROVEN: targets: no target was asked: "))
        .ok_or_else(|| said.clone())?;
    assert!(
        line.contains("listing the TargetClusters of the hub") && line.contains("--config FILE"),
        "{line}"
    );
    assert_eq!(state(world, kid).await?, "revoked");
    Ok(())
}

/// What `said` calls not proven, each with its fix, which has a line of its own.
fn notes_not_proven(said: &str) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with("NOT PROVEN: ") {
            continue;
        }
        let fix = lines.next_if(|line| line.starts_with("fix: "));
        notes.push([line, fix.unwrap_or_default()].join("\n"));
    }
    notes
}

/// The state of a key, as `keyferry keys` names it.
async fn state(world: &OnHub, kid: &str) -> Result<String, TestError> {
    let hub = world.hub.admin_kubeconfig().display().to_string();
    let arguments = ["keys", "--kubeconfig", &hub, "-o", "json"];
    let answer = world.ground.binary().run(&arguments, &[]).await?;
    let keys: Value = serde_json::from_slice(&answer.stdout)?;
    let of = |list: &str| {
        keys[list]
            .as_array()
            .into_iter()
            .flatten()
            .find(|key| key["kid"] == kid)
    };
    if of("revoked").is_some() {
        return Ok("revoked".to_owned());
    }
    Ok(of("keys")
        .and_then(|key| key["state"].as_str())
        .unwrap_or_default()
        .to_owned())
}

/// Waits until Keyferry issues tokens of a key.
pub(crate) async fn until_active(world: &OnHub, kid: &str) -> TestResult {
    let limit = Instant::now() + Duration::from_secs(240);
    while state(world, kid).await? != "active" {
        assert!(Instant::now() < limit, "{kid} is not active");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Runs `keyferry revoke`. Returns whether it succeeded, and what it said.
pub(crate) async fn revoke(
    world: &OnHub,
    kid: &str,
    witnesses: &[String],
) -> Result<(bool, String), TestError> {
    // Without --config: the targets are the hub's objects.
    let kubeconfig = world.hub.admin_kubeconfig().display().to_string();
    let mut arguments = vec!["revoke", "--yes", "--kid", kid, "--kubeconfig", &kubeconfig];
    for witness in witnesses {
        arguments.extend(["--witness", witness]);
    }
    let answer = world
        .ground
        .binary()
        .run_within(Duration::from_secs(240), &arguments, &[])
        .await?;
    let said = [answer.stdout, answer.stderr].concat();
    Ok((
        answer.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}
