//! When keys are fetched, and how long they are used without an answer of their issuer.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use keyferry_api::reason::Reason;
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_keys::jwt::SigningAlgorithm;
use keyferry_keys::testing::{key, set};
use keyferry_platform::clock::Clock;
use keyferry_platform::external_issuer_documents::{ExternalIssuerKeys, ExternalKeysError};
use tokio::time::Instant;

use super::super::tests::{FakeServer, issuers, signer};
use super::{IssuerKeys, KNOWN_KEY_WAIT};

const ISSUER: &str = "https://ci.example.com";
const AWAY: ExternalKeysError = ExternalKeysError::NoAnswer("it did not answer in time");

async fn stage() -> (SmallWorld, Arc<FakeServer>, IssuerKeys) {
    let (world, server) = (SmallWorld::start().await, FakeServer::start());
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    let source = Arc::clone(&server) as Arc<dyn ExternalIssuerKeys>;
    let keys = IssuerKeys::new(&issuers("Once"), source, clock);
    (world, server, keys)
}

#[tokio::test]
async fn invented_keys_cause_one_fetch_in_ten_seconds() {
    let (world, server, keys) = stage().await;
    let crowd = (0..50).map(|index| {
        let keys = &keys;
        async move {
            keys.key_set(ISSUER, &format!("invented-{index}"))
                .await
                .is_ok()
        }
    });
    assert!(join_all(crowd).await.into_iter().all(|found| found));
    for _ in 0..50 {
        keys.key_set(ISSUER, "invented").await.unwrap();
    }
    assert_eq!(server.fetches(), 1);
    world.clock.advance(Duration::from_secs(10));
    keys.key_set(ISSUER, "invented").await.unwrap();
    assert_eq!(server.fetches(), 2);
    assert_eq!(
        keys.key_set("https://other.example.com", "ES256")
            .await
            .err(),
        Some(Reason::CallerIssuerMismatch)
    );
}

#[tokio::test]
async fn a_new_key_is_found_and_a_withdrawn_one_ends() {
    let (world, server, keys) = stage().await;
    keys.key_set(ISSUER, "ES256").await.unwrap();
    let both = set([signer().entry(), key(SigningAlgorithm::Es384).entry()]);
    *server.answer.lock() = Ok(both);
    world.clock.advance(Duration::from_secs(10));
    let found = keys.key_set(ISSUER, "ES384").await.unwrap();
    assert!(found.get("ES384").is_some());
    *server.answer.lock() = Ok(set([key(SigningAlgorithm::Es384).entry()]));
    world.clock.advance(Duration::from_secs(299));
    assert!(
        keys.key_set(ISSUER, "ES256")
            .await
            .unwrap()
            .get("ES256")
            .is_some()
    );
    world.clock.advance(Duration::from_secs(1));
    assert!(
        keys.key_set(ISSUER, "ES256")
            .await
            .unwrap()
            .get("ES256")
            .is_none()
    );
}

#[tokio::test]
async fn keys_are_used_for_an_hour_without_an_answer() {
    let (world, server, keys) = stage().await;
    *server.answer.lock() = Err(AWAY);
    assert_eq!(
        keys.key_set(ISSUER, "ES256").await.err(),
        Some(Reason::CallerKeysUnavailable)
    );
    *server.answer.lock() = Ok(signer().set());
    assert!(keys.key_set(ISSUER, "ES256").await.is_err(), "in the pause");
    world.clock.advance(Duration::from_secs(10));
    keys.key_set(ISSUER, "ES256").await.unwrap();
    *server.answer.lock() = Err(AWAY);
    world.clock.advance(Duration::from_secs(3599));
    keys.key_set(ISSUER, "ES256").await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(
        keys.key_set(ISSUER, "ES256").await.err(),
        Some(Reason::CallerKeysUnavailable)
    );
}

/// The issuer is asked in the background, and a token with an unknown key still waits for it.
#[tokio::test]
async fn an_issuer_that_hangs_does_not_delay_tokens_whose_key_is_known() {
    let (world, server, keys) = stage().await;
    // Only now: the stage does I/O, whose time limits would pass at once. Timers end at the next
    // whole millisecond.
    tokio::time::pause();
    let rounding = Duration::from_millis(2);
    keys.key_set(ISSUER, "ES256").await.unwrap();
    server.is_silent.store(true, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(300));
    let mut waits = Vec::new();
    for _ in 0..30 {
        let began = Instant::now();
        keys.key_set(ISSUER, "ES256").await.unwrap();
        waits.push(began.elapsed());
        world.clock.advance(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let (first, later) = waits.split_first().unwrap();
    assert!(*first <= KNOWN_KEY_WAIT + rounding, "{first:?}");
    assert!(later.iter().all(|wait| *wait <= rounding), "{later:?}");
    let fetches = server.fetches();
    assert!(
        (14..=16).contains(&fetches),
        "asked {fetches} times in 150 seconds"
    );

    let began = Instant::now();
    keys.key_set(ISSUER, "unknown").await.unwrap();
    assert!(
        began.elapsed() >= Duration::from_secs(3),
        "its key may be new"
    );

    server.is_silent.store(false, Ordering::SeqCst);
    *server.answer.lock() = Ok(set([key(SigningAlgorithm::Es384).entry()]));
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.clock.advance(Duration::from_secs(10));
    keys.key_set(ISSUER, "ES256").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let now = keys.key_set(ISSUER, "ES256").await.unwrap();
    assert!(
        now.get("ES256").is_none(),
        "the withdrawn key ended in the background"
    );
}
