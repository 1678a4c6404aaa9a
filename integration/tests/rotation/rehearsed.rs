//! A rotation is rehearsed, and then really done. What is refused meanwhile, by Keyferry and by
//! real targets, lies where the rehearsal says that it may, and is refused where it says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::TokenSigning;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path, audience};
use serde::Deserialize;
use serde_json::json;

use super::on_hub::{TARGET_TENANTS, delivered_token};
use super::stage::{Judge, kid};

/// `discovery.maxAge` of the fixture.
pub(super) const MAX_AGE: u64 = 30;
/// How long calls are observed: past the end of each certain window.
const OBSERVED: Duration = Duration::from_secs(80);
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// An access that needs a token that was never asked for.
const NEW_ACCESS: &str = "fresh";
/// An access with a token in a Secret, and with a ConfigMap by which its client mints by itself.
const DELIVERED_ACCESS: &str = "rehearsed";

/// What `keyferry rehearse -o json` printed, as far as it is compared.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prediction {
    schema: String,
    at: jiff::Timestamp,
    refusals: Vec<PredictedRefusal>,
    undetermined: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PredictedRefusal {
    caller: String,
    access: Option<String>,
    reason: String,
    certain: Option<PredictedWindow>,
    possible: PredictedWindow,
}

#[derive(Debug, Deserialize)]
struct PredictedWindow {
    from: jiff::Timestamp,
    until: Option<jiff::Timestamp>,
}

impl PredictedWindow {
    /// Whether a call lies in it that was sent so long after the begin of the event.
    fn contains(&self, begin: jiff::Timestamp, sent: Duration) -> bool {
        let after = |at: jiff::Timestamp| at.duration_since(begin).as_secs_f64();
        let sent = sent.as_secs_f64();
        after(self.from) <= sent && self.until.is_none_or(|until| sent <= after(until))
    }

    fn seconds(&self) -> f64 {
        self.until.map_or(f64::INFINITY, |until| {
            until.duration_since(self.from).as_secs_f64()
        })
    }
}

/// One call, and how it ended.
#[derive(Debug)]
struct ObservedCall {
    /// The callers of the prediction that it stands for.
    callers: &'static [&'static str],
    access: String,
    /// When it was sent, after the hub first signed with the new key.
    sent: Duration,
    /// The reason, if it was refused.
    refused: Option<String>,
}

impl ObservedCall {
    fn is_of(&self, refusal: &PredictedRefusal) -> bool {
        self.callers.contains(&refusal.caller.as_str())
            && refusal
                .access
                .as_ref()
                .is_none_or(|access| *access == self.access)
    }
}

pub(super) async fn costs_what_was_predicted(world: Arc<OnHub>) -> TestResult {
    declare_accesses(&world).await?;
    let prediction = predict(&world).await?;
    check_widths(&prediction);
    let caller = caller_token(&world.hub, "tenant-a", RECONCILER).await?;
    let mut delivered = Vec::new();
    for (_, tenant) in TARGET_TENANTS {
        delivered.push(delivered_token(&world, tenant, DELIVERED_ACCESS).await?.0);
    }
    let (begin, first_call) = sign_at_once(&world).await?;
    let mut calls = vec![first_call];
    let mut round = Instant::now();
    while begin.elapsed() < OBSERVED {
        call_targets(&world, &delivered, begin, &mut calls).await?;
        calls.push(call_keyferry(&world, &caller, begin).await?);
        round += CALL_INTERVAL;
        tokio::time::sleep(round.saturating_duration_since(Instant::now())).await;
    }
    compare(&prediction, &calls);
    remove_accesses(&world).await
}

/// Each tenant has an access with both deliveries at its own target; tenant-a also one at the other
/// target, which has no token yet.
async fn declare_accesses(world: &OnHub) -> TestResult {
    for (index, (target, tenant)) in TARGET_TENANTS.into_iter().enumerate() {
        let mut spec = world.target_spec(index);
        let mut allow = vec![json!({
            "namespaces": [tenant], "serviceAccounts": [RECONCILER],
            "deliveries": ["KubeConfigSecret", "FluxConfigMap", "HTTP"],
        })];
        if tenant != "tenant-a" {
            allow.push(json!({
                "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER], "deliveries": ["HTTP"],
            }));
        }
        spec["allow"] = json!(allow);
        world.put_target(target, &spec).await?;
        let deliveries = json!({
            "deletionPolicy": "Immediate",
            "deliveries": [
                { "name": "secret", "type": "KubeConfigSecret", "tokenLifetime": "10m" },
                { "name": "flux", "type": "FluxConfigMap" },
            ],
        });
        world
            .put_access(tenant, DELIVERED_ACCESS, target, &deliveries)
            .await?;
        world
            .until_access(tenant, DELIVERED_ACCESS, "Ready", "True", "Ready")
            .await?;
    }
    let on_request = json!({ "deliveries": [{ "name": "h", "type": "HTTP" }] });
    world
        .put_access("tenant-a", NEW_ACCESS, TARGET_TENANTS[1].0, &on_request)
        .await?;
    world
        .until_access("tenant-a", NEW_ACCESS, "Ready", "True", "Ready")
        .await?;
    Ok(())
}

/// Rehearses on the hub itself, with the rights of a platform admin.
async fn predict(world: &OnHub) -> Result<Prediction, TestError> {
    let kubeconfig = world.hub.admin_kubeconfig().display().to_string();
    let max_age = format!("{MAX_AGE}s");
    let arguments = [
        "rehearse",
        "key-rotation",
        "--sign-at-once",
        "--discovery-max-age",
        &max_age,
        "--replicas",
        "1",
        "--kubeconfig",
        &kubeconfig,
        "-o",
        "json",
    ];
    let answer = world.ground.binary().run(&arguments, &[]).await?;
    let printed = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(
        answer.status.code(),
        Some(0),
        "{printed}{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let prediction: Prediction = serde_json::from_str(&printed)?;
    assert_eq!(prediction.schema, "keyferry.dev/rehearsal/v1");
    assert!(
        prediction.undetermined.is_empty(),
        "{:?}",
        prediction.undetermined
    );
    Ok(prediction)
}

/// A target refuses for `maxAge` and 25 s at most.
fn check_widths(prediction: &Prediction) {
    let by_targets: Vec<&PredictedRefusal> = prediction
        .refusals
        .iter()
        .filter(|refusal| refusal.caller == "ownMinter")
        .collect();
    assert_eq!(by_targets.len(), TARGET_TENANTS.len(), "{by_targets:?}");
    let limit = Duration::from_secs(MAX_AGE + 25).as_secs_f64();
    for refusal in by_targets {
        assert!(refusal.possible.seconds() <= limit, "{refusal:?}");
    }
}

/// Makes the hub sign with a key that was never published. Returns when it first did, as it mints
/// before it reports ready, and how a target answered the first token.
async fn sign_at_once(world: &OnHub) -> Result<(Instant, ObservedCall), TestError> {
    let hub = &world.hub;
    let before = hub.signing().await;
    let fresh = hub.create_signing_key(SigningKeyKind::Rsa2048, "rehearsed")?;
    let mut further_keys = before.further_keys.clone();
    further_keys.push(before.signing_key.clone());
    let old = kid(&mint(world, TARGET_TENANTS[0]).await?)?;
    hub.set_signing(TokenSigning {
        signing_key: fresh,
        further_keys,
        ..before
    })
    .await;
    let first_token = async {
        loop {
            if let Ok(token) = mint(world, TARGET_TENANTS[0]).await
                && kid(&token)? != old
            {
                let begin = Instant::now();
                let status = Judge::of(&world.targets[0])?.status(&token).await?;
                let call = ObservedCall {
                    callers: &["ownMinter"],
                    access: format!("{}/{DELIVERED_ACCESS}", TARGET_TENANTS[0].1),
                    sent: Duration::ZERO,
                    refused: (status == 401).then(|| "SignatureInvalid".to_owned()),
                };
                return Ok::<_, TestError>((begin, call));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let restart = async {
        hub.restart().await?;
        Ok::<_, TestError>(())
    };
    let (first, ()) = tokio::try_join!(first_token, restart)?;
    Ok(first)
}

/// A token that the hub mints for a target, as Flux does.
async fn mint(world: &OnHub, (target, tenant): (&str, &str)) -> Result<String, TestError> {
    let minted = world
        .hub
        .token_request(tenant, RECONCILER, &[&audience(target)], 600)
        .await?;
    Ok(minted.token)
}

/// Each target gets a token that was just minted, and the delivered one.
async fn call_targets(
    world: &OnHub,
    delivered: &[String],
    begin: Instant,
    calls: &mut Vec<ObservedCall>,
) -> TestResult {
    for (index, names) in TARGET_TENANTS.into_iter().enumerate() {
        let judge = Judge::of(&world.targets[index])?;
        let access = format!("{}/{DELIVERED_ACCESS}", names.1);
        let mut call = async |callers, token: &str| {
            let sent = begin.elapsed();
            let refused = match judge.status(token).await? {
                201 => None,
                401 => Some("SignatureInvalid".to_owned()),
                status => return Err(TestError::from(format!("{access}: {status}"))),
            };
            calls.push(ObservedCall {
                callers,
                access: access.clone(),
                sent,
                refused,
            });
            Ok::<_, TestError>(())
        };
        call(&["objectReader"], &delivered[index]).await?;
        // A hub that has just started may refuse the mint itself, which no target sees.
        if let Ok(token) = mint(world, names).await {
            call(&["ownMinter"], &token).await?;
        }
    }
    Ok(())
}

async fn call_keyferry(
    world: &OnHub,
    caller: &str,
    begin: Instant,
) -> Result<ObservedCall, TestError> {
    let access = format!("tenant-a/{NEW_ACCESS}");
    let sent = begin.elapsed();
    let answer = world.broker.exchange(caller, &access).await?;
    let refused = match answer.status {
        200 => None,
        _ => {
            let record = world.broker.audit_of(&answer.request_id)?;
            Some(record["reason"].as_str().unwrap_or_default().to_owned())
        }
    };
    Ok(ObservedCall {
        callers: &["callerWithoutToken", "anyCaller"],
        access,
        sent,
        refused,
    })
}

fn compare(prediction: &Prediction, calls: &[ObservedCall]) {
    let mut unforeseen = Vec::new();
    for call in calls {
        let Some(reason) = &call.refused else {
            continue;
        };
        let foreseen = prediction.refusals.iter().any(|refusal| {
            call.is_of(refusal)
                && refusal.reason == *reason
                && refusal.possible.contains(prediction.at, call.sent)
        });
        if !foreseen {
            unforeseen.push(call);
        }
    }
    assert!(
        unforeseen.is_empty(),
        "refused where nothing was possible: {unforeseen:?}\n{:?}",
        prediction.refusals
    );
    let mut certain_calls = 0;
    for refusal in &prediction.refusals {
        let Some(certain) = &refusal.certain else {
            continue;
        };
        for call in calls
            .iter()
            .filter(|call| call.is_of(refusal) && certain.contains(prediction.at, call.sent))
        {
            certain_calls += 1;
            assert!(
                call.refused.is_some(),
                "served, against {refusal:?}: {call:?}"
            );
        }
    }
    let refused_by_targets: Vec<f32> = calls
        .iter()
        .filter(|call| call.callers == ["ownMinter"] && call.refused.is_some())
        .map(|call| call.sent.as_secs_f32())
        .collect();
    eprintln!(
        "{} calls, {} refused, {certain_calls} of them for certain; targets refused new tokens at \
         {refused_by_targets:.1?} s",
        calls.len(),
        calls.iter().filter(|call| call.refused.is_some()).count()
    );
    assert!(
        certain_calls >= 30 && !refused_by_targets.is_empty(),
        "too little was refused to judge by"
    );
}

async fn remove_accesses(world: &OnHub) -> TestResult {
    let accesses = TARGET_TENANTS.map(|(_, tenant)| (tenant, DELIVERED_ACCESS));
    for (tenant, access) in accesses.into_iter().chain([("tenant-a", NEW_ACCESS)]) {
        let path = access_path(tenant, access);
        world.hub.admin().delete(&path).await?;
        world.until_gone(&path).await?;
    }
    Ok(())
}
