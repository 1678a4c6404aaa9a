//! Tests of caching, renewal and failures, with a clock that the test moves.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::authorise;
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::ports::SecretStore;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::SystemRandomness;
use keyferry_testing::{Fault, Route};
use secrecy::ExposeSecret;

use super::FromCache;
use crate::publication::KeyRecords;
use crate::testing::{MAX_STALE, MemorySecrets, SmallWorld, account_of};

const NOTHING: Duration = Duration::ZERO;

/// The number of mints without the canary's, which tests the audience first.
fn mints(world: &SmallWorld) -> u64 {
    world.hub.token_requests() - 1
}

async fn until_minted(world: &SmallWorld, expected: u64) {
    let limit = tokio::time::timeout(Duration::from_secs(10), async {
        while mints(world) < expected || !world.mint.calls.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    limit.await.unwrap();
}

fn renew(world: &SmallWorld) {
    world
        .mint
        .renew_due(|grant| authorise::still_holds(&world.policy, &*world.live, grant).is_ok());
}

#[tokio::test]
async fn a_token_is_minted_once_and_cached() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    let second = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        (first.from_cache, second.from_cache),
        (FromCache::Miss, FromCache::Hit)
    );
    assert_eq!(
        first.token.secret().expose_secret(),
        second.token.secret().expose_secret()
    );
    assert_eq!(mints(&world), 1);
    let other = world
        .mint
        .token(&world.grant("tenant-a/deploy"), NOTHING)
        .await
        .unwrap();
    assert_ne!(
        other.token.token_id(),
        first.token.token_id(),
        "another ServiceAccount, another token"
    );
}

/// A key may have been revoked since the key journal was last read.
#[tokio::test]
async fn a_cached_token_outlives_the_readings_of_the_key_journal_for_a_while() {
    let secrets = Arc::<MemorySecrets>::default();
    let shared: Arc<dyn SecretStore> = Arc::<MemorySecrets>::clone(&secrets);
    let store = KeyRecordStore::new(shared, Arc::new(SystemRandomness::default()));
    let world = SmallWorld::start_with(KeyRecords::shared(store)).await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    secrets.be_away(true);
    world.clock.advance(MAX_STALE);
    assert!(world.publisher.sync_journal().await.is_err());
    let cached = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(cached.token.token_id(), first.token.token_id());
    world.clock.advance(Duration::from_secs(1));
    let refused = world.mint.token(&grant, NOTHING).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::KeyRecordUnread);
    secrets.be_away(false);
    world.publisher.sync_journal().await.unwrap();
    let cached = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(cached.token.token_id(), first.token.token_id());
    assert_eq!(mints(&world), 1);
}

#[tokio::test]
async fn a_used_token_is_renewed_before_it_ends() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    world.clock.advance(Duration::from_secs(2600));
    renew(&world);
    assert_eq!(mints(&world), 1, "not before its time");
    world.clock.advance(Duration::from_secs(300));
    renew(&world);
    renew(&world);
    until_minted(&world, 2).await;
    let renewed = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        renewed.from_cache,
        FromCache::Hit,
        "nobody waits for a renewal"
    );
    assert_ne!(renewed.token.token_id(), first.token.token_id());
    assert_eq!(mints(&world), 2, "two runs at one time renew once");
}

#[tokio::test]
async fn a_token_that_was_unused_for_its_lifetime_is_not_renewed() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    world.mint.token(&grant, NOTHING).await.unwrap();
    world.clock.advance(Duration::from_secs(2900));
    renew(&world);
    until_minted(&world, 2).await;
    world.clock.advance(Duration::from_secs(2900));
    renew(&world);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(mints(&world), 2, "unused for longer than it lived");
}

#[tokio::test]
async fn a_failed_renewal_leaves_the_cached_token() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    world.hub.set_fault(
        Route::TokenRequest,
        Fault::Status {
            code: 500,
            retry_after: None,
        },
    );
    world.clock.advance(Duration::from_secs(2900));
    renew(&world);
    until_minted(&world, 2).await;
    let cached = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(cached.token.token_id(), first.token.token_id());
    renew(&world);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(mints(&world), 2, "not tried again at once");
    world.hub.clear_faults();
    world.clock.advance(Duration::from_secs(11));
    renew(&world);
    until_minted(&world, 3).await;
    assert_ne!(
        world
            .mint
            .token(&grant, NOTHING)
            .await
            .unwrap()
            .token
            .token_id(),
        first.token.token_id()
    );
}

#[tokio::test]
async fn a_token_is_not_used_to_its_end() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    world.clock.advance(Duration::from_secs(3600 - 71));
    let late = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(late.token.token_id(), first.token.token_id());
    assert_eq!(
        late.token.remaining_lifetime(world.clock.now()),
        Some(Duration::from_secs(11))
    );
    world.clock.advance(Duration::from_secs(2));
    let fresh = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        fresh.from_cache,
        FromCache::Miss,
        "the margin and the least use are kept free"
    );
}

#[tokio::test]
async fn min_ttl_gets_a_new_token_only_when_the_cached_one_is_old() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    world.mint.token(&grant, NOTHING).await.unwrap();
    let half = Duration::from_secs(1800);
    assert_eq!(
        world.mint.token(&grant, half).await.unwrap().from_cache,
        FromCache::Hit
    );
    world.clock.advance(Duration::from_secs(1900));
    assert_eq!(
        world.mint.token(&grant, half).await.unwrap().from_cache,
        FromCache::Miss
    );
    assert_eq!(
        world.mint.token(&grant, half).await.unwrap().from_cache,
        FromCache::Hit
    );
    assert_eq!(mints(&world), 2);
}

#[tokio::test]
async fn a_grant_that_no_longer_holds_is_not_renewed() {
    let world = SmallWorld::start().await;
    world
        .mint
        .token(&world.grant("tenant-a/prod"), NOTHING)
        .await
        .unwrap();
    world
        .live
        .set_service_account(account_of("tenant-a", "reconciler"), None);
    world.clock.advance(Duration::from_secs(2900));
    renew(&world);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(mints(&world), 1);
}

#[tokio::test]
async fn a_failure_is_cached_for_a_moment_and_a_missing_right_is_not() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    // The canary's mint first, so that only the mint itself fails.
    world
        .mint
        .token(&world.grant("tenant-a/deploy"), NOTHING)
        .await
        .unwrap();
    let before = world.hub.token_requests();
    world.hub.set_fault(
        Route::TokenRequest,
        Fault::Status {
            code: 503,
            retry_after: Some(Duration::from_secs(86_400)),
        },
    );
    for _ in 0..20 {
        assert_eq!(
            world
                .mint
                .token(&grant, NOTHING)
                .await
                .unwrap_err()
                .reason(),
            Reason::HubUnreachable
        );
    }
    assert_eq!(
        world.hub.token_requests(),
        before + 1,
        "twenty calls in one moment"
    );
    world.clock.advance(Duration::from_secs(3));
    world.hub.set_fault(
        Route::TokenRequest,
        Fault::Status {
            code: 403,
            retry_after: None,
        },
    );
    for _ in 0..3 {
        assert_eq!(
            world
                .mint
                .token(&grant, NOTHING)
                .await
                .unwrap_err()
                .reason(),
            Reason::MintForbidden
        );
    }
    assert_eq!(
        world.hub.token_requests(),
        before + 4,
        "each asks, so that it heals at once"
    );
    world.hub.clear_faults();
    assert!(world.mint.token(&grant, NOTHING).await.is_ok());
}

#[tokio::test]
async fn a_token_that_is_not_what_was_asked_for_is_not_cached() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    world
        .mint
        .token(&world.grant("tenant-a/deploy"), NOTHING)
        .await
        .unwrap();
    for fault in [Fault::WrongServiceAccount, Fault::WrongAudience] {
        world.hub.set_fault(Route::TokenRequest, fault);
        assert_eq!(
            world
                .mint
                .token(&grant, NOTHING)
                .await
                .unwrap_err()
                .reason(),
            Reason::MintMismatch
        );
        world.clock.advance(Duration::from_secs(3));
    }
    world.hub.clear_faults();
    assert_eq!(
        world.mint.token(&grant, NOTHING).await.unwrap().from_cache,
        FromCache::Miss
    );
}
