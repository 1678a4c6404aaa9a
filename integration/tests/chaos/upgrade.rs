//! The hub's apiserver is replaced by newer minor versions on the same data, while callers exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Ground, caller_token};

use super::stage::check_token;
use crate::rotation::stage::{Judge, Stage, TENANT, audience};

const NAME: &str = "upgraded";
const ACCOUNT: &str = "reconciler";
const PAUSE: Duration = Duration::from_millis(100);
/// How long an apiserver that has just started may refuse.
const SERVES_WITHIN: Duration = Duration::from_secs(120);

/// The hub goes from 1.33 to 1.36 to 1.37. The tests have no parts of 1.34 and 1.35.
pub(super) async fn a_hub_that_is_upgraded_gives_no_wrong_answer(
    ground: Arc<Ground>,
) -> TestResult {
    let spec = ControlPlaneSpec {
        minor: Minor::V1_33,
        signing_key: SigningKeyKind::EcdsaP256,
        ..ControlPlaneSpec::named(&format!("{NAME}-hub"))
    };
    let hub = ground.hub(spec).await?;
    let accounts = [ACCOUNT.to_owned()];
    let stage = Arc::new(Stage::on(&ground, hub, NAME, 30, &accounts, |spec| spec).await?);
    until_new_caller_is_granted(&stage).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let [confirmed, new] = [false, true].map(|renews| {
        let (stage, stop) = (Arc::clone(&stage), Arc::clone(&stop));
        tokio::spawn(async move { exchange_until(&stage, renews, &stop).await })
    });
    let mut away = Vec::new();
    for minor in [Minor::V1_36, Minor::V1_37] {
        let begin = Instant::now();
        stage.hub.change_minor(minor).await?;
        let version = stage.hub.admin().get("/version").await?;
        assert_eq!(version["gitVersion"], minor.git_version());
        until_new_caller_is_granted(&stage).await?;
        away.push((begin, Instant::now()));
        eprintln!(
            "{}: new callers after {:?}",
            minor.git_version(),
            begin.elapsed()
        );
    }
    stop.store(true, Ordering::Relaxed);
    let (confirmed, new) = (confirmed.await??, new.await??);
    for tally in [&confirmed, &new] {
        assert!(tally.granted > 50, "only {} exchanges", tally.granted);
    }
    assert_eq!(
        confirmed.refusals.len(),
        0,
        "a confirmed caller was refused"
    );
    for at in &new.refusals {
        let is_away = |(begin, end): &(Instant, Instant)| begin <= at && at <= end;
        assert!(away.iter().any(is_away), "refused while the hub served");
    }
    eprintln!(
        "{} tokens of a confirmed caller, {} of new callers, who were refused {} times",
        confirmed.granted,
        new.granted,
        new.refusals.len()
    );
    Ok(())
}

/// The answers that one caller got.
#[derive(Default)]
struct Tally {
    granted: usize,
    refusals: Vec<Instant>,
}

/// Exchanges without a pause for thought; as a new caller each time if it `renews`. Each token is
/// the right one, and a target of the newest minor accepts it.
async fn exchange_until(
    stage: &Stage,
    renews: bool,
    stop: &AtomicBool,
) -> Result<Tally, TestError> {
    let target = stage.targets.first().ok_or("no target")?;
    let judge = Judge::of(target)?;
    let mut caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(PAUSE).await;
        if renews {
            // Without an answer of the hub there is no new caller.
            match caller_token(&stage.hub, TENANT, ACCOUNT).await {
                Ok(token) => caller = token,
                Err(_) => continue,
            }
        }
        let at = Instant::now();
        let answer = stage.broker.exchange(&caller, &access()).await?;
        if answer.status == 200 {
            let token = answer.token()?;
            check_token(&token, TENANT, &audience(NAME, 0))?;
            assert_eq!(judge.status(&token).await?, 201, "the target refuses it");
            tally.granted += 1;
        } else {
            assert_eq!(answer.status, 503, "{}", answer.body);
            tally.refusals.push(at);
        }
    }
    Ok(tally)
}

async fn until_new_caller_is_granted(stage: &Stage) -> TestResult {
    until("a new caller is granted", SERVES_WITHIN, || async {
        let Ok(caller) = caller_token(&stage.hub, TENANT, ACCOUNT).await else {
            return Ok(false);
        };
        Ok(stage.broker.exchange(&caller, &access()).await?.status == 200)
    })
    .await
}

/// The access to the first target.
fn access() -> String {
    format!("{TENANT}/{ACCOUNT}-0")
}
