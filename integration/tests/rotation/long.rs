//! A rotation with the longest `maxAge`, in wall-clock time. It takes about 75 minutes, so it runs
//! only when asked for: `cargo test --workspace --test suites -- --ignored long_rotation::`.
//!
//! Targets may hold a key set
//! for an hour here, and are kept from looking for new keys all the while. The new key is published
//! first and signs an hour and a minute later; tokens live for four hours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::TokenSigning;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::runner::{BoxedSuite, Suite, TestResult};
use keyferry_integration::world::Ground;
use tokio::task::JoinSet;

use super::load::{Tally, disturb, work};
use super::stage::{Stage, audience, hub_kids};

const MAX_AGE: Duration = Duration::from_secs(3600);

/// The only test, as a suite of its own.
pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Ground::start)
        .only_on_request()
        .limit(Duration::from_secs(2 * 3600))
        .test("publish_then_sign_max_age_3600", publish_then_sign)
        .boxed()
}

async fn publish_then_sign(ground: Arc<Ground>) -> TestResult {
    let (name, activation_delay) = ("long", Duration::from_secs(30 + 30) + MAX_AGE);
    let accounts = ["reconciler", "newcomer"].map(str::to_owned);
    let stage =
        Arc::new(Stage::start(&ground, name, MAX_AGE.as_secs(), &accounts, |spec| spec).await?);
    let first = hub_kids(&stage.hub).await?.remove(0);
    let (tally, mut running) = (Arc::new(Tally::default()), JoinSet::new());
    let issuer = format!("https://{}.keyferry.test", stage.hub.name());
    running.spawn(disturb(
        Arc::clone(&stage),
        issuer,
        vec![audience(name, 0), audience(name, 1)],
    ));
    running.spawn(work(
        Arc::clone(&stage),
        accounts[0].clone(),
        Arc::clone(&tally),
    ));

    let TokenSigning {
        issuers,
        signing_key,
        ..
    } = stage.hub.signing().await;
    let fresh = stage
        .hub
        .create_signing_key(SigningKeyKind::Rsa2048, "second")?;
    let before = TokenSigning {
        issuers: issuers.clone(),
        signing_key: signing_key.clone(),
        further_keys: vec![fresh.clone()],
    };
    stage.hub.set_signing(before).await;
    stage.hub.restart().await?;
    let second = hub_kids(&stage.hub)
        .await?
        .into_iter()
        .find(|kid| *kid != first)
        .ok_or("the hub lists no second key")?;
    stage
        .until_published(&[&first, &second], Duration::from_secs(75))
        .await?;
    let published = Instant::now();
    while published.elapsed() < activation_delay + Duration::from_secs(15) {
        if let Some(ended) = running.try_join_next() {
            return Err(format!("a workload ended: {ended:?}").into());
        }
        // As the kubelet does: the token of the process itself lives for an hour.
        stage.broker.kubeconfig().rewrite_token(3600).await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    stage
        .hub
        .set_signing(TokenSigning {
            issuers,
            signing_key: fresh,
            further_keys: vec![signing_key],
        })
        .await;
    stage.hub.restart().await?;
    running.spawn(work(
        Arc::clone(&stage),
        accounts[1].clone(),
        Arc::clone(&tally),
    ));
    let signed = Instant::now();
    while tally.taken(&second) < 500 && signed.elapsed() < Duration::from_secs(300) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    running.shutdown().await;
    let counts = tally.take();
    eprintln!("max-age 3600: {counts:?}");
    assert_eq!(
        counts.refused,
        Vec::<String>::new(),
        "tokens that Keyferry issued were refused"
    );
    assert!(
        counts.taken.get(&second).is_some_and(|taken| *taken >= 500),
        "the new key hardly signed anything: {counts:?}"
    );
    Ok(())
}
