//! Tests of how long the hub's answer about a delegated caller is valid, and for whom.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::authorise::Review;
use keyferry_core::caller::PresentedToken;
use keyferry_issuer::testing::{FakeClock, SmallWorld, account_of};
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_testing::{Fault, Grant, Route, Subject};
use secrecy::ExposeSecret;

use super::Delegations;
use crate::authenticate::{Authentication, Authenticator};

async fn authenticated(world: &SmallWorld, account: &str) -> Authentication {
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    let (hub, publisher) = (Arc::clone(&world.port), world.publisher.clone());
    let callers = world.callers(Duration::from_secs(300));
    let authenticator = Authenticator::new(
        hub,
        publisher,
        clock,
        world.metrics.clone(),
        [7; 32],
        callers,
    );
    let token = world
        .hub
        .token(
            "tenant-a",
            account,
            "keyferry.dev",
            Duration::from_secs(3600),
        )
        .unwrap();
    authenticator
        .authenticate(
            &PresentedToken::new(token.expose_secret()),
            Source::default(),
        )
        .await
        .unwrap()
}

fn delegations(world: &SmallWorld) -> Delegations {
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(&world.clock);
    Delegations::new(
        Arc::clone(&world.port),
        clock,
        world.metrics.clone(),
        Duration::from_secs(60),
    )
}

fn right() -> Grant {
    let user = Subject::User("system:serviceaccount:tenant-a:deployer".to_owned());
    Grant::new(user, "create", "serviceaccounts/token")
        .in_namespace("tenant-a")
        .named("reconciler")
}

#[tokio::test]
async fn the_hub_decides_and_its_answer_stands_for_ten_seconds() {
    let world = SmallWorld::start().await;
    let (delegations, deployer) = (delegations(&world), authenticated(&world, "deployer").await);
    let account = account_of("tenant-a", "reconciler");
    assert_eq!(
        delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap()
            .review,
        Review::Refused
    );
    world.hub.grant(right());
    assert_eq!(
        delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap()
            .review,
        Review::Refused,
        "for ten seconds"
    );
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(
        delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap()
            .review,
        Review::Allowed
    );
    world.hub.revoke(&right());
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(
        delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap()
            .review,
        Review::Refused
    );
    assert_eq!(world.hub.access_reviews(), 3);
}

#[tokio::test]
async fn one_callers_answer_is_nobody_elses() {
    let world = SmallWorld::start().await;
    world.hub.grant(right());
    let delegations = delegations(&world);
    let (deployer, reconciler) = (
        authenticated(&world, "deployer").await,
        authenticated(&world, "reconciler").await,
    );
    let allowed = account_of("tenant-a", "reconciler");
    assert_eq!(
        delegations
            .review_delegation(&deployer, &allowed)
            .await
            .unwrap()
            .review,
        Review::Allowed
    );
    assert_eq!(
        delegations
            .review_delegation(&reconciler, &allowed)
            .await
            .unwrap()
            .review,
        Review::Refused
    );
    let other = account_of("tenant-a", "deployer");
    assert_eq!(
        delegations
            .review_delegation(&deployer, &other)
            .await
            .unwrap()
            .review,
        Review::Refused,
        "another ServiceAccount is another question"
    );
}

#[tokio::test]
async fn an_earlier_answer_stands_while_the_hub_is_away_and_not_a_second_longer() {
    let world = SmallWorld::start().await;
    world.hub.grant(right());
    let (delegations, deployer) = (delegations(&world), authenticated(&world, "deployer").await);
    let account = account_of("tenant-a", "reconciler");
    assert!(
        !delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap()
            .stale
    );
    world.hub.set_fault(
        Route::AccessReview,
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    );
    world.clock.advance(Duration::from_secs(59));
    let stale = delegations
        .review_delegation(&deployer, &account)
        .await
        .unwrap();
    assert!(stale.stale && stale.review == Review::Allowed);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(
        delegations
            .review_delegation(&deployer, &account)
            .await
            .unwrap_err(),
        Reason::HubUnreachable
    );
}

/// An apiserver that starts refuses reviews until it has read its own RBAC.
#[tokio::test]
async fn a_missing_right_of_keyferry_refuses_and_is_not_kept() {
    let world = SmallWorld::start().await;
    world.hub.grant(right());
    let (delegations, deployer) = (delegations(&world), authenticated(&world, "deployer").await);
    let account = account_of("tenant-a", "reconciler");
    for code in [403, 401] {
        let retry_after = None;
        let fault = Fault::Status { code, retry_after };
        world.hub.set_fault(Route::AccessReview, fault);
        let refused = delegations.review_delegation(&deployer, &account).await;
        assert_eq!(refused.unwrap_err(), Reason::ReviewForbidden, "{code}");
        world.hub.clear_faults();
        let allowed = delegations.review_delegation(&deployer, &account).await;
        let allowed = allowed.unwrap();
        assert!(
            allowed.review == Review::Allowed && !allowed.stale,
            "{code}"
        );
        // The next refusal is met with an earlier permission.
        world.clock.advance(Duration::from_secs(10));
    }
}
