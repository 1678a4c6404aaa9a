//! Tests of how long the hub's answers are used, and of what is never asked of it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::caller::PresentedToken;
use keyferry_issuer::testing::{FakeClock, SmallWorld};
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_testing::{Fault, Route};
use secrecy::ExposeSecret;

use super::Authenticator;

const HOUR: Duration = Duration::from_secs(3600);

fn authenticator(world: &SmallWorld, max_stale: u64) -> Authenticator {
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    let (hub, publisher) = (Arc::clone(&world.port), world.publisher.clone());
    Authenticator::new(
        hub,
        publisher,
        clock,
        world.metrics.clone(),
        [7; 32],
        world.callers(Duration::from_secs(max_stale)),
    )
}

fn caller(world: &SmallWorld, audience: &str) -> PresentedToken<'static> {
    PresentedToken::new(
        world
            .hub
            .token("tenant-a", "reconciler", audience, HOUR)
            .unwrap()
            .expose_secret()
            .to_owned(),
    )
}

#[tokio::test]
async fn a_review_stands_for_ten_seconds() {
    let world = SmallWorld::start().await;
    let (authenticator, token) = (authenticator(&world, 300), caller(&world, "keyferry.dev"));
    for _ in 0..5 {
        let known = authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap();
        assert_eq!(
            known.caller.identity().account.to_string(),
            "tenant-a/reconciler"
        );
        world.clock.advance(Duration::from_millis(1900));
    }
    assert_eq!(world.hub.token_reviews(), 1);
    world.clock.advance(Duration::from_secs(1));
    authenticator
        .authenticate(&token, Source::default())
        .await
        .unwrap();
    assert_eq!(world.hub.token_reviews(), 2);
}

#[tokio::test]
async fn an_earlier_answer_stands_while_the_hub_is_away_and_not_a_second_longer() {
    let world = SmallWorld::start().await;
    let (authenticator, token) = (authenticator(&world, 300), caller(&world, "keyferry.dev"));
    let stranger = caller(&world, "keyferry.dev");
    assert!(
        !authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap()
            .stale
    );
    world
        .hub
        .set_fault(Route::TokenReview, Fault::CloseConnection);
    world.clock.advance(Duration::from_secs(11));
    assert!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap()
            .stale
    );
    assert_eq!(
        authenticator
            .authenticate(&stranger, Source::default())
            .await
            .unwrap_err()
            .reason,
        Reason::HubUnreachable,
        "nobody new"
    );
    world.clock.advance(Duration::from_secs(288));
    assert!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap()
            .stale,
        "299 s after the answer"
    );
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap_err()
            .reason,
        Reason::HubUnreachable,
        "300 s after it"
    );
    world.hub.clear_faults();
    world.clock.advance(Duration::from_secs(2));
    assert!(
        !authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap()
            .stale
    );
}

#[tokio::test]
async fn a_refusal_of_the_hub_is_never_overlooked_as_an_outage() {
    let world = SmallWorld::start().await;
    let (authenticator, token) = (authenticator(&world, 300), caller(&world, "keyferry.dev"));
    authenticator
        .authenticate(&token, Source::default())
        .await
        .unwrap();
    world.clock.advance(Duration::from_secs(11));
    for code in [401, 403] {
        world.hub.set_fault(
            Route::TokenReview,
            Fault::Status {
                code,
                retry_after: None,
            },
        );
        assert_eq!(
            authenticator
                .authenticate(&token, Source::default())
                .await
                .unwrap_err()
                .reason,
            Reason::ReviewForbidden,
            "{code}"
        );
    }
    world.hub.clear_faults();
    // An apiserver that starts refuses reviews until it has read its own RBAC.
    let kept = authenticator.authenticate(&token, Source::default()).await;
    assert!(kept.is_ok(), "the hub's refusal of Keyferry is not kept");
    world.clock.advance(Duration::from_secs(11));
    world.hub.delete_service_account("tenant-a", "reconciler");
    assert_eq!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap_err()
            .reason,
        Reason::CallerRejected
    );
    world
        .hub
        .set_fault(Route::TokenReview, Fault::CloseConnection);
    world.clock.advance(Duration::from_secs(6));
    assert_eq!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap_err()
            .reason,
        Reason::HubUnreachable,
        "a rejection ends what stood"
    );
}

#[tokio::test]
async fn an_answer_never_outlives_the_token() {
    let world = SmallWorld::start().await;
    let authenticator = authenticator(&world, 3600);
    let token = world
        .hub
        .token(
            "tenant-a",
            "reconciler",
            "keyferry.dev",
            Duration::from_secs(605),
        )
        .unwrap();
    let token = PresentedToken::new(token.expose_secret());
    world.clock.advance(Duration::from_secs(600));
    authenticator
        .authenticate(&token, Source::default())
        .await
        .unwrap();
    world
        .hub
        .set_fault(Route::TokenReview, Fault::CloseConnection);
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(
        authenticator
            .authenticate(&token, Source::default())
            .await
            .unwrap_err()
            .reason,
        Reason::CallerExpired
    );
}

#[tokio::test]
async fn what_the_hub_cannot_have_signed_costs_no_review() {
    let world = SmallWorld::start().await;
    let authenticator = authenticator(&world, 300);
    let token = caller(&world, "keyferry.dev");
    let (signed, signature) = token.expose().rsplit_once('.').unwrap();
    let other = caller(&world, "keyferry.dev");
    let foreign = other.expose().rsplit_once('.').unwrap().1;
    assert_ne!(signature, foreign);
    let forged = PresentedToken::new(format!("{signed}.{foreign}"));
    for (token, reason) in [
        (forged, Reason::CallerRejected),
        (
            caller(&world, "https://prod.example.test"),
            Reason::CallerAudienceMismatch,
        ),
        (PresentedToken::new("a.b.c"), Reason::CallerMalformed),
        (PresentedToken::new(""), Reason::CallerMissing),
    ] {
        assert_eq!(
            authenticator
                .authenticate(&token, Source::default())
                .await
                .unwrap_err()
                .reason,
            reason
        );
    }
    assert_eq!(world.hub.token_reviews(), 0);
}

#[tokio::test]
async fn a_new_key_of_the_hub_is_looked_for_once_in_a_while() {
    let world = SmallWorld::start().await;
    let authenticator = authenticator(&world, 300);
    world.hub.rotate_key().unwrap();
    let token = caller(&world, "keyferry.dev");
    authenticator
        .authenticate(&token, Source::default())
        .await
        .unwrap();
    let read = world.hub.requests(Route::Jwks);
    world.hub.rotate_key().unwrap();
    for _ in 0..10 {
        let token = caller(&world, "keyferry.dev");
        assert_eq!(
            authenticator
                .authenticate(&token, Source::default())
                .await
                .unwrap_err()
                .reason,
            Reason::CallerRejected,
            "within the pause"
        );
    }
    assert_eq!(world.hub.requests(Route::Jwks), read);
    world.clock.advance(Duration::from_secs(6));
    authenticator
        .authenticate(&caller(&world, "keyferry.dev"), Source::default())
        .await
        .unwrap();
    assert_eq!(world.hub.requests(Route::Jwks), read + 1);
}
