//! Tests that tokens of a new key wait until it is active.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::authorise;

use keyferry_api::moment::Moment;
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::testing::MemorySecrets;
use keyferry_platform::clock::Clock;
use keyferry_platform::random::SystemRandomness;
use parking_lot::Mutex;

use super::cache::MintKey;
use super::{FromCache, Mint, MintError, MintParts};
use crate::publication::KeyRecords;
use crate::testing::{FakeClock, SmallWorld};

const NOTHING: Duration = Duration::ZERO;
/// The activation delay: 30 s + maxAge + 30 s.
const ACTIVATION_DELAY: Duration = Duration::from_secs(120);

async fn renew(world: &SmallWorld, mints: u64) {
    world
        .mint
        .renew_due(|grant| authorise::still_holds(&world.policy, &*world.live, grant).is_ok());
    let minted = async {
        while world.hub.token_requests() < mints || !world.mint.calls.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), minted)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_renewed_token_waits_while_the_earlier_one_is_issued() {
    let world = SmallWorld::start().await;
    let grant = world.grant("tenant-a/prod");
    let first = world.mint.token(&grant, NOTHING).await.unwrap();
    let kid = world.hub.rotate_key().unwrap();
    world.clock.advance(Duration::from_secs(2900));
    renew(&world, 3).await;
    assert!(
        world
            .publisher
            .reader()
            .current()
            .unwrap()
            .keys
            .get(&kid)
            .is_some(),
        "published by the first token that it signed"
    );
    for _ in 0..3 {
        world.clock.advance(ACTIVATION_DELAY / 4);
        renew(&world, 3).await;
        let cached = world.mint.token(&grant, NOTHING).await.unwrap();
        assert_eq!(
            (cached.from_cache, cached.token.token_id()),
            (FromCache::Hit, first.token.token_id())
        );
    }
    assert_eq!(
        world.hub.token_requests(),
        3,
        "one waits, so no other is asked for"
    );
    world.clock.advance(ACTIVATION_DELAY / 4);
    renew(&world, 3).await;
    let cached = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(
        (cached.from_cache, cached.token.kid()),
        (FromCache::Hit, kid.as_str())
    );
    assert_eq!(world.hub.token_requests(), 3);
}

#[tokio::test]
async fn without_an_earlier_token_the_caller_learns_when_to_come_again() {
    let world = SmallWorld::start().await;
    world
        .mint
        .token(&world.grant("tenant-a/deploy"), NOTHING)
        .await
        .unwrap();
    let (grant, kid) = (
        world.grant("tenant-a/prod"),
        world.hub.rotate_key().unwrap(),
    );
    let error = world.mint.token(&grant, NOTHING).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.retry_after()),
        (Reason::KeySettling, Some(ACTIVATION_DELAY))
    );
    world.clock.advance(Duration::from_secs(50));
    assert_eq!(
        world.mint.token(&grant, NOTHING).await.unwrap_err(),
        MintError::KeyNotActive {
            retry_after: Duration::from_secs(70)
        }
    );
    assert_eq!(
        world.hub.token_requests(),
        3,
        "the canary's, the other one's, and one for both tries"
    );
    world.clock.advance(Duration::from_secs(70));
    let cached = world.mint.token(&grant, NOTHING).await.unwrap();
    assert_eq!(cached.token.kid(), kid);
    assert_eq!(world.hub.token_requests(), 3);
}

#[tokio::test]
async fn a_caller_waits_for_a_key_that_is_about_to_be_active() {
    let world = SmallWorld::start().await;
    world
        .mint
        .token(&world.grant("tenant-a/deploy"), NOTHING)
        .await
        .unwrap();
    let (grant, kid) = (
        world.grant("tenant-a/prod"),
        world.hub.rotate_key().unwrap(),
    );
    assert_eq!(
        world
            .mint
            .token(&grant, NOTHING)
            .await
            .unwrap_err()
            .reason(),
        Reason::KeySettling
    );
    world
        .clock
        .advance(ACTIVATION_DELAY - Duration::from_secs(10));
    let moved = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.clock.advance(Duration::from_secs(10));
    };
    let (waited, ()) = tokio::join!(world.mint.token(&grant, NOTHING), moved);
    assert_eq!(waited.unwrap().token.kid(), kid);
}

/// A clock whose next readings are each followed at once by something that another caller does.
struct InterruptedClock {
    clock: Arc<FakeClock>,
    next: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
}

impl Clock for InterruptedClock {
    fn now(&self) -> Moment {
        let now = self.clock.now();
        let next = self.next.lock().pop_front();
        next.into_iter().for_each(|next| next());
        now
    }
}

/// A mint with a waiting token and its key, for a caller that begins to wait a moment before another
/// one promotes it. By then the key journal has not been read for the whole activation delay.
async fn mint_with_waiting_token(
    world: &SmallWorld,
    max_stale: Duration,
) -> (Mint, MintKey, String) {
    let deploy = world.grant("tenant-a/deploy");
    world.mint.token(&deploy, NOTHING).await.unwrap();
    let (grant, kid) = (
        world.grant("tenant-a/prod"),
        world.hub.rotate_key().unwrap(),
    );
    let refused = world.mint.token(&grant, NOTHING).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::KeySettling);
    world
        .clock
        .advance(ACTIVATION_DELAY - Duration::from_secs(1));

    let published = world.publisher.reader().current().unwrap();
    let key = MintKey::of(&grant, published.issuer.clone(), None);
    let (cache, clock) = (world.mint.cache.clone(), Arc::clone(&world.clock));
    let promote = move || {
        clock.advance(Duration::from_secs(1));
        cache.promote(clock.now(), &published);
    };
    let parts = &world.mint.parts;
    let mint = Mint {
        parts: Arc::new(MintParts {
            hub: Arc::clone(&parts.hub),
            publisher: parts.publisher.clone(),
            own: parts.own.clone(),
            guard: parts.guard.clone(),
            clock: Arc::new(InterruptedClock {
                clock: Arc::clone(&world.clock),
                // The first reading is when the caller begins to wait, the second when it looks.
                next: Mutex::new(VecDeque::from([
                    Box::new(|| {}) as Box<dyn FnOnce() + Send>,
                    Box::new(promote),
                ])),
            }),
            random: Arc::clone(&parts.random),
            metrics: parts.metrics.clone(),
            activation_delay: ACTIVATION_DELAY,
            max_stale,
        }),
        ..world.mint.clone()
    };
    (mint, key, kid)
}

#[tokio::test]
async fn a_token_that_another_caller_promotes_a_moment_later_is_issued() {
    let world = SmallWorld::start().await;
    let max_stale = world.mint.parts.max_stale;
    let (mint, key, kid) = mint_with_waiting_token(&world, max_stale).await;
    let minted = mint.wait_until_active(&key, NOTHING).await.unwrap();
    assert_eq!(minted.token.kid(), kid);
}

#[tokio::test]
async fn who_waits_while_the_key_journal_is_unread_is_told_so() {
    let secrets = Arc::<MemorySecrets>::default();
    let store = KeyRecordStore::new(secrets, Arc::new(SystemRandomness::default()));
    let world = SmallWorld::start_with(KeyRecords::shared(store)).await;
    let (mint, key, _) = mint_with_waiting_token(&world, NOTHING).await;
    let refused = mint.wait_until_active(&key, NOTHING).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::KeyRecordUnread);
}

#[tokio::test]
async fn a_key_that_is_listed_long_before_it_signs_delays_no_caller() {
    let world = SmallWorld::start().await;
    let kid = world.hub.new_key().unwrap();
    world.hub.publish_key(&kid).unwrap();
    world.publisher.refresh().await.unwrap();
    assert!(
        world
            .publisher
            .reader()
            .current()
            .unwrap()
            .keys
            .get(&kid)
            .is_none(),
        "seen once"
    );
    world.clock.advance(Duration::from_secs(15));
    world.publisher.refresh().await.unwrap();
    world.clock.advance(ACTIVATION_DELAY);
    world.hub.sign_with(&kid).unwrap();
    assert_eq!(
        world
            .mint
            .token(&world.grant("tenant-a/prod"), NOTHING)
            .await
            .unwrap()
            .token
            .kid(),
        kid
    );
}
