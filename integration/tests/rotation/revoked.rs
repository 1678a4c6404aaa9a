//! A key is stolen. Once revoked, it disappears from the published keys, from issued tokens, and
//! from each target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Ground, caller_token};
use serde_json::{Value, json};

use super::record::journal_of;
use super::stage::{Judge, Stage, TENANT, hub_kids, kid, published, sign_with_new_key};

const SECRET: &str = "/api/v1/namespaces/keyferry-revoked/secrets/keyferry-keys";

pub(super) async fn revoked(ground: Arc<Ground>) -> TestResult {
    let stage = Stage::start(&ground, "revoked", 30, &["reconciler".to_owned()], |spec| {
        spec
    })
    .await?;
    let stolen = hub_kids(&stage.hub).await?.remove(0);
    let caller = caller_token(&stage.hub, TENANT, "reconciler").await?;
    let mut witnesses = Vec::new();
    for (index, target) in stage.targets.iter().enumerate() {
        let token = stage
            .broker
            .exchange_in_time(&caller, &format!("{TENANT}/reconciler-{index}"))
            .await?
            .token()?;
        assert_eq!(
            (kid(&token)?, Judge::of(target)?.status(&token).await?),
            (stolen.clone(), 201)
        );
        let file = ground.folder().join(format!("witness-{index}"));
        std::fs::write(&file, &token)?;
        witnesses.push(file);
    }
    let thief = stage.hub.signing().await;
    sign_with_new_key(&stage.hub, "clean").await?;
    let clean = hub_kids(&stage.hub)
        .await?
        .into_iter()
        .find(|kid| *kid != stolen)
        .ok_or("the hub lists no new key")?;
    stage
        .until_published(&[&stolen, &clean], Duration::from_secs(75))
        .await?;

    // It is published a moment before it is in the key journal.
    let published_at = Instant::now();
    loop {
        let table = keys(&ground, &stage, "json").await?;
        let state = |kid: &str| {
            let key = table["keys"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|key| key["kid"] == kid);
            key.and_then(|key| key["state"].as_str())
        };
        assert_eq!(state(&stolen), Some("active"), "{table}");
        if let Some(state) = state(&clean) {
            assert_eq!(state, "activating", "{table}");
            break;
        }
        assert!(published_at.elapsed() < Duration::from_secs(15), "{table}");
    }

    let before = stage.hub.admin().get(SECRET).await?;
    // An unknown key name changes nothing.
    let (ok, said) = revoke(&ground, &stage, "nobody", &[]).await?;
    assert!(!ok && said.contains("there is no kid"), "{said}");
    let witnesses: Vec<String> = witnesses
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    a_key_is_not_revoked_unasked(&ground, &stage, &stolen).await?;
    let (ok, said) = revoke(&ground, &stage, &stolen, &witnesses).await?;
    assert!(ok, "{said}");
    assert_eq!(
        said.matches("forgotten: it refuses the witness").count(),
        2,
        "{said}"
    );

    stage
        .until_published(&[&clean], Duration::from_secs(15))
        .await?;
    assert!(!String::from_utf8(published(&stage.broker).await?)?.contains(&stolen));
    for (target, file) in stage.targets.iter().zip(&witnesses) {
        let token = std::fs::read_to_string(file)?;
        assert_eq!(
            Judge::of(target)?.status(&token).await?,
            401,
            "{}",
            target.name()
        );
    }
    // The earlier key journal with its seal, as a backup would restore it.
    stage
        .hub
        .admin()
        .patch(SECRET, &json!({ "data": before["data"] }))
        .await?;
    let limit = Instant::now() + Duration::from_secs(25);
    while !stage
        .broker
        .log()?
        .lines()
        .any(|line| line.contains("KeyRecordTampered") && line.contains("an older one"))
    {
        assert!(Instant::now() < limit, "the alarm was not raised");
        assert!(!String::from_utf8(published(&stage.broker).await?)?.contains(&stolen));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        stage
            .broker
            .metric("keyferry_key_alarms_total{reason=\"KeyRecordTampered\"}")
            .await?
            >= 1.0
    );
    assert!(!String::from_utf8(published(&stage.broker).await?)?.contains(&stolen));
    // Wait until it is rewritten with its revocations, before the hub restarts.
    while journal_of(&stage.hub.admin().get(SECRET).await?)?["revoked"][0]["kid"] != stolen.as_str()
    {
        assert!(Instant::now() < limit, "the record was not written again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The hub is set back to the stolen key: no token that it signs is issued.
    stage.hub.set_signing(thief).await;
    stage.hub.restart().await?;
    let caller = caller_token(&stage.hub, TENANT, "reconciler").await?;
    let answer = stage
        .broker
        .exchange(&caller, &format!("{TENANT}/reconciler-0"))
        .await?;
    assert_ne!(answer.status, 200, "a token of a revoked key left");
    let table = keys(&ground, &stage, "table").await?;
    assert!(
        table.as_str().is_some_and(|table| table
            .lines()
            .any(|line| line.starts_with(&stolen) && line.contains("revoked"))),
        "{table}"
    );
    Ok(())
}

/// The output of `keyferry keys`, run as an admin of the hub.
async fn keys(ground: &Ground, stage: &Stage, output: &str) -> Result<Value, TestError> {
    let kubeconfig = stage.hub.admin_kubeconfig().display().to_string();
    let answer = ground
        .binary()
        .run(
            &[
                "keys",
                "--keyferry-namespace",
                "keyferry-revoked",
                "--kubeconfig",
                &kubeconfig,
                "-o",
                output,
            ],
            &[],
        )
        .await?;
    let text = String::from_utf8(answer.stdout)?;
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    Ok(if output == "json" {
        serde_json::from_str(&text)?
    } else {
        json!(text)
    })
}

/// Without --yes, and where nobody can be asked, it shows what it would end, and ends nothing.
async fn a_key_is_not_revoked_unasked(ground: &Ground, stage: &Stage, kid: &str) -> TestResult {
    let before = journal_of(&stage.hub.admin().get(SECRET).await?)?;
    let (ok, said) = run_revoke(ground, stage, kid, &[]).await?;
    assert!(!ok, "{said}");
    for wanted in [
        format!("\n- key {kid:?}, published since ").as_str(),
        "target(s) reload their keys: ",
        "nothing was revoked",
        "add --yes",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let after = journal_of(&stage.hub.admin().get(SECRET).await?)?;
    assert_eq!(before["revoked"], after["revoked"]);
    Ok(())
}

/// Runs `keyferry revoke --yes` as the same admin. Returns whether it succeeded, and its output.
async fn revoke(
    ground: &Ground,
    stage: &Stage,
    kid: &str,
    witnesses: &[String],
) -> Result<(bool, String), TestError> {
    let mut flags = vec!["--yes"];
    for witness in witnesses {
        flags.extend(["--witness", witness]);
    }
    run_revoke(ground, stage, kid, &flags).await
}

async fn run_revoke(
    ground: &Ground,
    stage: &Stage,
    kid: &str,
    flags: &[&str],
) -> Result<(bool, String), TestError> {
    let (kubeconfig, config) = (
        stage.hub.admin_kubeconfig().display().to_string(),
        stage.broker.config().display().to_string(),
    );
    let mut arguments = vec![
        "revoke",
        "--kid",
        kid,
        "--keyferry-namespace",
        "keyferry-revoked",
        "--kubeconfig",
        &kubeconfig,
        "--config",
        &config,
    ];
    arguments.extend(flags);
    let answer = ground
        .binary()
        .run_within(Duration::from_secs(150), &arguments, &[])
        .await?;
    let said = [answer.stdout, answer.stderr].concat();
    Ok((
        answer.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}
