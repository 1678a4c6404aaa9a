//! Tests of several replicas with one store, and of a store that is edited by hand.

use std::sync::atomic::Ordering;

use super::*;

#[tokio::test]
async fn two_replicas_make_one_set() {
    let (world, store, mut one) = start_managed_world().await;
    let mut two = Replica::new(
        &store,
        Arc::<crate::testing::FakeClock>::clone(&world.clock),
    );
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    assert_eq!(
        store.counts(),
        (1, 1),
        "one was first, and the other saw it"
    );
    assert_eq!(one.jwks(), two.jwks());
    assert_eq!(one.signs(&*world.clock), Err(Reason::IssuerKeysSettling));
    world.clock.advance(WAIT);
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    let kid = store.set().current.key.kid().to_owned();
    assert_eq!(
        (one.signs(&*world.clock), two.signs(&*world.clock)),
        (Ok(kid.clone()), Ok(kid))
    );
    assert_eq!(store.counts(), (1, 1));
}

#[tokio::test]
async fn two_replicas_rotate_once() {
    let (world, store, mut one) = start_managed_world().await;
    let mut two = Replica::new(
        &store,
        Arc::<crate::testing::FakeClock>::clone(&world.clock),
    );
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    world.clock.advance(WAIT);
    let before = store.set();
    store.edit(|object| object.request = Some("please".to_owned()));
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    let after = store.set();
    assert_eq!(store.counts(), (2, 2));
    assert_eq!(after.current.key.kid(), before.next.key.kid());
    assert_eq!(after.previous[0].key.kid(), before.current.key.kid());
    for replica in [&one, &two] {
        assert_eq!(
            replica.signs(&*world.clock),
            Ok(after.current.key.kid().to_owned())
        );
        assert!(
            replica.publishes(before.current.key.kid()) && replica.publishes(after.next.key.kid())
        );
    }
    world.clock.advance(WAIT);
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    assert_eq!(
        store.set().current.key.kid(),
        after.current.key.kid(),
        "one request, one rotation"
    );
    world.clock.advance(MONTH);
    tokio::join!(
        one.maintainer.run_round(&world.policy),
        two.maintainer.run_round(&world.policy)
    );
    assert_eq!(
        store.set().current.key.kid(),
        after.next.key.kid(),
        "by schedule"
    );
}

#[tokio::test]
async fn nothing_is_written_before_the_start_is_over() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.may_write.store(false, Ordering::Relaxed);
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(store.counts(), (0, 0));
    assert!(replica.issuer().documents.is_none());
}

#[tokio::test]
async fn a_hub_that_fails_takes_no_key_away() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let (published, kid) = (replica.jwks(), replica.signs(&*world.clock).unwrap());
    for (error, reason) in [
        (
            HubError::Unreachable("x".to_owned()),
            Reason::HubUnreachable,
        ),
        (HubError::Forbidden("x".into()), Reason::IssuerKeysForbidden),
        (HubError::Unreadable("x"), Reason::IssuerKeysInvalid),
    ] {
        store.fail(Some(error));
        world.clock.advance(Duration::from_secs(30));
        replica.maintainer.run_round(&world.policy).await;
        assert_eq!(
            replica.signs(&*world.clock),
            Ok(kid.clone()),
            "the reading is 30 s old"
        );
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(replica.signs(&*world.clock), Err(reason));
        assert_eq!(replica.jwks(), published);
        store.fail(None);
        replica.maintainer.run_round(&world.policy).await;
        assert_eq!(replica.signs(&*world.clock), Ok(kid.clone()), "healed");
    }
    assert_eq!(store.counts(), (1, 0));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_not_written_over() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let published = replica.jwks();
    for document in [
        "",
        "{}",
        "not json",
        &store.document().replace("\"version\":1", "\"version\":2"),
    ] {
        store.edit(|object| object.document = document.to_owned());
        world.clock.advance(Duration::from_secs(31));
        replica.maintainer.run_round(&world.policy).await;
        assert_eq!(
            replica.signs(&*world.clock),
            Err(Reason::IssuerKeysInvalid),
            "{document:?}"
        );
        assert_eq!(
            (replica.jwks(), store.document()),
            (published.clone(), document.to_owned())
        );
    }
}

#[tokio::test]
async fn a_key_put_in_by_hand_waits_like_any_other_and_takes_none_away() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let before = store.set();
    // Foreign keys, backdated by a day, replace all others.
    let now = world.clock.now();
    let yesterday = keyferry_api::moment::Moment {
        wall: now.wall - jiff::SignedDuration::from_hours(24),
        ..now
    };
    let (current, next) = (keyring::fresh_key().unwrap(), keyring::fresh_key().unwrap());
    let forged = KeySet::initial_set(before.binding.clone(), current, next, yesterday);
    let kid = forged.current.key.kid().to_owned();
    store.edit(|object| object.document = managed_issuer::write_key_set(&forged).to_string());
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Err(Reason::IssuerKeysSettling)
    );
    assert!(
        replica.publishes(before.current.key.kid()),
        "its tokens are still good"
    );
    assert!(replica.publishes(before.next.key.kid()) && replica.publishes(&kid));
    assert_eq!(
        store.set().previous.len(),
        2,
        "what was taken out is back, without its private half"
    );
    world.clock.advance(WAIT - Duration::from_secs(1));
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Err(Reason::IssuerKeysSettling)
    );
    world.clock.advance(Duration::from_secs(1));
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Ok(kid),
        "who can write the Secret can be the signer"
    );
}

#[tokio::test]
async fn a_deleted_secret_revokes_its_keys() {
    let (world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let stolen = store.set();
    store.delete();
    replica.maintainer.run_round(&world.policy).await;
    assert!(
        !replica.publishes(stolen.current.key.kid()) && !replica.publishes(stolen.next.key.kid())
    );
    assert_eq!(
        replica.signs(&*world.clock),
        Err(Reason::IssuerKeysSettling)
    );
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Ok(store.set().current.key.kid().to_owned())
    );
}

#[tokio::test]
async fn a_set_made_for_another_audience_signs_nothing() {
    let (mut world, store, mut replica) = start_managed_world().await;
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let published = replica.jwks();
    let name = ObjectName::new("prod").unwrap();
    let target = world.policy.targets.get_mut(&name).unwrap();
    target.audience = keyferry_api::audience::Audience::new("https://other.example.test").unwrap();
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Err(Reason::IssuerKeysInvalid),
        "at once"
    );
    assert_eq!(replica.jwks(), published);
    assert_eq!(store.counts(), (1, 0));
    world.policy.targets.get_mut(&name).unwrap().issuer = TokenIssuer::Hub;
    replica.maintainer.run_round(&world.policy).await;
    assert!(
        replica.issuers.find_by_name("prod").is_none(),
        "the hub signs for it now"
    );
}

#[tokio::test]
async fn a_missing_right_to_write_stops_rotations_and_nothing_else() {
    let (world, store, mut replica) = start_managed_world().await;
    store.read_only.store(true, Ordering::Relaxed);
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Err(Reason::IssuerKeysForbidden),
        "there is no set at all"
    );
    store.read_only.store(false, Ordering::Relaxed);
    replica.maintainer.run_round(&world.policy).await;
    world.clock.advance(WAIT);
    replica.maintainer.run_round(&world.policy).await;
    let (kid, next) = (
        replica.signs(&*world.clock).unwrap(),
        store.set().next.key.kid().to_owned(),
    );
    store.read_only.store(true, Ordering::Relaxed);
    store.edit(|object| object.request = Some("please".to_owned()));
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(replica.signs(&*world.clock), Ok(kid));
    store.read_only.store(false, Ordering::Relaxed);
    replica.maintainer.run_round(&world.policy).await;
    assert_eq!(
        replica.signs(&*world.clock),
        Ok(next),
        "the request still stood"
    );
}
