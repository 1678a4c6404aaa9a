//! The hub's apiserver is replaced by newer minor versions on the same data, while callers exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until;
use keyferry_integration::world::{Ground, caller_token};
use parking_lot::Mutex;

use super::stage::check_token;
use crate::rotation::stage::{Judge, Stage, TENANT, audience};

const NAME: &str = "upgraded";
const ACCOUNT: &str = "reconciler";
const PAUSE: Duration = Duration::from_millis(100);
/// Tokens of each caller before and after each upgrade.
const TOKENS: usize = 25;
/// The most in all upgrades together. An apiserver that has just started knows no RBAC for a moment, and refuses
/// Keyferry's reviews: a review that is due then refuses its caller, who is served while there is no
/// answer at all.
const MAX_REFUSALS_OF_CONFIRMED: usize = 5 * UPGRADES.len();
/// What a hub of 1.33 becomes, one after the other.
pub(super) const UPGRADES: [Minor; 4] = [Minor::V1_34, Minor::V1_35, Minor::V1_36, Minor::V1_37];
/// How long an apiserver that has just started may refuse.
const SERVES_WITHIN: Duration = Duration::from_secs(120);

/// The hub goes from 1.33 to 1.37, one minor version at a time.
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
    let load = Arc::new(Load::default());
    let running = [false, true].map(|renews| {
        let (stage, load) = (Arc::clone(&stage), Arc::clone(&load));
        tokio::spawn(async move { exchange_until_stopped(&stage, renews, &load).await })
    });
    let mut away = Vec::new();
    load.until_granted().await?;
    for minor in UPGRADES {
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
        load.until_granted().await?;
    }
    load.stop.store(true, Ordering::Relaxed);
    for caller in running {
        caller.await??;
    }
    let [confirmed, new] = load.refusals.each_ref().map(|refusals| refusals.lock());
    for (at, body) in confirmed.iter().chain(new.iter()) {
        let is_away = |(begin, end): &(Instant, Instant)| begin <= at && at <= end;
        let after = away
            .iter()
            .map(|(_, end)| at.saturating_duration_since(*end));
        let after: Vec<Duration> = after.collect();
        assert!(
            away.iter().any(is_away),
            "refused {after:?} after each upgrade: {body}"
        );
    }
    assert!(
        confirmed.len() <= MAX_REFUSALS_OF_CONFIRMED,
        "a confirmed caller was refused: {confirmed:?}"
    );
    let granted = load
        .granted
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{granted:?} tokens of a confirmed caller and of new ones, who were refused {} and {} times",
        confirmed.len(),
        new.len()
    );
    Ok(())
}

/// What a caller that the hub has confirmed, and a new caller each time, were answered.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    granted: [AtomicUsize; 2],
    refusals: [Mutex<Vec<(Instant, String)>>; 2],
}

impl Load {
    /// Waits until both callers have got some more tokens.
    async fn until_granted(&self) -> TestResult {
        let counts = || {
            self.granted
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed))
        };
        let before = counts();
        until("some more tokens", SERVES_WITHIN, || {
            let now = counts();
            let is_more = (0..2).all(|caller| now[caller] >= before[caller] + TOKENS);
            std::future::ready(Ok(is_more))
        })
        .await
    }
}

/// Exchanges again and again; as a new caller each time if it `renews`. Each token is the right one,
/// and a target of the newest minor accepts it.
async fn exchange_until_stopped(stage: &Stage, renews: bool, load: &Load) -> TestResult {
    let target = stage.targets.first().ok_or("no target")?;
    let judge = Judge::of(target)?;
    let mut caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    let index = usize::from(renews);
    while !load.stop.load(Ordering::Relaxed) {
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
            load.granted[index].fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(answer.status, 503, "{}", answer.body);
            load.refusals[index].lock().push((at, answer.body));
        }
    }
    Ok(())
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
