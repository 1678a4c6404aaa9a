//! Tests of who may read metrics, and for how long an answer of the hub is valid.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::caller::PresentedToken;
use keyferry_issuer::testing::{FakeClock, ISSUER, SmallWorld};
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_testing::{Fault, Grant, Route, Subject};
use secrecy::{ExposeSecret, SecretString};

use super::MetricsReaders;

const HOUR: Duration = Duration::from_secs(3600);

fn readers(world: &SmallWorld) -> MetricsReaders {
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    MetricsReaders::new(
        Arc::clone(&world.port),
        clock,
        world.metrics.clone(),
        [7; 32],
        Duration::from_secs(60),
    )
}

fn token(world: &SmallWorld, account: &str, audience: &str, life: Duration) -> SecretString {
    world
        .hub
        .token("tenant-a", account, audience, life)
        .unwrap()
}

fn may_read(account: &str) -> Grant {
    let user = Subject::User(format!("system:serviceaccount:tenant-a:{account}"));
    Grant::new(user, "get", "/metrics")
}

async fn check(readers: &MetricsReaders, token: &SecretString) -> Result<(), Reason> {
    let token = PresentedToken::new(token.expose_secret());
    readers.check_reader(&token, Source::default()).await
}

#[tokio::test]
async fn the_hub_decides_and_its_answer_stands_for_seconds() {
    let world = SmallWorld::start().await;
    let readers = readers(&world);
    let scraper = token(&world, "deployer", ISSUER, HOUR);
    assert_eq!(
        check(&readers, &scraper).await,
        Err(Reason::MetricsForbidden)
    );
    world.hub.grant(may_read("deployer"));
    assert_eq!(
        check(&readers, &scraper).await,
        Err(Reason::MetricsForbidden),
        "for five seconds"
    );
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world.hub.revoke(&may_read("deployer"));
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(
        check(&readers, &scraper).await,
        Err(Reason::MetricsForbidden)
    );
    assert_eq!(world.hub.token_reviews(), 3);
}

#[tokio::test]
async fn a_token_for_keyferrys_own_audience_opens_nothing_here() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let of_caller = token(&world, "deployer", "keyferry.dev", HOUR);
    for token in [of_caller, SecretString::from("no.token.atall")] {
        assert_eq!(check(&readers, &token).await, Err(Reason::CallerRejected));
    }
    assert_eq!(world.hub.access_reviews(), 0);
}

#[tokio::test]
async fn one_readers_permission_is_no_others() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let [deployer, reconciler] =
        ["deployer", "reconciler"].map(|account| token(&world, account, ISSUER, HOUR));
    assert_eq!(check(&readers, &deployer).await, Ok(()));
    assert_eq!(
        check(&readers, &reconciler).await,
        Err(Reason::MetricsForbidden)
    );
}

#[tokio::test]
async fn a_permission_stands_while_the_hub_is_away_until_the_token_expires() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let (long, short) = (
        token(&world, "deployer", ISSUER, HOUR),
        token(&world, "deployer", ISSUER, Duration::from_secs(30)),
    );
    for token in [&long, &short] {
        assert_eq!(check(&readers, token).await, Ok(()));
    }
    let away = Fault::Status {
        code: 503,
        retry_after: None,
    };
    world.hub.set_fault(Route::TokenReview, away);
    world.clock.advance(Duration::from_secs(29));
    for token in [&long, &short] {
        assert_eq!(check(&readers, token).await, Ok(()));
    }
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(check(&readers, &long).await, Ok(()));
    assert_eq!(
        check(&readers, &short).await,
        Err(Reason::HubUnreachable),
        "the token has expired"
    );
    world.clock.advance(Duration::from_secs(30));
    assert_eq!(check(&readers, &long).await, Err(Reason::HubUnreachable));
}

#[tokio::test]
async fn a_fresh_permission_ends_with_the_token() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let scraper = token(&world, "deployer", ISSUER, Duration::from_secs(5));
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world
        .hub
        .set_fault(Route::TokenReview, Fault::CloseConnection);
    world.clock.advance(Duration::from_secs(4));
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(check(&readers, &scraper).await, Err(Reason::HubUnreachable));
}

#[tokio::test]
async fn unknown_tokens_cost_the_hub_few_reviews() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let scraper = token(&world, "deployer", ISSUER, HOUR);
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    let mut limited = 0;
    for number in 0..100 {
        let forged = SecretString::from(format!("forged.token.{number}"));
        limited += u32::from(check(&readers, &forged).await == Err(Reason::RateLimited));
    }
    assert!(limited >= 80, "{limited}");
    assert!(world.hub.token_reviews() <= 21);
    assert_eq!(check(&readers, &scraper).await, Ok(()), "a known reader");
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(check(&readers, &scraper).await, Ok(()), "when it is due");
}

#[tokio::test]
async fn a_flood_of_unknown_tokens_leaves_known_readers_a_review() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let scraper = token(&world, "deployer", ISSUER, HOUR);
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world.clock.advance(Duration::from_secs(10));
    // A forged token whose review takes long has the only place of unknown readers.
    let of_unknown = readers.reviewer.reviews_of_unknown.try_acquire();
    let one = readers.reviewer.reviews.try_acquire();
    assert!(of_unknown.is_ok() && one.is_ok());
    let forged = SecretString::from("forged.token.1");
    let (forged, known) = tokio::join!(check(&readers, &forged), async {
        let known = check(&readers, &scraper).await;
        (known, world.hub.token_reviews())
    });
    assert_eq!(forged, Err(Reason::HubUnreachable));
    assert_eq!(known, (Ok(()), 2), "reviewed, without waiting");
}

#[tokio::test]
async fn a_known_reader_without_a_review_keeps_its_permission_for_a_while() {
    let world = SmallWorld::start().await;
    world.hub.grant(may_read("deployer"));
    let readers = readers(&world);
    let scraper = token(&world, "deployer", ISSUER, HOUR);
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    let all = readers.reviewer.reviews.try_acquire_many(2);
    assert!(all.is_ok());
    world.clock.advance(Duration::from_secs(59));
    assert_eq!(check(&readers, &scraper).await, Ok(()));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(check(&readers, &scraper).await, Err(Reason::HubUnreachable));
}
