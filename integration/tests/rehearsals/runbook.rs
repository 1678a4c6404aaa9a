//! A printed runbook is followed step by step, while every client calls: no call is refused.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::access_path;

use super::comparison::{Outcome, Restart};
use super::consumers::{Consumers, Way};
use super::prediction::{PredictedStep, predict};
use super::scenario::new_authority;
use super::stage::{Stage, sleep_until};
use crate::rotation::on_hub::{TARGET_TENANTS, until_active};
use crate::rotation::stage::hub_kids;

/// How long is observed after the last step.
const AFTERWARDS: Duration = Duration::from_secs(15);

/// Follows the runbook of a target's new CA.
pub(super) async fn change_target_authority(stage: Arc<Stage>) -> TestResult {
    stage.until_ready().await?;
    let (target, tenant) = TARGET_TENANTS[0];
    let prediction = predict(&stage.world, &["ca-change", "target", target], None).await?;
    let [trust_both, exchange, trust_new] = prediction.runbook.as_slice() else {
        return Err(format!("other steps: {:?}", prediction.runbook).into());
    };
    let consumers =
        Consumers::start(&stage.world, &stage.clients(&[Way::ReadsSecret], None), 0).await?;
    let begin = Timestamp::now();
    let authority = new_authority(&stage, "of-the-runbook")?;

    assert_says(trust_both, "trust both");
    let old = stage.authority(0);
    stage.set_authority(0, &format!("{old}{}", authority.cert_pem()));
    stage.put_target(0).await?;
    until_status_has_authorities(&stage, tenant, 2).await?;

    assert_says(exchange, "exchange the serving certificate");
    stage.world.targets[0]
        .exchange_serving_certificate(&authority)
        .await?;
    let doctor = run_printed(&stage, exchange).await?;
    assert!(
        doctor
            .lines()
            .any(|line| line.contains("Connection") && line.contains("ok")),
        "{doctor}"
    );

    assert_says(trust_new, "trust the new one alone");
    stage.set_authority(0, authority.cert_pem());
    stage.put_target(0).await?;
    until_status_has_authorities(&stage, tenant, 1).await?;
    end(consumers, begin, "the runbook of a target's CA", &[]).await
}

/// Follows the runbook of a rotation that publishes first. The hub has one apiserver, so what its
/// restarts refuse does not count.
pub(super) async fn publish_first(stage: Arc<Stage>) -> TestResult {
    stage.until_ready().await?;
    let event = ["key-rotation", "--publish-first"];
    let prediction = predict(&stage.world, &event, None).await?;
    assert!(prediction.refusals.is_empty(), "{:?}", prediction.refusals);
    let [add, see_active, sign, see_signing, _check_old] = prediction.runbook.as_slice() else {
        return Err(format!("other steps: {:?}", prediction.runbook).into());
    };
    let ways = [Way::ReadsSecret, Way::MintsItself, Way::AsksKeyferry];
    let consumers = Consumers::start(&stage.world, &stage.clients(&ways, None), 0).await?;
    let begin = Timestamp::now();
    let hub = &stage.world.hub;
    let before = hub_kids(hub).await?;
    let mut restarts = Vec::new();

    assert_says(add, "add the public key");
    let fresh = hub.create_signing_key(SigningKeyKind::Rsa2048, "of-the-runbook")?;
    let mut signing = hub.signing().await;
    signing.further_keys.push(fresh.clone());
    hub.set_signing(signing).await;
    restarts.push(restart_hub(&stage).await?);
    let added = hub_kids(hub)
        .await?
        .into_iter()
        .find(|kid| !before.contains(kid))
        .ok_or("the hub lists no new key")?;

    assert_says(see_active, "see the new key published and active");
    until_active(&stage.world, &added).await?;
    assert!(run_printed(&stage, see_active).await?.contains(&added));

    assert_says(sign, "sign with it");
    let mut signing = hub.signing().await;
    signing.further_keys.retain(|key| *key != fresh);
    signing
        .further_keys
        .push(std::mem::replace(&mut signing.signing_key, fresh));
    hub.set_signing(signing).await;
    restarts.push(restart_hub(&stage).await?);

    assert_says(see_signing, "see which key signs");
    let keys = run_printed(&stage, see_signing).await?;
    assert!(keys.contains(&added), "{keys}");
    end(consumers, begin, "the runbook of a rotation", &restarts).await
}

async fn restart_hub(stage: &Stage) -> Result<Restart, TestError> {
    let from = Timestamp::now();
    stage.world.hub.restart().await?;
    Ok(Restart {
        from,
        until: Timestamp::now(),
    })
}

async fn end(
    consumers: Consumers,
    begin: Timestamp,
    event: &str,
    restarts: &[Restart],
) -> TestResult {
    sleep_until(Timestamp::now() + AFTERWARDS).await;
    let outcome = Outcome {
        event: event.to_owned(),
        acted: begin,
        begin,
        overran: SignedDuration::ZERO,
        calls: consumers.end().await?,
    };
    outcome.check_nothing_refused(restarts)
}

fn assert_says(step: &PredictedStep, action: &str) {
    assert!(step.action.starts_with(action), "{step:?}");
}

/// Runs the command that a step prints, with a platform admin's kubeconfig.
async fn run_printed(stage: &Stage, step: &PredictedStep) -> Result<String, TestError> {
    let command = step.command.as_deref().unwrap_or_default();
    let mut arguments: Vec<&str> = command.split(' ').skip(1).collect();
    assert!(command.starts_with("keyferry "), "{step:?}");
    let kubeconfig = stage.world.hub.admin_kubeconfig().display().to_string();
    arguments.extend(["--kubeconfig", &kubeconfig]);
    let answer = stage.world.ground.binary().run(&arguments, &[]).await?;
    Ok(String::from_utf8([answer.stdout, answer.stderr].concat())?)
}

/// Waits until `status.cluster` of each access has so many CAs, as a step expects.
async fn until_status_has_authorities(stage: &Stage, tenant: &str, count: usize) -> TestResult {
    for client in stage.clients(&[Way::ReadsSecret], None) {
        if client.tenant == tenant {
            stage
                .world
                .until(
                    &access_path(tenant, &client.access),
                    &format!("{count} CAs"),
                    |object| {
                        let data = &object["status"]["cluster"]["certificate-authority-data"];
                        let data = STANDARD.decode(data.as_str().unwrap_or_default());
                        let text = String::from_utf8(data.unwrap_or_default());
                        text.is_ok_and(|pem| pem.matches("BEGIN CERTIFICATE").count() == count)
                    },
                )
                .await?;
        }
    }
    Ok(())
}
